//! Packets as the model sees them, and the bound of those that wait.

/// Facts about a frame that the model needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The other end, where it has conditions of its own.
    pub peer: Option<PeerIndex>,
    /// Bytes on the wire, Ethernet headers included; those of every packet that a large segment becomes.
    pub bytes: u32,
    /// How many packets it becomes; at least 1.
    pub packets: u32,
}

/// A peer of one link, for as long as the link lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerIndex(pub(crate) u32);

/// The bound of packets that may wait, and their number.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Packets.
    limit: u64,
    /// Bytes: what as many packets of the MTU have.
    limit_bytes: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Ethernet, two VLAN tags, and change.
const HEADERS: u64 = 32;

impl Queue {
    pub(crate) fn set(&mut self, limit: u32, mtu: u32) {
        self.limit = limit.into();
        self.limit_bytes = self.limit.saturating_mul(u64::from(mtu) + HEADERS);
    }

    pub(crate) fn has_room(&self, packet: Packet) -> bool {
        self.packets < self.limit && self.bytes + u64::from(packet.bytes) <= self.limit_bytes
    }

    pub(crate) fn enter(&mut self, packet: Packet) {
        self.packets += u64::from(packet.packets);
        self.bytes += u64::from(packet.bytes);
    }

    pub(crate) fn leave(&mut self, packet: Packet) {
        self.packets = self.packets.saturating_sub(packet.packets.into());
        self.bytes = self.bytes.saturating_sub(packet.bytes.into());
    }
}
