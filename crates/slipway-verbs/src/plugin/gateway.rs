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
use crate::gateway::{Ask, Told};
use crate::wire::{self, WireError};

/// The number of the session's events.
pub(super) const GATEWAY: u64 = u64::MAX - 2;
/// Where a node sees its gateway's listener.
const SOCKET: &str = "/run/slipway/gateway.sock";

#[derive(Debug)]
pub(super) struct Session {
    socket: OwnedFd,
    /// Packets that came before a reply.
    pub(super) kept: VecDeque<Told>,
    /// Places of queue pairs that are joined with peers outside, by number.
    pub(super) joined: HashMap<u32, usize>,
    pub(super) is_lost: bool,
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

    /// Waits for packets no more.
    pub(super) fn leave(&self, epoll: &OwnedFd) {
        let _ = epoll::delete(epoll, &self.socket);
    }

    /// Begins to wait for packets.
    pub(super) fn add_to(&self, epoll: &OwnedFd) -> Result<(), Errno> {
        epoll::add(epoll, &self.socket, EventData::new_u64(GATEWAY), EventFlags::IN)
    }

    /// The place of a queue pair that is joined with a peer outside.
    pub(super) fn place(&self, number: u32) -> Option<usize> {
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
    pub(super) fn ask(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<Told, Errno> {
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
    pub(super) fn next(&mut self) -> Option<Told> {
        if let Some(told) = self.kept.pop_front() {
            return Some(told);
        }
        self.receive()
    }
}
