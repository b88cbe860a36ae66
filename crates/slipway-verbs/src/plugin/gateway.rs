//! The session with the gateway, which joins queue pairs with peers outside of the lab ([`crate::gateway`]).
//!
//! Packets are sent under the device's lock. The gateway does not read from a program that leaves packets unread, so a packet for
//! which there is no room waits together with those of the gateway.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::client::connect;
use super::device::{GATEWAY, State};
use super::queues::{Outside, QueuePair};
use crate::gateway::{Ask, Completion, Told};
use crate::wire::{self, Transport, WireError};

/// Where a node sees its gateway's listener.
const SOCKET: &str = "/run/slipway/gateway.sock";
/// Most packets that are heard at once.
const AT_ONCE: usize = 64;

#[derive(Debug)]
pub(super) struct Session {
    socket: OwnedFd,
    /// Packets that came before a reply.
    kept: VecDeque<Told>,
    /// Places of queue pairs that are joined with peers outside, by number.
    joined: HashMap<u32, usize>,
    is_lost: bool,
}

impl Session {
    /// Connects to the node's gateway; none where there is none.
    pub(super) fn connect() -> Option<Self> {
        connect("SLIPWAY_GATEWAY_SOCKET", SOCKET).ok().map(Self::over)
    }

    /// A session by a socket that is connected.
    pub(super) fn over(socket: OwnedFd) -> Self {
        // Calls wait for room and for packets at once.
        let _ = rustix::io::ioctl_fionbio(&socket, true);
        Self { socket, kept: VecDeque::new(), joined: HashMap::new(), is_lost: false }
    }

    /// Has the thread of service wait for packets, or for the end of the session alone.
    pub(super) fn wait_in(&self, epoll: &OwnedFd, waits: bool) {
        let flags = if waits { EventFlags::IN } else { EventFlags::empty() };
        let _ = epoll::modify(epoll, &self.socket, EventData::new_u64(GATEWAY), flags);
    }

    /// Begins to wait for packets.
    pub(super) fn add_to(&self, epoll: &OwnedFd) -> Result<(), Errno> {
        epoll::add(epoll, &self.socket, EventData::new_u64(GATEWAY), EventFlags::IN)
    }

    /// The place of a queue pair that is joined with a peer outside.
    fn place(&self, number: u32) -> Option<usize> {
        self.joined.get(&number).copied()
    }

    /// Sends a packet that has no reply.
    pub(super) fn send(&mut self, ask: &Ask) {
        self.put(ask, &[]);
    }

    fn put(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) {
        while !self.is_lost {
            match wire::send(self.socket.as_fd(), ask, fds) {
                Ok(()) => return,
                Err(WireError::Socket(Errno::AGAIN)) => self.wait(PollFlags::IN | PollFlags::OUT),
                Err(_) => self.is_lost = true,
            }
        }
    }

    /// Waits for the socket, and keeps what has come.
    fn wait(&mut self, events: PollFlags) {
        match poll(&mut [PollFd::new(&self.socket, events)], None) {
            Ok(_) | Err(Errno::INTR) => self.keep(),
            Err(_) => self.is_lost = true,
        }
    }

    /// Keeps what has come.
    fn keep(&mut self) {
        while let Some(told) = self.receive() {
            self.kept.push_back(told);
        }
    }

    /// Whether packets are kept, for which no event comes any more.
    pub(super) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The next packet of the socket.
    fn receive(&mut self) -> Option<Told> {
        match wire::receive(self.socket.as_fd(), RecvFlags::DONTWAIT) {
            Ok((told, _)) => Some(told),
            Err(WireError::Socket(Errno::AGAIN)) => None,
            Err(_) => {
                self.is_lost = true;
                None
            }
        }
    }

    /// Asks, and waits for the reply. Other packets that come before it are kept. `ECONNRESET` where the gateway has ended.
    fn ask(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<Told, Errno> {
        self.put(ask, fds);
        loop {
            // The reply may be among them, where the packet had to wait.
            let is_reply = |told: &Told| !matches!(told, Told::Completed { .. } | Told::Ended { .. });
            if let Some(reply) = self.kept.iter().position(is_reply).and_then(|at| self.kept.remove(at)) {
                return match reply {
                    Told::Refused { errno } => Err(Errno::from_raw_os_error(errno)),
                    reply => Ok(reply),
                };
            }
            if self.is_lost {
                return Err(Errno::CONNRESET);
            }
            self.wait(PollFlags::IN);
        }
    }

    /// The next packet that nobody asked for, without waiting.
    fn next(&mut self) -> Option<Told> {
        if let Some(told) = self.kept.pop_front() {
            return Some(told);
        }
        self.receive()
    }
}

impl State {
    /// Whether some queue pair has a peer outside of the lab, so that polls ask the kernel.
    pub(super) fn is_outside(&self) -> bool {
        self.gateway.as_ref().is_some_and(|it| !it.joined.is_empty())
    }

