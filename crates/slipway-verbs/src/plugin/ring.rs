//! A ring of records in shared memory, one producer and one consumer.
//!
//! A record is a header of one cache line and its payload, filled up to a cache line. Counters only grow. The other end's
//! counter is copied once and bounded, so a lie ends the connection and reaches no memory outside of the ring.

use std::sync::atomic::Ordering;

use super::memory::{Mapping, Piece, copy, load, store};

/// Bytes of a header, and the unit of a record.
pub(super) const UNIT: usize = 64;

/// The other end has lied about a counter or a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lie;

/// A record's header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// Kind of the record, one of [`kind`].
    pub(super) kind: u8,
    /// See [`flag`].
    pub(super) flags: u8,
    /// Immediate data, in the program's byte order.
    pub(super) immediate: u32,
    /// Bytes of payload in this record.
    pub(super) length: u32,
    /// Bytes of the whole message.
    pub(super) total: u32,
    /// The remote key, or a datagram's.
    pub(super) key: u32,
    /// Address at the peer, as its region names it.
    pub(super) address: u64,
    /// Operands of atomic operations.
    pub(super) operands: [u64; 2],
}

/// Kinds of records.
pub(super) mod kind {
    pub(crate) const SEND: u8 = 1;
    pub(crate) const WRITE: u8 = 2;
    /// The immediate data of a write, which has been carried out.
    pub(crate) const WRITTEN: u8 = 3;
    pub(crate) const READ: u8 = 4;
    pub(crate) const ADD: u8 = 5;
    pub(crate) const SWAP: u8 = 6;
    /// A part of the answer to a read or an atomic operation.
    pub(crate) const DATA: u8 = 7;
    /// The state of an end on another host: no ring has it.
    pub(crate) const STATE: u8 = 8;
}

/// Flags of records.
pub(super) mod flag {
    pub(crate) const FIRST: u8 = 1;
    pub(crate) const LAST: u8 = 2;
    pub(crate) const IMMEDIATE: u8 = 4;
    pub(crate) const SOLICITED: u8 = 8;
    /// The sender, on another host, waits until the record is consumed.
    pub(crate) const WAITS: u8 = 16;
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; UNIT] {
        let words = [
            u64::from(self.kind) | u64::from(self.flags) << 8 | u64::from(self.immediate) << 32,
            u64::from(self.length) | u64::from(self.total) << 32,
            u64::from(self.key),
            self.address,
            self.operands[0],
            self.operands[1],
            0,
            0,
        ];
        let mut bytes = [0; UNIT];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[allow(clippy::cast_possible_truncation)] // Each field is cut out of its word.
    pub(super) fn from_bytes(bytes: &[u8; UNIT]) -> Self {
        let mut words = [0; 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = place.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        Self {
            kind: words[0] as u8,
            flags: (words[0] >> 8) as u8,
            immediate: (words[0] >> 32) as u32,
            length: words[1] as u32,
            total: (words[1] >> 32) as u32,
            key: words[2] as u32,
            address: words[3],
            operands: [words[4], words[5]],
        }
    }
}

/// Where a ring lies: its bytes, and both counters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) length: usize,
    pub(super) tail: usize,
    pub(super) head: usize,
}

/// The producing end.
#[derive(Debug)]
pub(super) struct Producer {
    place: Place,
    /// Bytes produced so far.
    pub(super) tail: u64,
    /// The consumer's counter, when it was last looked at.
    seen: u64,
}

impl Producer {
    pub(super) fn new(place: Place) -> Self {
        Self { place, tail: 0, seen: 0 }
    }

    /// Counts a record that went another way than through the ring.
    pub(super) fn count(&mut self, length: usize) {
        self.tail += record(length);
    }

    /// How many bytes the consumer had consumed at the last look.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// How many bytes the consumer has consumed.
    pub(super) fn consumed(&mut self, memory: &Mapping) -> Result<u64, Lie> {
        let head = memory.word64(self.place.head).load(Ordering::Acquire);
        // It may neither go back nor pass the tail.
        if head < self.seen || head > self.tail {
            return Err(Lie);
        }
        self.seen = head;
        Ok(head)
    }

    /// How many bytes of payload a record may have now; none where not even a header fits.
    pub(super) fn room(&mut self, memory: &Mapping) -> Result<Option<usize>, Lie> {
        let used = |seen: u64, tail: u64| usize::try_from(tail - seen).unwrap_or(usize::MAX);
        // The other end's cache line is looked at only where the last look does not suffice.
        if used(self.seen, self.tail) * 2 > self.place.length {
            self.consumed(memory)?;
        }
        let free = self.place.length.saturating_sub(used(self.seen, self.tail));
        Ok(free.checked_sub(UNIT))
    }

