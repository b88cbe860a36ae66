//! The end of a relayed connection that lies on another virtual host: rings in private memory, and a stream in the place of a program.
//!
//! A relay moves records between rings. This end takes those that its host's program has sent from the ring to the stream, and puts
//! into the other ring what comes by the stream. The peer's part of the memory is block 0, and the relay's is block 1.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::far::{Far, Words};
use super::memory::{Mapping, Piece, load};
use super::ring::{Header, Lie, Place, UNIT, flag, parts, record};
use crate::layout::{
    BLOCK, CLOSED, FAILED, MEMORY, NOT_READY, REQUEST_HEAD, REQUEST_TAIL, REQUESTS, RESPONSE_HEAD, RESPONSE_TAIL,
    RESPONSES, RINGS,
};

/// A stream that waits for its place in an epoll set, or one that has it.
#[derive(Debug)]
enum Stream {
    Waiting(OwnedFd),
    Taken(Box<Far>),
    Ended,
}

/// The end of a relayed connection on another host.
#[derive(Debug)]
pub(crate) struct Outlet {
    memory: Mapping,
    stream: Stream,
    /// Rings of requests and responses to the peer, and bytes sent of them.
    rings: [Place; 2],
    sent: [u64; 2],
}

/// The ring of requests and that of responses which this end of the memory produces: 0 is the peer, and 1 the relay.
fn rings(producer: usize) -> [Place; 2] {
    let consumer = 1 - producer;
    let place = |base: usize, length: usize, tail: usize, head: usize| Place {
        start: base + producer * length,
        length,
        tail: producer * BLOCK + tail,
        head: consumer * BLOCK + head,
    };
    let requests = place(RINGS, REQUESTS, REQUEST_TAIL, REQUEST_HEAD);
    [requests, place(RINGS + 2 * REQUESTS, RESPONSES, RESPONSE_TAIL, RESPONSE_HEAD)]
}

impl Outlet {
    pub(crate) fn new(stream: OwnedFd) -> Result<Self, Errno> {
        let stream = Stream::Waiting(stream);
        Ok(Self { memory: Mapping::private(MEMORY)?, stream, rings: rings(1), sent: [0; 2] })
    }

    /// Has the stream waited for in this set, under this number.
    pub(crate) fn wait_in(&mut self, epoll: (Arc<OwnedFd>, u64)) -> Result<(), Errno> {
        self.stream = match std::mem::replace(&mut self.stream, Stream::Ended) {
            Stream::Waiting(stream) => Stream::Taken(Box::new(Far::new(stream, rings(0), 0, epoll)?)),
            other => other,
        };
        Ok(())
    }

    pub(crate) fn memory(&self) -> &Mapping {
        &self.memory
    }

    pub(crate) fn stream(&self) -> Option<BorrowedFd<'_>> {
        match &self.stream {
            Stream::Taken(far) => Some(far.stream()),
            _ => None,
        }
    }

    /// How much the program of this host has consumed of the peer's requests and responses.
    fn heads(&self) -> [u64; 2] {
        [REQUEST_HEAD, RESPONSE_HEAD].map(|word| self.memory.word64(BLOCK + word).load(Ordering::Acquire))
    }

    /// Takes what has come. False where the stream has ended.
    pub(crate) fn pull(&mut self) -> bool {
        let heads = self.heads();
        match &mut self.stream {
            Stream::Taken(far) => far.pull(&self.memory, heads).is_ok(),
            _ => false,
        }
    }

    /// Sends what the relay has put into the rings, and tells what is news. False where the stream has ended.
    pub(crate) fn push(&mut self) -> bool {
        self.try_push().is_ok_and(|sent| sent.is_ok())
    }

    fn try_push(&mut self) -> Result<Result<(), Errno>, Lie> {
        let heads = self.heads();
        let word = |word: usize| self.memory.word32(BLOCK + word).load(Ordering::Acquire);
        let words = Words { failed: word(FAILED), is_not_ready: word(NOT_READY) != 0, is_closed: word(CLOSED) != 0 };
        let Stream::Taken(far) = &mut self.stream else { return Err(Lie) };
        for (ring, (place, sent)) in self.rings.into_iter().zip(&mut self.sent).enumerate() {
            let tail = self.memory.word64(place.tail).load(Ordering::Acquire);
            while *sent < tail {
                let at = usize::try_from(*sent % place.length as u64).unwrap_or(0);
                let bytes: [u8; UNIT] = load(self.memory.piece(place.start + at, UNIT).ok_or(Lie)?);
                let mut header = Header::from_bytes(&bytes);
                let length = header.length as usize;
                if record(length) > tail - *sent {
                    return Err(Lie);
                }
                if ring == 0 {
                    // The other relay's program waits, as all ends of a relay do.
                    header.flags |= flag::WAITS;
                }
                let pieces: Vec<Piece> =
                    parts(&self.memory, place, *sent + UNIT as u64, length).map(|(piece, _)| piece).collect();
                if let Err(errno) = far.put(header, &pieces, 0, heads) {
                    return Ok(Err(errno));
                }
                *sent += record(length);
            }
        }
        Ok(far.tell(heads, words, true))
    }

    /// Whether the kernel has all that was to be sent.
    pub(crate) fn is_flushed(&self) -> bool {
        matches!(&self.stream, Stream::Taken(far) if far.is_flushed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn taken(stream: OwnedFd) -> Outlet {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let mut outlet = Outlet::new(stream).unwrap();
        outlet.wait_in((epoll, 0)).unwrap();
        outlet
    }

    #[test]
    fn records_words_and_counters_pass_from_one_memory_to_the_other() {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let (mut one, mut other) = (taken(one), taken(other));
        let mut bytes = [7_u8; 1000];
        let header = Header { kind: super::super::ring::kind::SEND, length: 1000, ..Header::default() };
        let mut producer = super::super::ring::Producer::new(one.rings[0]);
        let piece = Piece { at: bytes.as_mut_ptr() as usize, length: bytes.len() };
        producer.put(&one.memory, header, &[piece], 0);
        one.memory.word32(BLOCK + NOT_READY).store(1, Ordering::Release);
        assert!(one.push() && other.pull());
        let mut consumer = super::super::ring::Consumer::new(rings(0)[0]);
        let header = consumer.next(&other.memory).unwrap().unwrap();
        let mut there = [0_u8; 1000];
        consumer.take(&other.memory, &header, &[Piece { at: there.as_mut_ptr() as usize, length: 1000 }], 0);
        assert_eq!((there, other.memory.word32(NOT_READY).load(Ordering::Acquire)), ([7; 1000], 1));
        consumer.pass(&other.memory, &header);
        assert!(other.push() && one.pull());
        assert_eq!(producer.consumed(&one.memory), Ok(record(1000)));
        drop(other);
        assert!(!one.pull());
    }
}
