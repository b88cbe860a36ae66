//! The sessions of programs and the connections of their queue pairs, and what happens to each.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

use super::call::{Call, State};
use super::device::{Device, News, kind};
use super::flow::{Flow, Overrun};
use super::memory::is_memory;
use super::pair::{Identifier, QueuePair};
use super::session::Session;
use super::worker::{Done, Outcome, Workers};
use super::{Order, Told};
use crate::management::{IN_REJECTION, IN_REPLY, Message, Offer, Step};
use crate::untrusted::{Untrusted, aside};
use crate::wire::{self, WireError};

/// Most programs of a node, as its broker has. The next one is not accepted.
const PROGRAMS: usize = 256;
/// Most connections of a node at once, among them those that begin.
const CALLS: usize = 1024;
/// Descriptors that are no memory, after which a node's programs are served no more.
const STRIKES: usize = 64;
/// Packets of a program before others have their turn.
const TURN: usize = 32;

/// Sources of events: the number of an object, and its kind in the bits above.
pub(super) const ORDERS: u64 = 0;
const NEWS: u64 = 1;
const COMPLETIONS: u64 = 2;
const WORKERS: u64 = 3;
const LISTENER: u64 = 1 << 60;
const SESSION: u64 = 2 << 60;
const CALL: u64 = 3 << 60;
const KIND: u64 = 15 << 60;

#[derive(Debug)]
pub(super) struct Table {
    pub(super) device: &'static Device,
    epoll: OwnedFd,
    workers: Workers,
    pub(super) nodes: BTreeMap<u32, Node>,
    // Connections end before sessions, whose domains they use.
    pub(super) calls: BTreeMap<u64, Call>,
    pub(super) sessions: BTreeMap<u64, Session>,
    barred: BTreeSet<u32>,
    /// The device is gone.
    pub(super) is_over: bool,
    next: u64,
}

