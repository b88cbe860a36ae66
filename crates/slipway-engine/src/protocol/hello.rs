//! The first message either way. Its form and that of frames are the same in every version, so that versions can refuse each other.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::{Code, Error};

/// The version of all other messages. A change of their form takes the next number (`protocol/tests.rs` notices).
pub const VERSION: u32 = 2;
/// Largest hello, bytes.
pub(super) const LARGEST: usize = 4096;

/// Which protocol a peer speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the protocol.
    pub protocol: u32,
    /// Version of the program, for people.
    pub slipway: String,
}

impl Hello {
    /// This program's.
    #[must_use]
    pub fn own() -> Self {
        Self::of(VERSION)
    }

    /// This program's, for a protocol of this version.
    pub(crate) fn of(protocol: u32) -> Self {
        Self { protocol, slipway: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// Refuses a peer of another version.
    ///
    /// # Errors
    /// [`Code::Version`].
    pub fn check(&self) -> Result<(), Error> {
        Self::own().meet(self)
    }

    /// As [`check`](Self::check), of a peer that said this to a program that says `self`.
    pub(crate) fn meet(&self, peer: &Self) -> Result<(), Error> {
        if self.protocol == peer.protocol { Ok(()) } else { Err(self.refuse(&peer.to_string())) }
    }

    /// For a peer that is of another version, in words.
    pub(crate) fn refuse(&self, peer: &str) -> Error {
        Error::new(
            Code::Version,
            format!(
                "exchange messages between {self} and {peer}\nHint: use the version that brought the lab up; or end it with `slipway down`, which takes labs of every version, and bring it up again"
            ),
        )
    }
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slipway {} (protocol {})", self.slipway, self.protocol)
    }
}
