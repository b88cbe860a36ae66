//! The first message either way. Its form and that of frames are the same in every version, so that versions can refuse each other.

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
        Self { protocol: VERSION, slipway: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// Refuses a peer of another version.
    ///
    /// # Errors
    /// [`Code::Version`].
    pub fn check(&self) -> Result<(), Error> {
        if self.protocol == VERSION {
            return Ok(());
        }
        Err(other_version(&format!("slipway {} (protocol {})", self.slipway, self.protocol)))
    }
}

/// For a peer that is of another version.
pub(super) fn other_version(theirs: &str) -> Error {
    let own = Hello::own();
    Error::new(
        Code::Version,
        format!(
            "exchange messages between slipway {} (protocol {}) and {theirs}\nHint: use the version that brought the lab up; or end it with `slipway down`, which takes labs of every version, and bring it up again",
            own.slipway, own.protocol
        ),
    )
}
