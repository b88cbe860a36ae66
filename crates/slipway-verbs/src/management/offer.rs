//! The offer of one side of a connection.

use serde::{Deserialize, Serialize};

use super::u32_at;

/// Bytes of private data in a request of connection (`ib_cm.h`); 36 more are the kernel's own.
pub const IN_REQUEST: usize = 56;
/// Bytes of private data in an acceptance of a connection.
pub const IN_REPLY: usize = 196;
/// Bytes of private data in a rejection of a connection.
pub const IN_REJECTION: usize = 148;
/// Bytes of private data in a request for datagrams, whose identifiers are looked up by one request and its reply.
pub const IN_LOOKUP: usize = 180;
/// Bytes of private data in the reply to that.
pub const IN_LOOKED_UP: usize = 136;

/// The offer of one side of a connection (`struct rdma_ucm_conn_param`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Offer {
    /// The side's queue pair.
    pub queue_pair: u32,
    /// A datagram queue pair's key.
    pub qkey: u32,
    /// At most 255 bytes.
    pub private: Vec<u8>,
    /// Whether receives come from a shared queue.
    pub shared_receive_queue: u8,
    /// Most reads and atomic operations of the peer's at once.
    pub responder_resources: u8,
    /// Most of this side's.
    pub initiator_depth: u8,
    /// Whether the device controls the flow.
    pub flow_control: u8,
    /// Retries of a request.
    pub retry_count: u8,
    /// Retries where the peer has no receive request; 7: for ever.
    pub rnr_retry_count: u8,
    /// Whether the connection has parameters.
    pub is_valid: bool,
}

/// Bytes of an offer.
pub const OFFER: usize = 272;

impl Offer {
    /// Parses an offer; none where bytes are missing.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let rest: [u8; 8] = *bytes.get(264..)?.first_chunk()?;
        let [length, shared_receive_queue, responder_resources, initiator_depth, ..] = rest;
        let [.., flow_control, retry_count, rnr_retry_count, valid] = rest;
        Some(Self {
            queue_pair: u32_at(bytes, 0)?,
            qkey: u32_at(bytes, 4)?,
            private: bytes.get(8..8 + usize::from(length))?.to_vec(),
            shared_receive_queue,
            responder_resources,
            initiator_depth,
            flow_control,
            retry_count,
            rnr_retry_count,
            is_valid: valid != 0,
        })
    }

    /// Its bytes.
    #[must_use]
    pub fn write(&self) -> [u8; OFFER] {
        let mut bytes = [0; OFFER];
        bytes[..4].copy_from_slice(&self.queue_pair.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.qkey.to_ne_bytes());
        let private = &self.private[..self.private.len().min(255)];
        bytes[8..8 + private.len()].copy_from_slice(private);
        let length = u8::try_from(private.len()).unwrap_or(u8::MAX);
        bytes[264..272].copy_from_slice(&[
            length,
            self.shared_receive_queue,
            self.responder_resources,
            self.initiator_depth,
            self.flow_control,
            self.retry_count,
            self.rnr_retry_count,
            u8::from(self.is_valid),
        ]);
        bytes
    }

    /// This offer as the other side reads it. The resources of one side are the depth of the other. Private data fill `room`
    /// bytes, with zeros behind them.
    #[must_use]
    pub fn seen(&self, room: usize) -> Self {
        let mut seen = self.clone();
        seen.private.resize(room, 0);
        (seen.responder_resources, seen.initiator_depth) = (self.initiator_depth, self.responder_resources);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_read_as_it_was_written_and_the_other_side_sees_it_turned() {
        let offer = Offer {
            queue_pair: 7,
            private: vec![1, 2],
            responder_resources: 3,
            initiator_depth: 4,
            ..Offer::default()
        };
        assert_eq!(Offer::read(&offer.write()), Some(offer.clone()));
        let seen = offer.seen(IN_REQUEST);
        assert_eq!((seen.responder_resources, seen.initiator_depth, seen.private.len()), (4, 3, 56));
    }
}