/// A node of the gateway's.
#[derive(Debug)]
pub(super) struct Node {
    listener: OwnedFd,
    /// Most bytes that are registered at once.
    pub(super) memory: u64,
    /// How often its programs have sent descriptors that are no memory. Each may be slow to close.
    strikes: usize,
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Table {
    /// A table without nodes, which waits for orders at this descriptor too.
    pub(super) fn new(device: &'static Device, orders: BorrowedFd<'_>) -> Result<Self, Errno> {
        let (epoll, workers) = (epoll::create(CreateFlags::CLOEXEC)?, Workers::new()?);
        let device_has = [(NEWS, device.events()), (COMPLETIONS, device.completions())];
        for (source, fd) in [(ORDERS, orders), (WORKERS, workers.as_fd())].into_iter().chain(device_has) {
            epoll::add(&epoll, fd, EventData::new_u64(source), EventFlags::IN)?;
        }
        let (nodes, calls, sessions, barred, is_over) = Default::default();
        Ok(Self { device, epoll, workers, nodes, calls, sessions, barred, is_over, next: 0 })
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Carries out an order.
    pub(super) fn obey(&mut self, order: Order, fds: Vec<OwnedFd>) -> Result<(), Errno> {
        match (order, fds.into_iter().next()) {
            (Order::Node { node, memory }, Some(listener)) => {
                rustix::io::ioctl_fionbio(&listener, true)?;
                let source = EventData::new_u64(LISTENER | u64::from(node));
                epoll::add(&self.epoll, &listener, source, EventFlags::IN)?;
                self.nodes.insert(node, Node { listener, memory, strikes: 0 });
            }
            (Order::Call { node, to }, Some(stream)) => {
                if self.barred.contains(&node) || self.calls.values().filter(|it| it.node == node).count() >= CALLS {
                    return Ok(());
                }
                let number = self.number();
                epoll::add(&self.epoll, &stream, EventData::new_u64(CALL | number), EventFlags::IN)?;
                self.calls.insert(number, Call::new(node, to, stream));
            }
            (Order::Barred { nodes, is_first }, None) => {
                if is_first {
                    self.barred.clear();
                }
                self.barred.extend(nodes);
                let due = |call: &Call| self.barred.contains(&call.node);
                let due: Vec<u64> =
                    self.calls.iter().filter(|(_, call)| due(call)).map(|(&number, _)| number).collect();
                for number in due {
                    self.end_call(number);
                }
            }
            (Order::Status, Some(to)) => {
                for call in self.calls.values_mut() {
                    let (Some((_, number)), node, peer) = (call.of, call.node, call.to) else { continue };
                    if let Some(flow) = call.joined() {
                        // One that does not fit is left out.
                        let _ = wire::send(to.as_fd(), &flow.counted(node, number, peer), &[]);
                    }
                }
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// Acts on an event.
    pub(super) fn turn(&mut self, source: u64) {
        let number = source & !KIND;
        match source & KIND {
            LISTENER => self.accept(u32::try_from(number).unwrap_or(u32::MAX)),
            SESSION => self.serve(number),
            CALL => self.hear(number),
            _ if source == WORKERS => self.take_up(),
            _ if source == NEWS => {
                for news in (0..TURN).map_while(|_| self.device.news()) {
                    self.heed(news);
                }
            }
            _ => {
                for number in (0..TURN).map_while(|_| self.device.completed()) {
                    self.complete(number);
                }
            }
        }
    }

    fn accept(&mut self, node: u32) {
        let Some(Node { listener, strikes, .. }) = self.nodes.get(&node) else { return };
        let Ok((socket, _)) = acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else { return };
        let socket = Untrusted::from(socket);
        if *strikes >= STRIKES || self.sessions.values().filter(|it| it.node == node).count() >= PROGRAMS {
            return;
        }
        let number = self.number();
        if epoll::add(&self.epoll, &socket, EventData::new_u64(SESSION | number), EventFlags::IN).is_ok() {
            self.sessions.insert(number, Session::new(node, socket));
        }
    }

    /// Serves a program, as many packets as are its turn. One that does not read is not served.
    fn serve(&mut self, number: u64) {
        for _ in 0..TURN {
            let Some(session) = self.sessions.get_mut(&number) else { return };
            if !session.flush() {
                return self.forget(number);
            }
            if session.is_busy() {
                return;
            }
            if session.has_unread() {
                break;
            }
            let (node, heard) = (session.node, session.hear());
            let (ask, fds) = match heard {
                Ok(packet) => packet,
                Err(WireError::Socket(Errno::AGAIN)) => break,
                Err(_) => return self.forget(number),
            };
            let (fds, others): (Vec<_>, Vec<_>) = fds.into_iter().partition(is_memory);
            let (Some(ask), true) = (ask, others.is_empty()) else {
                self.strike(node, others.len());
                return self.forget(number);
            };
            let files: Vec<OwnedFd> = fds.into_iter().map(Untrusted::trusted).collect();
            let is_kept = match self.answer(number, ask, files) {
                Ok(None) => true,
                Ok(Some(told)) => self.tell(number, told),
                Err(Overrun) => false,
            };
            if !is_kept {
                return self.forget(number);
            }
        }
        self.wait_for(number);
    }

    /// Has a thread work for a program, which is not served meanwhile. Without a thread, it loses its session.
    pub(super) fn hand_over(&mut self, number: u64, work: impl FnOnce() -> Outcome + Send + 'static) {
        let Some(session) = self.sessions.get(&number) else { return };
        // One that ends meanwhile would be told of again and again.
        let _ = epoll::delete(&self.epoll, session);
        if self.workers.start(number, work).is_err() {
            self.forget(number);
        }
    }

    /// Goes on with programs whose threads have ended.
    fn take_up(&mut self) {
        for Done { session: number, outcome } in self.workers.take() {
            let Some(session) = self.sessions.get_mut(&number) else {
                // Its program has gone.
                aside(move || drop(outcome));
                continue;
            };
            let told = session.take_up(outcome);
            let source = EventData::new_u64(SESSION | number);
            let is_kept = epoll::add(&self.epoll, &*session, source, EventFlags::IN).is_ok() && self.tell(number, told);
            if is_kept { self.wait_for(number) } else { self.forget(number) }
        }
    }

    /// Counts descriptors that a program should not have sent.
    fn strike(&mut self, node: u32, others: usize) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.strikes += others;
        }
    }

    /// Tells a program. False where it is gone.
    fn tell(&mut self, number: u64, told: Told) -> bool {
        self.sessions.get_mut(&number).is_some_and(|session| session.tell(told))
    }

    /// Waits for a program's packets, or for room where it has left some unread.
    fn wait_for(&self, number: u64) {
        let Some(session) = self.sessions.get(&number) else { return };
        let events = if session.has_unread() { EventFlags::OUT } else { EventFlags::IN };
        let _ = epoll::modify(&self.epoll, session, EventData::new_u64(SESSION | number), events);
    }

    /// Ends a program's session, with its connections and then its memory.
    fn forget(&mut self, number: u64) {
        let calls =
            self.sessions.get(&number).into_iter().flat_map(|it| it.pairs.values().filter_map(|pair| pair.call));
        for call in calls.collect::<Vec<_>>() {
            self.calls.remove(&call);
        }
        if let Some(session) = self.sessions.remove(&number) {
            let _ = epoll::delete(&self.epoll, &session);
            // Its registrations end as slowly as they began, and its socket closes later.
            aside(move || drop(session));
        }
    }

    /// Ends a connection whose program forgets it. It hears of the completions that there are, and nothing later.
    pub(super) fn finish_call(&mut self, number: u64) {
        let Some(mut call) = self.calls.remove(&number) else { return };
        if let (Some((session, pair)), Some(flow)) = (call.of, call.flow()) {
            let packets = flow.take(pair).unwrap_or_default();
            flow.pair.disconnect();
            for told in packets {
                // One that is gone is noticed with the reply.
                self.tell(session, told);
            }
        }
    }

    /// Ends a connection. Its program has the completions that there are, and then hears of the end.
    pub(super) fn end_call(&mut self, number: u64) {
        let Some(mut call) = self.calls.remove(&number) else { return };
        let Some((session, pair)) = call.of else { return };
        let mut packets = Vec::new();
        let was_joined = call.joined().is_some();
        if let Some(flow) = call.flow() {
            flow.pair.disconnect();
            packets = flow.take(pair).unwrap_or_default();
            packets.extend(flow.failed(pair).filter(|_| flow.is_due()));
        }
        if let Some(told) = self.sessions.get_mut(&session).and_then(|it| it.pairs.get_mut(&pair)) {
            told.call = None;
        }
        if was_joined {
            packets.push(Told::Ended { number: pair });
            self.deliver(session, packets);
        }
    }

    fn deliver(&mut self, session: u64, packets: Vec<Told>) {
        let is_kept = packets.into_iter().all(|told| self.tell(session, told));
        if is_kept { self.wait_for(session) } else { self.forget(session) }
    }

    /// A queue pair has completions.
    fn complete(&mut self, number: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        let Some((session, pair)) = call.of else { return };
        let Some(flow) = call.flow() else { return };
        // Asked first: a completion that comes after the last look is told of.
        let taken = flow.pair.notify().and_then(|()| flow.take(pair));
        let is_over = taken.is_err() || flow.is_due();
        self.deliver(session, taken.unwrap_or_default());
        if is_over {
            self.end_call(number);
        }
    }

    /// A router has a message, or has left.
    fn hear(&mut self, number: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        let next = call.line.peek();
        if matches!(next, Ok(Some(_))) {
            call.line.consume();
        }
        let is_kept = match (next, &call.state) {
            (Ok(Some(Message { step: Step::Request, offer, .. })), State::Called) if call.of.is_none() => {
                self.look(number, offer).is_ok()
            }
            // The client's program acknowledges, as the device has already. A request comes twice where a router was killed before
            // it noted that it had sent this.
            (Ok(None | Some(Message { step: Step::Request, .. })), _)
            | (Ok(Some(Message { step: Step::Established, .. })), State::Open(_)) => true,
            _ => false,
        };
        if !is_kept {
            self.end_call(number);
        }
    }

    /// Begins to look for the peer, for a queue pair that a program of the node has told of.
    fn look(&mut self, number: u64, offer: Offer) -> Result<(), Errno> {
        let Self { device, calls, sessions, .. } = self;
        let call = calls.get_mut(&number).ok_or(Errno::INVAL)?;
        let is_its = |session: &Session| session.node == call.node && session.pairs.contains_key(&offer.queue_pair);
        let (&id, session) = sessions.iter_mut().find(|(_, session)| is_its(session)).ok_or(Errno::INVAL)?;
        let pair = session.pairs.get_mut(&offer.queue_pair).filter(|it| it.call.is_none()).ok_or(Errno::BUSY)?;
        let identifier = Identifier::resolve(device, number, call.to)?;
        pair.call = Some(number);
        call.of = Some((id, offer.queue_pair));
        call.state = State::Looking(identifier, offer);
        Ok(())
    }

    /// Acts on news of a connection.
    fn heed(&mut self, news: News) {
        let number = news.number;
        let is_kept = match news.kind {
            kind::ADDRESS_RESOLVED => match self.calls.get(&number).map(|call| &call.state) {
                Some(State::Looking(identifier, _)) => identifier.resolve_route(),
                _ => Err(Errno::INVAL),
            },
            kind::ROUTE_RESOLVED => self.ask(number),
            kind::ESTABLISHED => self.established(number, &news),
            kind::TIME_WAIT_ENDED => Ok(()),
            kind::REJECTED => {
                if let Some(call) = self.calls.get(&number) {
                    let mut offer = news.offer;
                    offer.private.resize(IN_REJECTION, 0);
                    call.tell(Step::Rejected, news.status, offer);
                }
                Err(Errno::CONNREFUSED)
            }
            kind::DEVICE_REMOVED => {
                self.is_over = true;
                Err(Errno::NODEV)
            }
            // Nobody there, or no more.
            _ => Err(Errno::CONNRESET),
        };
        if is_kept.is_err() {
            self.end_call(number);
        }
    }

    /// Asks the peer, by a queue pair of the device.
    fn ask(&mut self, number: u64) -> Result<(), Errno> {
        let call = self.calls.get_mut(&number).ok_or(Errno::INVAL)?;
        let State::Looking(identifier, offer) = std::mem::replace(&mut call.state, State::Called) else {
            return Err(Errno::INVAL);
        };
        let (session, pair) = call.of.ok_or(Errno::INVAL)?;
        let session = self.sessions.get(&session).ok_or(Errno::INVAL)?;
        let domain = session.pairs.get(&pair).and_then(|it| session.domains.get(&it.domain)).ok_or(Errno::INVAL)?;
        let made = QueuePair::new(identifier, number, &domain.domain)?;
        made.connect(&offer)?;
        call.state = State::Asking(Flow::new(made));
        Ok(())
    }

    fn established(&mut self, number: u64, news: &News) -> Result<(), Errno> {
        let call = self.calls.get_mut(&number).ok_or(Errno::INVAL)?;
        call.state = match std::mem::replace(&mut call.state, State::Called) {
            State::Asking(flow) => State::Open(flow),
            _ => return Err(Errno::INVAL),
        };
        if let State::Open(flow) = &call.state {
            flow.pair.hasten()?;
        }
        let mut offer = news.offer.clone();
        // The kernel gives it as this side reads it.
        offer.private.resize(IN_REPLY, 0);
        if call.tell(Step::Accepted, 0, offer) { Ok(()) } else { Err(Errno::PIPE) }
    }
}
