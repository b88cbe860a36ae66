//! Messages about a connection of `rdma_cm(7)`, between the routers of two hosts and between a router and the gateway: one length,
//! the kind first.

mod line;
mod offer;

use serde::{Deserialize, Serialize};

pub use line::Line;
pub use offer::{IN_LOOKED_UP, IN_LOOKUP, IN_REJECTION, IN_REPLY, IN_REQUEST, OFFER, Offer};

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Bytes of a message.
pub const LENGTH: usize = 1 + 4 + OFFER;

/// The step of a connection that a message tells of. The side that leaves a connection closes the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A client asks.
    Request = 1,
    /// The server's program accepts.
    Accepted = 2,
    /// The client's program has acknowledged that.
    Established = 3,
    /// The server rejects: its program, or nobody listens.
    Rejected = 4,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The step.
    pub step: Step,
    /// The reason of a rejection; 0 for others.
    pub status: i32,
    /// The offer as its receiver's program reads it.
    pub offer: Offer,
}

impl Message {
    /// Its bytes.
    #[must_use]
    pub fn write(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[0] = self.step as u8;
        bytes[1..5].copy_from_slice(&self.status.to_ne_bytes());
        bytes[5..].copy_from_slice(&self.offer.write());
        bytes
    }

    /// Parses a message; none where the bytes are not exactly one.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != LENGTH {
            return None;
        }
        let step = [Step::Request, Step::Accepted, Step::Established, Step::Rejected]
            .into_iter()
            .find(|step| *step as u8 == bytes[0])?;
        Some(Self { step, status: u32_at(bytes, 1)?.cast_signed(), offer: Offer::read(&bytes[5..])? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(mut bytes in proptest::collection::vec(any::<u8>(), LENGTH..=LENGTH), step in 0_u8..6) {
            bytes[0] = step;
            prop_assert_eq!(Message::read(&bytes).is_some(), (1..=4).contains(&step));
            if let Some(message) = Message::read(&bytes) {
                prop_assert_eq!(Message::read(&message.write()), Some(message));
            }
            prop_assert_eq!(Message::read(&bytes[1..]), None);
        }
    }
}
