//! An end of a connection: the memory that both ends share, and the socket that wakes the other.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::{fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

use super::far::{Far, Words};
use super::memory::{Mapping, Piece};
use super::ring::{Consumer, Header, Lie, Place, Producer};
use super::tally::Tally;
use crate::layout::{
    BELL, BLOCK, CLOSED, EPOCH, FAILED, MEMORY, NOT_READY, REQUEST_HEAD, REQUEST_TAIL, REQUESTS, RESPONSE_HEAD,
    RESPONSE_TAIL, RESPONSES, RINGS, SIZED, WANTS_HEAD,
};
use crate::wire::{End, Gid, Region};

/// A region of the peer's.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) region: Region,
    pub(super) mapping: Option<Mapping>,
}

impl Import {
    /// The mapped place of these bytes; none where the owner has to be asked.
    pub(super) fn place(&self, address: u64, length: usize) -> Option<Piece> {
        let shared = self.region.shared?;
        let offset = usize::try_from(address.checked_sub(shared.start)?).ok()?;
        self.mapping.as_ref()?.piece(offset, length)
    }
}

/// A connection as the broker hands it out.
#[derive(Debug)]
pub(super) struct Joint {
    /// The memory, and the socket that wakes the peer; or a stream to a peer on another host.
    pub(super) fds: Vec<OwnedFd>,
    pub(super) end: End,
    /// The slot for this end's counts.
    pub(super) counts: u32,
    pub(super) peer: (Gid, u32),
}

/// The way to the peer, beside the memory.
#[derive(Debug)]
enum Link {
    /// A peer on this host has the memory too, and the bell wakes either end. A queue pair that is joined with itself rings the
    /// other end of its own bell.
    Near { bell: OwnedFd, own: Option<OwnedFd> },
    /// A peer on another host: the memory is this end's alone.
    Far(Box<Far>),
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) memory: Mapping,
    link: Link,
    /// The broker's word for this end.
    pub(super) end: End,
    mine: usize,
    theirs: usize,
    pub(super) peer: (Gid, u32),
    pub(super) tally: Tally,
    pub(super) requests: Producer,
    pub(super) responses: Producer,
    pub(super) their_requests: Consumer,
    pub(super) their_responses: Consumer,
    /// Regions of the peer's by key, for the epoch that they were asked for in.
    pub(super) imports: HashMap<u32, Import>,
    epoch: u32,
    /// Counter of requests after the last write that went by the ring: a direct one may not overtake it.
    pub(super) last_ring_write: u64,
    /// The peer's socket is closed.
    pub(super) is_cut: bool,
    /// The peer does not hear this end now, and may later.
    pub(super) is_silent: bool,
}

impl Connection {
    /// Takes up an end. The memory is the broker's, and is looked at all the same. The thread of service waits for the peer in this
    /// set, under this number.
    pub(super) fn new(joint: Joint, counts: Option<&Arc<Mapping>>, epoll: (Arc<OwnedFd>, u64)) -> Result<Self, Errno> {
        let Joint { fds, end, counts: slot, peer } = joint;
        let tally = Tally::new(counts, slot);
        let mut fds = fds.into_iter();
        let (memory, bell, own) = match (end, fds.next(), fds.next()) {
            (End::Far, Some(stream), None) => {
                let far = |rings, theirs| Ok(Link::Far(Box::new(Far::new(stream, rings, theirs, epoll)?)));
                return Self::at(Mapping::private(MEMORY)?, end, (peer, tally), far);
            }
            (End::First | End::Second, Some(memory), Some(bell)) => (memory, bell, None),
            // Nobody has the other end of the broker's bell.
            (End::Both, Some(memory), Some(_)) => {
                let (bell, own) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
                (memory, bell, Some(own))
            }
            _ => return Err(Errno::PROTO),
        };
        let size = usize::try_from(fstat(&memory)?.st_size).map_err(|_| Errno::INVAL)?;
        if size != MEMORY || !fcntl_get_seals(&memory)?.contains(SIZED) {
            return Err(Errno::INVAL);
        }
        let memory = Mapping::new(&memory, MEMORY, true)?;
        epoll::add(&*epoll.0, &bell, EventData::new_u64(epoll.1), EventFlags::IN)?;
        Self::at(memory, end, (peer, tally), |_, _| Ok(Link::Near { bell, own }))
    }

