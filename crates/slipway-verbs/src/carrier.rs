//! The carrier: a program that moves streams between queue pairs by an RDMA device of the machine.
//!
//! A broker gives its programs one end of a socket pair, as it would a stream of the hosts' network, and the carrier has the other
//! end. Two carriers join such ends by a connection of their devices. Brokers agree on it by their own authenticated connection,
//! which carries an [`Invitation`]. `docs/adr/0081-a-device-carries-queue-pairs.md` says why.

mod rdmacm;
mod serve;
mod table;
mod tunnel;

use std::net::SocketAddrV4;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use serde::{Deserialize, Serialize};

pub use serve::run;

/// How long the peer of a stream of the network may leave bytes unacknowledged. Then requests of its queue pairs fail, as after the
/// retries of a device.
pub const SILENCE: Duration = Duration::from_secs(5);

/// Has a stream of the network outlast any silence of its peer, or end after [`SILENCE`].
///
/// # Errors
/// As `setsockopt(2)`.
pub fn hold_out(stream: impl AsFd, is_patient: bool) -> Result<(), Errno> {
    // 0 is the kernel's own time, a quarter of an hour (`tcp_retries2`).
    let most = if is_patient { 0 } else { u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX) };
    sockopt::set_tcp_user_timeout(&stream, most)?;
    sockopt::set_socket_keepalive(&stream, !is_patient)
}

/// Whether a program's end leads to a carrier: it is no stream of the network.
pub fn leads_there(end: impl AsFd) -> bool {
    sockopt::socket_domain(end).is_ok_and(|family| family == AddressFamily::UNIX)
}

/// A random name of a connection to come: whoever knows it may be the other end.
pub type Token = [u8; 16];

/// An order of a broker. Its descriptors come beside it. `cookie` names the broker's end of the socket pair (`SO_COOKIE`,
/// socket(7)), which the orders that follow name too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Joins the first descriptor with the connection that will name `token`. The second is the brokers' connection: where it
    /// says [`FALLS_BACK`], it takes the place of the device.
    Expect {
        /// Names the connection.
        token: Token,
        /// The broker's end.
        cookie: u64,
    },
    /// Joins the descriptor with the carrier of another machine. One byte comes out of it first, once that is done.
    Connect {
        /// Names the connection.
        token: Token,
        /// The broker's end.
        cookie: u64,
        /// The other carrier.
        at: SocketAddrV4,
    },
    /// Moves nothing from now on, or goes on.
    Hold {
        /// The broker's end.
        cookie: u64,
        /// True where nothing is to move.
        is_held: bool,
    },
}

/// First byte of a brokers' connection whose queue pairs a device will carry.
const BY_DEVICE: u8 = 1;
/// First byte of a brokers' connection that carries them itself.
const BY_STREAM: u8 = 0;
/// The byte by which a broker says that the device has not reached the other one.
pub const FALLS_BACK: u8 = 2;

/// The way of two queue pairs, as the broker that was asked says it first on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invitation {
    /// The connection carries them itself.
    Stream,
    /// The carrier of that machine waits for the other.
    Device {
        /// The carrier's port.
        port: u16,
        /// The name of the connection.
        token: Token,
    },
}

impl Invitation {
    /// Bytes after the first one, of an invitation by a device.
    pub const REST: usize = 18;

    /// Its bytes on the connection.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Stream => vec![BY_STREAM],
            Self::Device { port, token } => [&[BY_DEVICE][..], &port.to_be_bytes(), &token].concat(),
        }
    }

    /// Whether [`REST`](Self::REST) bytes follow this first byte. `None` where it begins no invitation.
    #[must_use]
    pub fn has_rest(first: u8) -> Option<bool> {
        match first {
            BY_STREAM => Some(false),
            BY_DEVICE => Some(true),
            _ => None,
        }
    }

    /// The invitation by a device with these bytes after the first one.
    #[must_use]
    pub fn of_rest(rest: [u8; Self::REST]) -> Self {
        let [high, low, rest @ ..] = rest;
        Self::Device { port: u16::from_be_bytes([high, low]), token: rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_invitation_is_read_as_it_was_written(port: u16, token: Token) {
            let sent = Invitation::Device { port, token };
            let bytes = sent.to_bytes();
            prop_assert_eq!(Invitation::has_rest(bytes[0]), Some(true));
            prop_assert_eq!(Invitation::of_rest(bytes[1..].try_into().unwrap()), sent);
        }
    }

    #[test]
    fn the_first_byte_says_the_way() {
        assert_eq!(Invitation::has_rest(Invitation::Stream.to_bytes()[0]), Some(false));
        assert_eq!(Invitation::has_rest(FALLS_BACK), None);
    }
}