    /// Writes a record whose payload comes from these pieces, from `skip` on. The caller has asked for [`room`](Self::room).
    pub(super) fn put(&mut self, memory: &Mapping, header: Header, pieces: &[Piece], skip: usize) {
        let length = header.length as usize;
        self.write(memory, self.tail, &header.to_bytes());
        let mut at = self.tail + UNIT as u64;
        for_each(pieces, skip, length, |piece| {
            for there in self.parts(memory, at, piece.length) {
                copy(piece.at + there.1, there.0.at, there.0.length);
            }
            at += piece.length as u64;
        });
        self.tail += record(length);
        memory.word64(self.place.tail).store(self.tail, Ordering::Release);
    }

    fn write(&self, memory: &Mapping, at: u64, bytes: &[u8]) {
        if let Some(there) = memory.piece(self.place.start + offset(at, self.place.length), bytes.len()) {
            store(bytes, there);
        }
    }

    fn parts(&self, memory: &Mapping, at: u64, length: usize) -> impl Iterator<Item = (Piece, usize)> {
        parts(memory, self.place, at, length)
    }
}

/// The consuming end.
#[derive(Debug)]
pub(super) struct Consumer {
    place: Place,
    /// Bytes consumed so far.
    pub(super) head: u64,
    tail: u64,
}

impl Consumer {
    pub(super) fn new(place: Place) -> Self {
        Self { place, head: 0, tail: 0 }
    }

    /// Whether nothing has come since the last record was consumed.
    pub(super) fn is_empty(&self, memory: &Mapping) -> bool {
        self.tail == self.head && memory.word64(self.place.tail).load(Ordering::Acquire) == self.tail
    }

    /// The header of the next record; none where the ring is empty.
    pub(super) fn next(&mut self, memory: &Mapping) -> Result<Option<Header>, Lie> {
        if self.tail == self.head {
            let tail = memory.word64(self.place.tail).load(Ordering::Acquire);
            if tail < self.tail || tail - self.head > self.place.length as u64 || !tail.is_multiple_of(UNIT as u64) {
                return Err(Lie);
            }
            self.tail = tail;
        }
        if self.tail == self.head {
            return Ok(None);
        }
        let at = self.place.start + offset(self.head, self.place.length);
        let header = Header::from_bytes(&load(memory.piece(at, UNIT).ok_or(Lie)?));
        let record = UNIT as u64 + u64::from(header.length).next_multiple_of(UNIT as u64);
        if record > self.tail - self.head {
            return Err(Lie);
        }
        Ok(Some(header))
    }

    /// Copies the payload of the record with this header into pieces, from `skip` on. They may be shorter: the rest is lost.
    pub(super) fn take(&self, memory: &Mapping, header: &Header, pieces: &[Piece], skip: usize) {
        let mut at = self.head + UNIT as u64;
        for_each(pieces, skip, header.length as usize, |piece| {
            for there in parts(memory, self.place, at, piece.length) {
                copy(there.0.at, piece.at + there.1, there.0.length);
            }
            at += piece.length as u64;
        });
    }

    /// The same into one place, its end last: see [`super::memory::store_last`].
    pub(super) fn take_in_order(&self, memory: &Mapping, header: &Header, to: Piece) {
        let length = (header.length as usize).min(to.length);
        if length == 0 {
            return;
        }
        let tail = if length >= 8 { 8 } else { length };
        let mut last = [0_u8; 8];
        let body = Piece { at: to.at, length: length - tail };
        let end = Piece { at: last.as_mut_ptr() as usize, length: tail };
        self.take(memory, header, &[body, end], 0);
        super::memory::store_last(end.at, to.at + length - tail, tail);
    }

    /// Goes past the record with this header.
    pub(super) fn pass(&mut self, memory: &Mapping, header: &Header) {
        self.head += UNIT as u64 + u64::from(header.length).next_multiple_of(UNIT as u64);
        memory.word64(self.place.head).store(self.head, Ordering::Release);
    }
}

/// Bytes of a record with so much payload.
pub(super) fn record(length: usize) -> u64 {
    (UNIT + length.next_multiple_of(UNIT)) as u64
}

/// A counter as an offset into its ring.
fn offset(at: u64, length: usize) -> usize {
    usize::try_from(at % length as u64).unwrap_or(0)
}

/// The one or two parts of a ring that hold `length` bytes from `at` on, each with how many bytes come before it.
pub(super) fn parts(memory: &Mapping, place: Place, at: u64, length: usize) -> impl Iterator<Item = (Piece, usize)> {
    let from = offset(at, place.length);
    let first = length.min(place.length - from);
    let parts = [(from, first, 0), (0, (length - first).min(place.length), first)];
    let parts =
        parts.map(|(from, length, before)| memory.piece(place.start + from, length).map(|piece| (piece, before)));
    parts.into_iter().flatten().filter(|(piece, _)| piece.length > 0)
}

/// Visits what lies from `skip` on in pieces, `length` bytes in all.
pub(super) fn for_each(pieces: &[Piece], mut skip: usize, mut length: usize, mut visit: impl FnMut(Piece)) {
    for piece in pieces {
        if skip >= piece.length {
            skip -= piece.length;
            continue;
        }
        let part = (piece.length - skip).min(length);
        if part == 0 {
            return;
        }
        visit(Piece { at: piece.at + skip, length: part });
        skip = 0;
        length -= part;
    }
}
