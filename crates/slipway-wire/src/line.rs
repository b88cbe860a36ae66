//! Packets that wait for a rate.

use std::collections::VecDeque;

use crate::packet::Packet;

/// A queue before a transmitter, known by when each of its packets will have been sent. Packets come in the order in which they
/// are sent: one that takes less time on its way waits, on its way, for those before it.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Packets that may wait; `None` is any number.
    room: Option<u32>,
    /// When the last packet came, nanoseconds.
    came: u64,
    /// When they will have been sent, in nanoseconds, and how many packets each is.
    waiting: VecDeque<(u64, u32)>,
    packets: u64,
}

impl Line {
    pub(crate) fn set(&mut self, room: Option<u32>) {
        self.room = room;
    }

    pub(crate) fn clear(&mut self) {
        (self.came, self.packets) = (0, 0);
        self.waiting.clear();
    }

    /// Whether a packet that comes at `from` may wait. A segment that is larger than all the room finds it where nothing
    /// waits: its packets would come one by one.
    pub(crate) fn has_room(&mut self, from: u64, packet: Packet) -> bool {
        self.came = self.came.max(from);
        while let Some((_, gone)) = self.waiting.pop_front_if(|(done, _)| *done <= self.came) {
            self.packets -= u64::from(gone);
        }
        let room = |room: u32| self.packets + u64::from(packet.packets) <= u64::from(room);
        self.packets == 0 || self.room.is_none_or(room)
    }

    /// Takes a packet that will have been sent at `done`.
    pub(crate) fn enter(&mut self, done: u64, packet: Packet) {
        self.packets += u64::from(packet.packets);
        self.waiting.push_back((done, packet.packets));
    }
}
