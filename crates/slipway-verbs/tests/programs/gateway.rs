//! A gateway that joins queue pairs of its own nodes with one another, in the order in which they were made, and copies.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::io::{Errno, pread, pwrite};
use rustix::net::RecvFlags;
use slipway_verbs::broker::listen;
use slipway_verbs::gateway::{Ask, Completion, Operation, Part, Span, Told, Work};
use slipway_verbs::wire::{receive, send};

const PAGE: u64 = 4096;
const WRITE: u32 = 1 << 1;
const READ: u32 = 1 << 2;
const ATOMIC: u32 = 1 << 3;
const REFUSED: u32 = 10;
const DONE: Completion =
    Completion { is_receive: false, status: 0, length: 0, immediate: None, is_written: false, is_solicited: true };

struct Region {
    session: usize,
    domain: u32,
    start: u64,
    at: u64,
    length: u64,
    access: u32,
    parts: Vec<(OwnedFd, Part)>,
}

impl Region {
    /// Goes through the places in files of some bytes.
    fn each(&self, at: u64, length: usize, mut visit: impl FnMut(&OwnedFd, u64, std::ops::Range<usize>)) {
        let mut from = self.at / PAGE * PAGE;
        let end = at + length as u64;
        for (file, part) in &self.parts {
            let (first, last) = (at.max(from), end.min(from + part.length));
            if first < last {
                let range = (first - at).try_into().unwrap()..(last - at).try_into().unwrap();
                visit(file, part.offset + first - from, range);
            }
            from += part.length;
        }
    }

    fn load(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.each(at, length, |file, offset, range| assert!(pread(file, &mut bytes[range], offset).unwrap() > 0));
        bytes
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        self.each(at, bytes.len(), |file, offset, range| assert!(pwrite(file, &bytes[range], offset).unwrap() > 0));
    }
}

/// A message for a receive request.
struct Message {
    bytes: Vec<u8>,
    completion: Completion,
}

struct Pair {
    number: u32,
    session: usize,
    domain: u32,
    receives: VecDeque<Vec<Span>>,
    arrived: VecDeque<Message>,
}

#[derive(Default)]
pub(crate) struct World {
    sockets: HashMap<usize, OwnedFd>,
    regions: HashMap<u32, Region>,
    pairs: Vec<Pair>,
    last_key: u32,
    /// Requests and receives that have come.
    pub(crate) requests: u64,
    pub(crate) receives: u64,
}

/// Serves programs of nodes that look for their gateway here.
pub(crate) fn start(paths: &[&Path]) -> Arc<Mutex<World>> {
    let world = Arc::new(Mutex::new(World::default()));
    for (node, path) in paths.iter().enumerate() {
        let (listener, world) = (listen(path).unwrap(), world.clone());
        std::thread::spawn(move || {
            for count in 0.. {
                let mut it = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut it, None).unwrap();
                let socket = rustix::net::accept(&listener).unwrap();
                let (world, session) = (world.clone(), node + 2 * count);
                world.lock().unwrap().sockets.insert(session, socket.try_clone().unwrap());
                std::thread::spawn(move || serve(&world, session, &socket));
            }
        });
    }
    world
}

fn serve(world: &Mutex<World>, session: usize, socket: &OwnedFd) {
    while let Ok((ask, files)) = receive::<Ask>(socket.as_fd(), RecvFlags::empty()) {
        let mut world = world.lock().unwrap();
        if let Some(reply) = world.answer(session, ask, files) {
            world.tell(session, &reply);
        }
    }
    let mut world = world.lock().unwrap();
    world.sockets.remove(&session);
    world.regions.retain(|_, it| it.session != session);
    world.pairs.retain(|it| it.session != session);
}

