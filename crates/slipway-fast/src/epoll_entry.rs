//! An entry of a program's epoll instance.

/// An entry of an epoll instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpollEntry {
    /// The instance's descriptor in the program.
    pub epoll: i32,
    /// The events that it waits for.
    pub events: u32,
    /// The data that the program gets with an event.
    pub data: u64,
}

impl EpollEntry {
    /// Bytes of a written entry.
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn write(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.epoll.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.events.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.data.to_ne_bytes());
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let epoll = i32::from_ne_bytes(*bytes.first_chunk()?);
        let events = u32::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
        Some(Self { epoll, events, data: u64::from_ne_bytes(*bytes.get(8..)?.first_chunk()?) })
    }
}
