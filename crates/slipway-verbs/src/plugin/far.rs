//! A peer on another virtual host: a stream in the place of shared memory.
//!
//! The stream carries the records that a ring would: a header of one cache line, and the payload without filling. The last two
//! words of a header say how much of the peer's rings its sender has consumed. So records sent and not consumed are bounded by the
//! length of a ring on both sides, and whoever receives has room for all. The peer's records go into rings of this end's own
//! memory, where the rest of the plug-in looks for them. A peer that exceeds its room, or sends no record, is cut off.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::memory::{Mapping, Piece, copy, receive, send};
use super::ring::{Header, Lie, Place, UNIT, flag, for_each, kind, parts, record};
use crate::layout::{CLOSED, FAILED, NOT_READY, REQUEST_HEAD, REQUESTS, RESPONSE_HEAD, RESPONSES};

/// Bytes that are read at once, at least: many short records take one call.
const INBOX: usize = 4096;
/// Where a header has how much its sender has consumed.
const HEADS: usize = 48;
/// Flags of a record of state.
const IS_NOT_READY: u8 = 1;
const IS_CLOSED: u8 = 2;
/// The sender waits to be told what was consumed of its requests.
const IS_ASKING: u8 = 4;

/// The words of an end that its peer has to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) failed: u32,
    pub(super) is_not_ready: bool,
    pub(super) is_closed: bool,
}

/// A record whose payload is on its way.
#[derive(Debug)]
struct Arriving {
    ring: usize,
    done: usize,
    length: usize,
}

/// The way of a record.
enum Way {
    Ring(usize),
    State,
}

#[derive(Debug)]
pub(super) struct Far {
    stream: OwnedFd,
    /// Bytes for which the kernel had no room yet, from `sent` on.
    backlog: Vec<u8>,
    sent: usize,
    inbox: Box<[u8; INBOX]>,
    /// The part of `inbox` that has not been looked at.
    unread: (usize, usize),
    arriving: Option<Arriving>,
    /// Rings of requests and responses from the peer, and bytes produced there.
    rings: [Place; 2],
    tails: [u64; 2],
    /// Offset of the peer's block.
    theirs: usize,
    told: ([u64; 2], Words),
    /// The peer waits until this end has told that it has consumed so much of the requests.
    awaited: u64,
    /// Where the thread of service waits for this stream, under which number, and for what.
    epoll: (Arc<OwnedFd>, u64),
    interest: EventFlags,
    is_asleep: bool,
}

/// The broker has a copy of the stream, so closing this end neither ends the stream nor takes it out of the set.
impl Drop for Far {
    fn drop(&mut self) {
        let _ = epoll::delete(&*self.epoll.0, &self.stream);
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
    }
}

impl Far {
    /// Takes up a stream, and has the thread of service wait for it.
    pub(super) fn new(
        stream: OwnedFd,
        rings: [Place; 2],
        theirs: usize,
        epoll: (Arc<OwnedFd>, u64),
    ) -> Result<Self, Errno> {
        epoll::add(&*epoll.0, &stream, EventData::new_u64(epoll.1), EventFlags::IN)?;
        Ok(Self {
            stream,
            backlog: Vec::new(),
            sent: 0,
            inbox: Box::new([0; INBOX]),
            unread: (0, 0),
            arriving: None,
            rings,
            tails: [0; 2],
            theirs,
            told: ([0; 2], Words::default()),
            awaited: 0,
            epoll,
            interest: EventFlags::IN,
            is_asleep: true,
        })
    }

    pub(super) fn stream(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The thread of service waits for the peer from now on, or not: the program polls. Gives whether the program did until now.
    pub(super) fn sleep(&mut self, is_asleep: bool) -> bool {
        let was_polled = !std::mem::replace(&mut self.is_asleep, is_asleep);
        self.wait_for();
        was_polled && is_asleep
    }

    /// Whether the program polls, and no thread waits for the peer.
    pub(super) fn is_polled(&self) -> bool {
        !self.is_asleep
    }

    /// Whether the peer waits to be told, and no poll of the program's comes to do that.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_asleep && self.told.0[0] < self.awaited
    }

    /// The same, where so much has been consumed.
    pub(super) fn owes(&self, head: u64) -> bool {
        self.is_awaited() && self.told.0[0] < head
    }