    fn at(
        memory: Mapping,
        end: End,
        (peer, tally): ((Gid, u32), Tally),
        link: impl FnOnce([Place; 2], usize) -> Result<Link, Errno>,
    ) -> Result<Self, Errno> {
        let (mine, theirs) = match end {
            End::First | End::Far => (0, 1),
            End::Second => (1, 0),
            End::Both => (0, 0),
        };
        let ring = |base: usize, length: usize, producer: usize, consumer: usize, tail: usize, head: usize| Place {
            start: base + producer * length,
            length,
            tail: producer * BLOCK + tail,
            head: consumer * BLOCK + head,
        };
        let requests = |from, to| ring(RINGS, REQUESTS, from, to, REQUEST_TAIL, REQUEST_HEAD);
        let responses = |from, to| ring(RINGS + 2 * REQUESTS, RESPONSES, from, to, RESPONSE_TAIL, RESPONSE_HEAD);
        let link = link([requests(theirs, mine), responses(theirs, mine)], theirs * BLOCK)?;
        let this = Self {
            link,
            end,
            requests: Producer::new(requests(mine, theirs)),
            responses: Producer::new(responses(mine, theirs)),
            their_requests: Consumer::new(requests(theirs, mine)),
            their_responses: Consumer::new(responses(theirs, mine)),
            mine: mine * BLOCK,
            theirs: theirs * BLOCK,
            imports: HashMap::new(),
            epoch: 0,
            last_ring_write: 0,
            is_cut: false,
            is_silent: false,
            memory,
            peer,
            tally,
        };
        Ok(this)
    }

    /// Sets a word of this end's own.
    pub(super) fn set(&self, word: usize, value: u32) -> bool {
        let word = self.memory.word32(self.mine + word);
        let is_news = word.load(Ordering::Relaxed) != value;
        if is_news {
            word.store(value, Ordering::Release);
        }
        is_news
    }

    fn mine(&self, word: usize) -> u32 {
        self.memory.word32(self.mine + word).load(Ordering::Relaxed)
    }

    /// Reads a word of the peer's.
    pub(super) fn theirs(&self, word: usize) -> u32 {
        self.memory.word32(self.theirs + word).load(Ordering::Acquire)
    }

    /// Whether the peer's queue pair has ended, or is out of reach.
    pub(super) fn is_closed(&self) -> bool {
        self.is_cut || self.is_silent || self.theirs(CLOSED) != 0
    }

    /// Whether the peer, on this host, has put nothing into its rings that this end has not consumed.
    pub(super) fn is_quiet(&self) -> bool {
        !self.is_far() && self.their_requests.is_empty(&self.memory) && self.their_responses.is_empty(&self.memory)
    }

    /// Asks to be rung from now on, or not. The caller looks at the rings once more after it has asked.
    pub(super) fn sleep(&mut self, is_asleep: bool) {
        if let Link::Far(far) = &mut self.link {
            if far.sleep(is_asleep) {
                self.tell(true);
            }
            return;
        }
        self.set(BELL, is_asleep.into());
        fence(Ordering::SeqCst);
    }