    /// Asks the gateway. The caller hears what was kept when all is as it should be again ([`State::hear_kept`]).
    pub(super) fn ask_gateway(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<Told, Errno> {
        self.gateway.as_mut().ok_or(Errno::CONNRESET)?.ask(ask, fds)
    }

    /// Acts on what the gateway has told.
    pub(super) fn hear_gateway(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(told) = self.gateway.as_mut().and_then(Session::next) else { break };
            self.told(told);
        }
        self.leave_lost_gateway();
    }

    /// Acts on what it told before a reply.
    pub(super) fn hear_gateway_kept(&mut self) {
        while let Some(told) = self.gateway.as_mut().and_then(|it| it.kept.pop_front()) {
            self.told(told);
        }
        self.leave_lost_gateway();
    }

    fn told(&mut self, told: Told) {
        let place = |this: &Self, number| this.gateway.as_ref().and_then(|it| it.place(number));
        match told {
            Told::Completed { number, all } => {
                if let Some(index) = place(self, number) {
                    self.completed(index, &all);
                }
            }
            Told::Ended { number } => {
                if let Some(index) = place(self, number) {
                    self.fail(index, None);
                }
            }
            // Replies that nobody waits for.
            Told::Done | Told::Key { .. } | Told::Window { .. } | Told::Refused { .. } => {}
        }
    }

    /// Where the gateway has ended, so have connections with peers outside. Everything else goes on.
    fn leave_lost_gateway(&mut self) {
        if self.gateway.as_ref().is_none_or(|it| !it.is_lost) {
            return;
        }
        // Completions that it told of before its end still count.
        while let Some(told) = self.gateway.as_mut().and_then(Session::next) {
            self.told(told);
        }
        let Some(session) = self.gateway.take() else { return };
        let _ = epoll::delete(&*self.epoll, &session.socket);
        for index in session.joined.into_values() {
            self.fail(index, None);
        }
    }

    /// Tells the gateway of a queue pair, which may have peers outside from then on.
    pub(super) fn introduce(&mut self, index: usize) {
        let Some(Some(pair)) = self.queue_pairs.get(index) else { return };
        let (number, domain) = (pair.number, pair.domain);
        if pair.is_told || pair.transport != Transport::Reliable || pair.srq.is_some() {
            return;
        }
        let is_told = self.ask_gateway(&Ask::QueuePair { number, domain }, &[]).is_ok();
        if let Some(Some(pair)) = self.queue_pairs.get_mut(index) {
            pair.is_told = is_told;
        }
    }

    /// Has the gateway forget a queue pair, where it knows it. Gives the completions that it told of until then.
    pub(super) fn forget(&mut self, pair: &mut QueuePair) -> Vec<Completion> {
        let number = pair.number;
        if !std::mem::take(&mut pair.is_told) {
            return Vec::new();
        }
        let _ = self.ask_gateway(&Ask::Forget { number }, &[]);
        let Some(session) = &mut self.gateway else { return Vec::new() };
        session.joined.remove(&number);
        let is_of = |told: &Told| match told {
            Told::Completed { number, .. } | Told::Ended { number } => Some(*number),
            _ => None,
        };
        let (own, others) = std::mem::take(&mut session.kept).into_iter().partition(|told| is_of(told) == Some(number));
        session.kept = others;
        let own: VecDeque<Told> = own;
        let completions = own.into_iter().flat_map(|told| match told {
            Told::Completed { all, .. } => all,
            _ => Vec::new(),
        });
        completions.collect()
    }

    /// Joins a queue pair with the peer outside that the gateway has for it.
    pub(super) fn join(&mut self, index: usize) -> Result<(), Errno> {
        let pair = self.queue_pairs.get(index).and_then(Option::as_ref).filter(|it| it.is_told);
        let number = pair.ok_or(Errno::HOSTUNREACH)?.number;
        let Told::Window { requests, receives, spans } = self.ask_gateway(&Ask::Join { number }, &[])? else {
            return Err(Errno::PROTO);
        };
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let (requests, most_receives, spans) = (count(requests), count(receives), count(spans));
        if let (Some(Some(pair)), Some(session)) = (self.queue_pairs.get_mut(index), &mut self.gateway) {
            pair.connections.clear();
            pair.outside = Some(Outside { requests, most_receives, spans, receives: VecDeque::new() });
            session.joined.insert(number, index);
        }
        Ok(())
    }
}