    fn wait_for(&mut self) {
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, self.is_asleep);
        wanted.set(EventFlags::OUT, !self.backlog.is_empty());
        if wanted != self.interest {
            self.interest = wanted;
            // A stream that has ended is in the set no more.
            let _ = epoll::modify(&*self.epoll.0, &self.stream, EventData::new_u64(self.epoll.1), wanted);
        }
    }

    /// Sends a record. Its payload comes from these pieces, from `skip` on.
    pub(super) fn put(&mut self, header: Header, pieces: &[Piece], skip: usize, heads: [u64; 2]) -> Result<(), Errno> {
        let mut bytes = header.to_bytes();
        for (place, head) in bytes[HEADS..].chunks_exact_mut(8).zip(heads) {
            place.copy_from_slice(&head.to_le_bytes());
        }
        self.told.0 = heads;
        let length = header.length as usize;
        let mut all = Vec::with_capacity(pieces.len() + 1);
        all.push(Piece { at: bytes.as_mut_ptr() as usize, length: UNIT });
        for_each(pieces, skip, length, |piece| all.push(piece));
        let whole = UNIT + length;
        let done = if self.backlog.is_empty() { send(self.stream(), all.iter().copied())?.unwrap_or(0) } else { 0 };
        if done < whole {
            let before = self.backlog.len();
            self.backlog.resize(before + whole - done, 0);
            let mut to = self.backlog[before..].as_mut_ptr() as usize;
            for_each(&all, done, whole - done, |piece| {
                copy(piece.at, to, piece.length);
                to += piece.length;
            });
            self.wait_for();
        }
        Ok(())
    }

    /// Asks the peer to tell what it has consumed, where no record of a request says that this end waits for it.
    pub(super) fn ask(&mut self, heads: [u64; 2], words: Words) -> Result<(), Errno> {
        self.put_state(heads, words, IS_ASKING)
    }

    /// Tells the peer how this end is, where that is news. With `now`, also where only counters are.
    pub(super) fn tell(&mut self, heads: [u64; 2], words: Words, now: bool) -> Result<(), Errno> {
        let untold = |ring: usize| heads[ring].saturating_sub(self.told.0[ring]);
        let is_much = untold(0) * 4 > REQUESTS as u64 || untold(1) * 4 > RESPONSES as u64;
        let is_news = (now || is_much) && heads != self.told.0;
        if words == self.told.1 && !is_news {
            return Ok(());
        }
        self.put_state(heads, words, 0)
    }

    fn put_state(&mut self, heads: [u64; 2], words: Words, mut flags: u8) -> Result<(), Errno> {
        self.told.1 = words;
        flags |= if words.is_not_ready { IS_NOT_READY } else { 0 };
        flags |= if words.is_closed { IS_CLOSED } else { 0 };
        let header = Header { kind: kind::STATE, flags, immediate: words.failed, ..Header::default() };
        self.put(header, &[], 0, heads)
    }

    /// Whether the kernel has all that was sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Sends what waits, as far as there is room.
    fn flush(&mut self) -> Result<(), Errno> {
        while self.sent < self.backlog.len() {
            let rest = &mut self.backlog[self.sent..];
            let piece = Piece { at: rest.as_mut_ptr() as usize, length: rest.len() };
            match send(self.stream(), [piece].into_iter())? {
                Some(done) => self.sent += done,
                None => return Ok(()),
            }
        }
        self.backlog.clear();
        self.sent = 0;
        self.wait_for();
        Ok(())
    }

    /// Takes what has come into the rings of `memory`, of which so much is consumed. Gives whether anything came. An error is the
    /// end of the stream.
    pub(super) fn pull(&mut self, memory: &Mapping, heads: [u64; 2]) -> Result<bool, Errno> {
        if !self.backlog.is_empty() {
            self.flush()?;
        }
        let mut has_come = false;
        loop {
            self.take_unread(memory, heads).map_err(|Lie| Errno::PROTO)?;
            let (asked, got) = match self.receive(memory)? {
                (_, None) => return Ok(has_come),
                (_, Some(0)) => return Err(Errno::PIPE),
                (asked, Some(got)) => (asked, got),
            };
            has_come = true;
            if got < asked {
                // The stream was emptied: no call more to learn that.
                self.take_unread(memory, heads).map_err(|Lie| Errno::PROTO)?;
                return Ok(true);
            }
        }
    }

    /// Receives once: the rest of the arriving payload, and what fits into the inbox.
    fn receive(&mut self, memory: &Mapping) -> Result<(usize, Option<usize>), Errno> {
        let (from, to) = self.unread;
        self.inbox.copy_within(from..to, 0);
        self.unread = (0, to - from);
        let room = &mut self.inbox[to - from..];
        let inbox = Piece { at: room.as_mut_ptr() as usize, length: room.len() };
        let mut wanted = [Piece { at: 0, length: 0 }; 3];
        let mut payload = 0;
        if let Some(arriving) = &self.arriving {
            let at = self.tails[arriving.ring] + (UNIT + arriving.done) as u64;
            payload = arriving.length - arriving.done;
            for (place, part) in wanted.iter_mut().zip(parts(memory, self.rings[arriving.ring], at, payload)) {
                *place = part.0;
            }
        }
        wanted[2] = inbox;
        let got = receive(self.stream.as_fd(), wanted.into_iter())?;
        if let Some(got) = got {
            if let Some(arriving) = &mut self.arriving {
                arriving.done += got.min(payload);
            }
            self.unread.1 += got.saturating_sub(payload);
        }
        Ok((payload + inbox.length, got))
    }

    /// Looks at what is in the inbox, and publishes each record that is whole.
    fn take_unread(&mut self, memory: &Mapping, heads: [u64; 2]) -> Result<(), Lie> {
        loop {
            if let Some(arriving) = &mut self.arriving {
                let (from, to) = self.unread;
                let part = (arriving.length - arriving.done).min(to - from);
                let at = self.tails[arriving.ring] + (UNIT + arriving.done) as u64;
                let source = self.inbox[from..].as_mut_ptr() as usize;
                for (place, before) in parts(memory, self.rings[arriving.ring], at, part) {
                    copy(source + before, place.at, place.length);
                }
                arriving.done += part;
                self.unread.0 += part;
                if arriving.done < arriving.length {
                    return Ok(());
                }
                self.publish(memory);
            }
            let (from, to) = self.unread;
            let Some(bytes) = self.inbox[from..to].first_chunk::<UNIT>().copied() else { return Ok(()) };
            self.unread.0 += UNIT;
            self.begin(memory, &bytes, heads)?;
        }
    }

    fn publish(&mut self, memory: &Mapping) {
        if let Some(Arriving { ring, length, .. }) = self.arriving.take() {
            self.tails[ring] += record(length);
            memory.word64(self.rings[ring].tail).store(self.tails[ring], Ordering::Release);
        }
    }

    /// Looks at a header: whether there is room for its record, and what it says of the peer.
    fn begin(&mut self, memory: &Mapping, bytes: &[u8; UNIT], heads: [u64; 2]) -> Result<(), Lie> {
        let header = Header::from_bytes(bytes);
        let way = match header.kind {
            kind::SEND..=kind::SWAP => Way::Ring(0),
            kind::DATA => Way::Ring(1),
            kind::STATE if header.length == 0 => Way::State,
            _ => return Err(Lie),
        };
        for (word, place) in [REQUEST_HEAD, RESPONSE_HEAD].into_iter().zip(bytes[HEADS..].chunks_exact(8)) {
            let head = place.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            // An answer to a read says by itself that the request was consumed, so a counter may be behind.
            memory.word64(self.theirs + word).fetch_max(head, Ordering::AcqRel);
        }
        let ring = match way {
            Way::Ring(ring) => ring,
            Way::State => {
                let set = |word: usize, value: u32| memory.word32(self.theirs + word).store(value, Ordering::Release);
                set(FAILED, header.immediate);
                set(NOT_READY, (header.flags & IS_NOT_READY != 0).into());
                set(CLOSED, (header.flags & IS_CLOSED != 0).into());
                if header.flags & IS_ASKING != 0 {
                    self.awaited = self.tails[0];
                }
                return Ok(());
            }
        };
        let length = header.length as usize;
        let used = self.tails[ring].checked_sub(heads[ring]).ok_or(Lie)?;
        if used + record(length) > self.rings[ring].length as u64 {
            return Err(Lie);
        }
        for (place, before) in parts(memory, self.rings[ring], self.tails[ring], UNIT) {
            copy(bytes.as_ptr() as usize + before, place.at, place.length);
        }
        if ring == 0 && header.flags & flag::WAITS != 0 {
            self.awaited = self.tails[0] + record(length);
        }
        self.arriving = Some(Arriving { ring, done: 0, length });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