    /// Wakes the peer where it sleeps, after this end has published something.
    pub(super) fn ring(&mut self) {
        let Link::Near { bell: socket, own } = &self.link else { return self.tell(false) };
        // Publishing, and then reading whether the peer sleeps: without the fence the processor may swap both, and the peer
        // sleeps on with work in its ring.
        fence(Ordering::SeqCst);
        let bell = self.memory.word32(self.theirs + BELL);
        if bell.load(Ordering::Relaxed) != 0 && bell.swap(0, Ordering::AcqRel) != 0 {
            // A full socket has woken the peer already. A flag of the call, since a peer may change the socket's own.
            let socket = own.as_ref().unwrap_or(socket);
            let _ = rustix::net::send(socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Has the peer ring once it has consumed more, or not. True where it has consumed more meanwhile, and may not have rung.
    pub(super) fn want_head(&mut self, is_wanted: bool) -> Result<bool, Lie> {
        let is_news = self.set(WANTS_HEAD, is_wanted.into());
        if !is_wanted || !is_news {
            return Ok(false);
        }
        // The wish reaches memory before this end looks once more: without the fence the processor may swap both.
        fence(Ordering::SeqCst);
        let before = self.requests.seen();
        Ok(self.requests.consumed(&self.memory)? > before)
    }

    /// Whether a request of so many bytes fits into the ring.
    pub(super) fn has_room(&mut self, length: usize) -> bool {
        self.requests.room(&self.memory).is_ok_and(|room| room.is_some_and(|it| it >= length))
    }

    /// Wakes the peer where it waits for its requests to be consumed.
    pub(super) fn ring_for_head(&mut self) {
        if let Link::Far(far) = &self.link {
            // A program that polls may send something soon, which tells it too.
            let now = far.is_awaited();
            return self.tell(now);
        }
        fence(Ordering::SeqCst);
        if self.theirs(WANTS_HEAD) != 0 {
            self.ring();
        }
    }

    /// Takes wake-ups from the socket, so many at most. Notes that the peer has closed it.
    pub(super) fn silence(&mut self, most: u32) {
        let Link::Near { bell, .. } = &self.link else { return self.pull() };
        let mut byte = [0; 8];
        // A peer that rings on and on is heard at the next turn.
        for _ in 0..most {
            match rustix::net::recv(bell, &mut byte, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return,
                Ok((_, 1..)) | Err(Errno::INTR) => {}
                Ok((_, 0)) | Err(_) => self.is_cut = true,
            }
            if self.is_cut {
                return;
            }
        }
    }

    pub(super) fn bell(&self) -> impl AsFd + '_ {
        match &self.link {
            Link::Near { bell, .. } => bell.as_fd(),
            Link::Far(far) => far.stream(),
        }
    }

    pub(super) fn is_far(&self) -> bool {
        matches!(self.link, Link::Far(_))
    }

    /// Whether a peer on another host waits to be told that a request was consumed.
    pub(super) fn owes(&self) -> bool {
        matches!(&self.link, Link::Far(far) if far.owes(self.their_requests.head))
    }

    /// Takes what a peer on another host has sent. It is in the rings then.
    pub(super) fn pull(&mut self) {
        if let Link::Far(far) = &mut self.link
            && !self.is_cut
        {
            match far.pull(&self.memory, [self.their_requests.head, self.their_responses.head]) {
                Ok(true) => {}
                // Nothing more comes at once, so there is time to say what was consumed.
                Ok(false) => {
                    let now = far.is_polled();
                    self.tell(now);
                }
                Err(_) => self.is_cut = true,
            }
        }
    }

    /// Tells a peer on another host what is news of this end.
    fn tell(&mut self, now: bool) {
        let (heads, words) = self.account();
        if let Link::Far(far) = &mut self.link
            && !self.is_cut
        {
            self.is_cut = far.tell(heads, words, now).is_err();
        }
    }

    /// Asks a peer on another host what it has consumed: a request that needs no record waits for those before it.
    pub(super) fn ask_for_head(&mut self) {
        let (heads, words) = self.account();
        if let Link::Far(far) = &mut self.link
            && !self.is_cut
        {
            self.is_cut = far.ask(heads, words).is_err();
        }
    }

    /// The part of this end's state that a peer on another host has to know.
    fn account(&self) -> ([u64; 2], Words) {
        let words = Words {
            failed: self.mine(FAILED),
            is_not_ready: self.mine(NOT_READY) != 0,
            is_closed: self.mine(CLOSED) != 0,
        };
        ([self.their_requests.head, self.their_responses.head], words)
    }

    /// Sends a request. The caller has asked for room.
    pub(super) fn put_request(&mut self, header: Header, pieces: &[Piece], skip: usize) {
        self.put(header, pieces, skip, true);
    }

    /// Sends a response. The caller has asked for room.
    pub(super) fn put_response(&mut self, header: Header, pieces: &[Piece], skip: usize) {
        self.put(header, pieces, skip, false);
    }

    /// The peer has answered the request that ends at this counter, so it has consumed that and all before.
    pub(super) fn answered(&mut self, end: u64) {
        if self.is_far() {
            self.memory.word64(self.theirs + REQUEST_HEAD).fetch_max(end, Ordering::AcqRel);
        }
    }

    fn put(&mut self, header: Header, pieces: &[Piece], skip: usize, is_request: bool) {
        let heads = [self.their_requests.head, self.their_responses.head];
        let producer = if is_request { &mut self.requests } else { &mut self.responses };
        match &mut self.link {
            Link::Far(far) => {
                // A record for a peer that has ended is lost, and its request fails for that.
                self.is_cut = self.is_cut || far.put(header, pieces, skip, heads).is_err();
                producer.count(header.length as usize);
            }
            Link::Near { .. } => producer.put(&self.memory, header, pieces, skip),
        }
    }

    /// Whether the peer waits for a receive request of this end's, as it says.
    pub(super) fn is_not_ready(&self) -> bool {
        self.theirs(NOT_READY) != 0
    }

    /// Forgets the peer's regions where it has ended a registration since they were asked for.
    pub(super) fn refresh(&mut self) {
        let epoch = self.theirs(EPOCH);
        if epoch != self.epoch {
            self.epoch = epoch;
            self.imports.clear();
        }
    }

    /// Tells the peer that a registration has ended.
    pub(super) fn end_registration(&self) {
        self.memory.word32(self.mine + EPOCH).fetch_add(1, Ordering::AcqRel);
    }
}

/// Whether this end keeps a peer of another host that sends these bytes, all at once. A peer that sends no records is cut off.
#[must_use]
pub fn keeps_peer(bytes: &[u8]) -> bool {
    let make = || -> Result<(Connection, OwnedFd), Errno> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let joint = Joint { fds: vec![ours], end: End::Far, counts: 0, peer: ([0; 16], 1) };
        Ok((Connection::new(joint, None, (epoll, 0))?, theirs))
    };
    let Ok((mut connection, theirs)) = make() else { return false };
    let _ = rustix::net::send(&theirs, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    connection.pull();
    while let Ok(Some(header)) = connection.their_requests.next(&connection.memory) {
        connection.their_requests.pass(&connection.memory, &header);
    }
    let is_believed = connection.requests.consumed(&connection.memory).is_ok();
    connection.pull();
    is_believed && !connection.is_cut
}

#[cfg(test)]
mod tests;
