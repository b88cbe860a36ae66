//! The offer of one side of a connection.

use super::u32_at;

/// Bytes of private data in a request of connection, and in its acceptance and rejection (`ib_cm.h`); 36 bytes of a request are the
/// kernel's own.
pub(crate) const IN_REQUEST: usize = 56;
pub(crate) const IN_REPLY: usize = 196;
pub(crate) const IN_REJECTION: usize = 148;
/// The same for datagrams, whose identifiers are looked up by one request and its reply.
pub(crate) const IN_LOOKUP: usize = 180;
pub(crate) const IN_LOOKED_UP: usize = 136;

/// The offer of one side of a connection (`struct rdma_ucm_conn_param`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Offer {
    pub(crate) queue_pair: u32,
    pub(crate) qkey: u32,
    /// At most 255 bytes.
    pub(crate) private: Vec<u8>,
    pub(crate) shared_receive_queue: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    /// Whether the connection has parameters.
    pub(crate) is_valid: bool,
}

/// Bytes of an offer.
pub(super) const OFFER: usize = 272;

impl Offer {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
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

    pub(super) fn write(&self) -> [u8; OFFER] {
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
    pub(crate) fn seen(&self, room: usize) -> Self {
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