impl World {
    /// True once the last program has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.is_empty() && self.regions.is_empty() && self.pairs.is_empty()
    }

    fn tell(&self, session: usize, told: &Told) {
        if let Some(socket) = self.sockets.get(&session) {
            let _ = send(socket.as_fd(), told, &[]);
        }
    }

    fn answer(&mut self, session: usize, ask: Ask, files: Vec<OwnedFd>) -> Option<Told> {
        let refused = |errno: Errno| Some(Told::Refused { errno: errno.raw_os_error() });
        match ask {
            Ask::Register { domain, start, at, length, access, parts } => {
                assert_eq!(files.len(), parts.len());
                let parts: Vec<_> = files.into_iter().zip(parts).collect();
                let covered: u64 = parts.iter().map(|(_, part)| part.length).sum();
                assert!(covered >= at % PAGE + length, "all pages are on files");
                self.last_key += 1;
                let key = 0x1000 + self.last_key;
                self.regions.insert(key, Region { session, domain, start, at, length, access, parts });
                return Some(Told::Key { key });
            }
            Ask::Deregister { key } => drop(self.regions.remove(&key)?),
            Ask::QueuePair { number, domain } => {
                let (receives, arrived) = Default::default();
                self.pairs.push(Pair { number, session, domain, receives, arrived });
            }
            Ask::Forget { number } => self.pairs.retain(|it| it.number != number),
            Ask::Join { number } => {
                let known = self.peer(number).is_some();
                let window = Told::Window { requests: 16, receives: 16, spans: 4 };
                return if known { Some(window) } else { refused(Errno::HOSTUNREACH) };
            }
            Ask::Send { number, work } => {
                self.requests += 1;
                self.carry_out(number, &work);
                return None;
            }
            Ask::Receive { number, spans } => {
                self.receives += 1;
                let pair = self.pairs.iter_mut().find(|it| it.number == number)?;
                pair.receives.push_back(spans);
                let place = self.place(number)?;
                self.deliver(place);
                return None;
            }
        }
        Some(Told::Done)
    }

    fn place(&self, number: u32) -> Option<usize> {
        self.pairs.iter().position(|it| it.number == number)
    }

    fn peer(&self, number: u32) -> Option<usize> {
        Some(self.place(number)? ^ 1).filter(|it| *it < self.pairs.len())
    }

    /// The region of these bytes of a program's own.
    fn own(&self, pair: &Pair, span: &Span) -> &Region {
        let is_it = |it: &&Region| {
            let end = span.at + u64::from(span.length);
            it.session == pair.session && it.domain == pair.domain && span.at >= it.at && end <= it.at + it.length
        };
        self.regions.values().find(is_it).expect("registered memory")
    }

    fn gather(&self, pair: &Pair, work: &Work) -> Vec<u8> {
        let load = |span: &Span| self.own(pair, span).load(span.at, span.length as usize);
        work.inline.iter().copied().chain(work.spans.iter().flat_map(load)).collect()
    }

    fn scatter(&self, pair: &Pair, spans: &[Span], bytes: &[u8]) {
        let mut rest = bytes;
        for span in spans {
            let (now, later) = rest.split_at(rest.len().min(span.length as usize));
            self.own(pair, span).store(span.at, now);
            rest = later;
        }
        assert!(rest.is_empty(), "the message fits");
    }

    fn carry_out(&mut self, number: u32, work: &Work) {
        let (Some(place), Some(peer)) = (self.place(number), self.peer(number)) else { return };
        let status = if self.try_carry_out(place, peer, work).is_some() { 0 } else { REFUSED };
        let session = self.pairs[place].session;
        self.tell(session, &Told::Completed { number, all: vec![Completion { status, ..DONE }] });
        if status != 0 {
            for pair in [&self.pairs[place], &self.pairs[peer]] {
                self.tell(pair.session, &Told::Ended { number: pair.number });
            }
        }
        self.deliver(peer);
    }

    /// The peer's memory that a request names; none where it may not.
    fn there(&self, peer: usize, work: &Work, length: usize, needed: u32) -> Option<(&Region, u64)> {
        let session = self.pairs[peer].session;
        let region = self.regions.get(&work.key).filter(|it| it.session == session && it.access & needed != 0)?;
        let offset = work.address.checked_sub(region.start)?;
        (offset + length as u64 <= region.length).then_some((region, region.at + offset))
    }

    fn try_carry_out(&mut self, place: usize, peer: usize, work: &Work) -> Option<()> {
        let pair = &self.pairs[place];
        let length = work.spans.iter().map(|it| it.length as usize).sum();
        let mut written = None;
        match work.operation {
            Operation::Send => written = Some((self.gather(pair, work), false)),
            Operation::Write => {
                let bytes = self.gather(pair, work);
                if !bytes.is_empty() {
                    let (region, at) = self.there(peer, work, bytes.len(), WRITE)?;
                    region.store(at, &bytes);
                }
                written = work.immediate.map(|_| (bytes, true));
            }
            Operation::Read => {
                let (region, at) = self.there(peer, work, length, READ)?;
                self.scatter(pair, &work.spans, &region.load(at, length));
            }
            Operation::Add(_) | Operation::Swap { .. } => {
                let (region, at) = self.there(peer, work, 8, ATOMIC)?;
                let before = u64::from_ne_bytes(region.load(at, 8).try_into().ok()?);
                let after = match work.operation {
                    Operation::Add(by) => before.wrapping_add(by),
                    Operation::Swap { compare, with } if compare == before => with,
                    _ => before,
                };
                region.store(at, &after.to_ne_bytes());
                self.scatter(pair, &work.spans, &before.to_ne_bytes());
            }
        }
        if let Some((bytes, is_written)) = written {
            let completion = Completion {
                is_receive: true,
                length: bytes.len().try_into().ok()?,
                immediate: work.immediate,
                is_written,
                ..DONE
            };
            self.pairs[peer].arrived.push_back(Message { bytes, completion });
        }
        Some(())
    }

    /// Puts messages into receive requests.
    fn deliver(&mut self, place: usize) {
        // A message without a receive request waits for one.
        while let pair = &mut self.pairs[place]
            && !pair.receives.is_empty()
            && let Some(message) = pair.arrived.pop_front()
            && let Some(spans) = pair.receives.pop_front()
        {
            let pair = &self.pairs[place];
            if !message.completion.is_written {
                self.scatter(pair, &spans, &message.bytes);
            }
            self.tell(pair.session, &Told::Completed { number: pair.number, all: vec![message.completion] });
        }
    }
}
