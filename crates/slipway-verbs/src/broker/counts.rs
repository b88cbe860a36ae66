//! Counts of traffic: words that a program's plug-in writes, and the broker reads.
//!
//! Each program has a page of its own, so a node can falsify its own word alone, and never its peer's. The broker reads by
//! `pread(2)`, copies what it reads, and believes nothing.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite};
use serde::{Deserialize, Serialize};

use crate::layout::{COUNTS, SIZED, count};

/// Traffic of one end of a connection, as its own node says. Reads and writes are those that this end asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Messages sent.
    pub sends: u64,
    /// Bytes of these messages.
    pub send_bytes: u64,
    /// Writes into the peer's memory.
    pub writes: u64,
    /// Bytes written there.
    pub write_bytes: u64,
    /// Reads of the peer's memory.
    pub reads: u64,
    /// Bytes read there.
    pub read_bytes: u64,
    /// Atomic operations on the peer's memory.
    pub atomics: u64,
    /// Messages received, among them writes with immediate data.
    pub receives: u64,
    /// Bytes of these messages.
    pub receive_bytes: u64,
}

impl Traffic {
    fn read(bytes: &[u8; COUNTS]) -> Self {
        let word = |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |it| u64::from_ne_bytes(*it));
        Self {
            sends: word(count::SENDS),
            send_bytes: word(count::SENDS + 8),
            writes: word(count::WRITES),
            write_bytes: word(count::WRITES + 8),
            reads: word(count::READS),
            read_bytes: word(count::READS + 8),
            atomics: word(count::ATOMICS),
            receives: word(count::RECEIVES),
            receive_bytes: word(count::RECEIVES + 8),
        }
    }

    /// Adds other traffic. A hostile node's numbers may be any: sums end at the greatest number.
    pub fn add(&mut self, other: &Self) {
        let both = [
            (&mut self.sends, other.sends),
            (&mut self.send_bytes, other.send_bytes),
            (&mut self.writes, other.writes),
            (&mut self.write_bytes, other.write_bytes),
            (&mut self.reads, other.reads),
            (&mut self.read_bytes, other.read_bytes),
            (&mut self.atomics, other.atomics),
            (&mut self.receives, other.receives),
            (&mut self.receive_bytes, other.receive_bytes),
        ];
        for (sum, more) in both {
            *sum = sum.saturating_add(more);
        }
    }

    /// Each kind of operation that this end asked for: its word, how many there were, and their bytes.
    #[must_use]
    pub fn operations(&self) -> [(&'static str, u64, u64); 4] {
        [
            ("send", self.sends, self.send_bytes),
            ("write", self.writes, self.write_bytes),
            ("read", self.reads, self.read_bytes),
            ("atomic", self.atomics, self.atomics.saturating_mul(8)),
        ]
    }
}

/// The page of a program, with a slot for each end of a connection.
pub(super) struct Page {
    file: OwnedFd,
    slots: u32,
    /// Slots below this number were given out before.
    fresh: u32,
    /// Slots that ended, the oldest first.
    free: VecDeque<u32>,
}

impl Page {
    pub(super) fn new(slots: usize) -> Result<Self, Errno> {
        let file = memfd_create("slipway-verbs-counts", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, (slots * COUNTS) as u64)?;
        fcntl_add_seals(&file, SIZED | SealFlags::SEAL)?;
        let slots = u32::try_from(slots).map_err(|_| Errno::INVAL)?;
        Ok(Self { file, slots, fresh: 0, free: VecDeque::new() })
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Takes a slot, which counts from 0.
    pub(super) fn take(&mut self) -> Result<u32, Errno> {
        let slot = if self.fresh < self.slots {
            self.fresh += 1;
            self.fresh - 1
        } else {
            self.free.pop_front().ok_or(Errno::NOBUFS)?
        };
        pwrite(&self.file, &[0; COUNTS], offset(slot))?;
        Ok(slot)
    }

    pub(super) fn give_back(&mut self, slot: u32) {
        self.free.push_back(slot);
    }

    pub(super) fn read(&self, slot: u32) -> Traffic {
        let mut bytes = [0; COUNTS];
        match pread(&self.file, &mut bytes, offset(slot)) {
            Ok(COUNTS) => Traffic::read(&bytes),
            _ => Traffic::default(),
        }
    }
}

fn offset(slot: u32) -> u64 {
    u64::from(slot) * COUNTS as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_count_from_zero_and_are_used_again() {
        let mut page = Page::new(2).unwrap();
        let (one, other) = (page.take().unwrap(), page.take().unwrap());
        assert_eq!((one, other, page.take()), (0, 1, Err(Errno::NOBUFS)));
        pwrite(page.file(), &[255; COUNTS], offset(one)).unwrap();
        let mut all = page.read(one);
        assert_eq!((all.sends, page.read(other)), (u64::MAX, Traffic::default()));
        all.add(&page.read(one));
        assert_eq!(all.sends, u64::MAX, "what a hostile node writes is a number, and no more");
        page.give_back(one);
        assert_eq!(page.take().map(|slot| page.read(slot)), Ok(Traffic::default()));
    }
}
