//! The acceptor's event loop: it holds callers' connections until each sends a request.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::connection::Connection;
use super::incoming::{Authentication, PeerSession, Unauthenticated};
use super::{ChannelError, Hello, Key, Limits, OpenRequest};
use crate::sync::timespec;

const BELL: u64 = 0;
const LISTENER: u64 = 1;
const FIRST: u64 = 2;

/// Pause of `accept(2)` after the kernel had no descriptor or memory.
const PAUSE: Duration = Duration::from_millis(100);
/// Least time that an unauthenticated connection has, however many others there are.
const GRACE: Duration = Duration::from_millis(100);

pub(super) struct AcceptLoop<F> {
    poll: OwnedFd,
    listener: TcpListener,
    /// The end of a pause, during which the loop accepts no connection.
    paused: Option<Pause>,
    /// The lab's key, and this router's identity.
    own: (Key, Hello),
    limits: Limits,
    ask: F,
    protocol_errors: Arc<AtomicU64>,
    /// The number of the next connection. Numbers are never used again.
    next: u64,
    /// Connections whose callers have not authenticated themselves, the oldest first.
    unauthenticated: VecDeque<(u64, Unauthenticated)>,
    /// Sessions of authenticated routers, by index of their hosts.
    peers: BTreeMap<u32, PeerSession>,
}

struct Pause {
    until: Instant,
    /// The pause ends earlier if an unauthenticated connection closes or is authenticated.
    full: bool,
}

impl<F: FnMut(OpenRequest)> AcceptLoop<F> {
    pub(super) fn new(
        bell: &OwnedFd,
        listener: TcpListener,
        own: (Key, Hello),
        limits: Limits,
        ask: F,
        protocol_errors: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&poll, bell, BELL)?;
        watch(&poll, &listener, LISTENER)?;
        let (unauthenticated, peers) = (VecDeque::new(), BTreeMap::new());
        Ok(Self {
            poll,
            listener,
            paused: None,
            own,
            limits,
            ask,
            protocol_errors,
            next: FIRST,
            unauthenticated,
            peers,
        })
    }

    /// Serves until the acceptor is dropped.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            let timeout = self.deadline().map(|at| timespec(at.saturating_duration_since(Instant::now())));
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            for event in &events {
                match event.data.u64() {
                    BELL => return,
                    LISTENER => self.accept(),
                    number => self.handle(number),
                }
            }
            self.expire();
        }
    }

    /// The time when the next limit or pause ends.
    fn deadline(&self) -> Option<Instant> {
        let oldest = self.unauthenticated.front().map(|(_, entry)| entry.since + self.limits.handshake);
        oldest.into_iter().chain(self.paused.as_ref().map(|pause| pause.until)).min()
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let limit = self.limits.handshake;
        while self.unauthenticated.front().is_some_and(|(_, entry)| entry.since + limit <= now) {
            self.unauthenticated.pop_front();
        }
        let full = self.is_full();
        if self.paused.as_ref().is_some_and(|pause| pause.until <= now || pause.full && !full) {
            let watched = watch(&self.poll, &self.listener, LISTENER);
            self.paused = watched.is_err().then_some(Pause { until: now + PAUSE, full: false });
        }
    }

    fn is_full(&self) -> bool {
        self.unauthenticated.len() >= self.limits.unauthenticated
    }

    /// Stops accepting. Callers wait in the kernel's queue, and epoll no longer reports them.
    fn pause(&mut self, until: Instant, full: bool) {
        let _ = epoll::delete(&self.poll, &self.listener);
        self.paused = Some(Pause { until, full });
    }

    fn accept(&mut self) {
        loop {
            if self.is_full()
                && let Some((_, oldest)) = self.unauthenticated.front()
            {
                let due = oldest.since + GRACE;
                if due > Instant::now() {
                    return self.pause(due, true);
                }
                self.unauthenticated.pop_front();
            }
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                // A connection that the loop cannot watch is closed.
                Ok(socket) => drop(self.add(Connection::new(socket.into()))),
                // The caller hung up before this accepted it, or its connection had another such error (accept(2)).
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::NETUNREACH | Errno::HOSTUNREACH) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.unauthenticated.pop_front();
                    return self.pause(Instant::now() + PAUSE, false);
                }
            }
        }
    }

    fn add(&mut self, connection: Connection) -> io::Result<()> {
        watch(&self.poll, &connection, self.next)?;
        self.unauthenticated.push_back((self.next, Unauthenticated::new(connection)));
        self.next += 1;
        Ok(())
    }

    fn handle(&mut self, number: u64) {
        let handled = match self.peers.iter().find(|(_, peer)| peer.has(number)) {
            Some((&host, _)) => self.handle_peer(host, number),
            None => self.handle_unauthenticated(number),
        };
        if let Err(error) = handled {
            if matches!(error, ChannelError::Protocol(_)) {
                self.protocol_errors.fetch_add(1, Ordering::Relaxed);
            }
            self.peers.retain(|_, peer| peer.stays_without(number));
            self.unauthenticated.retain(|(other, _)| *other != number);
        }
    }

    fn handle_unauthenticated(&mut self, number: u64) -> Result<(), ChannelError> {
        // The connection may have been pushed out meanwhile.
        let Some(place) = self.unauthenticated.iter().position(|(other, _)| *other == number) else { return Ok(()) };
        let authentication = self.unauthenticated[place].1.receive(&self.own, &mut self.peers)?;
        if matches!(authentication, Authentication::Pending) {
            return Ok(());
        }
        let Some((_, Unauthenticated { connection, .. })) = self.unauthenticated.remove(place) else { return Ok(()) };
        match authentication {
            Authentication::Pending => {}
            // This session replaces an earlier one of its host: the loop believes a router that has the lab's key.
            Authentication::Router(session, host) => {
                drop(self.peers.insert(host, PeerSession::new(number, connection, session)));
            }
            Authentication::Connection(records, host) => {
                if let Some(peer) = self.peers.get_mut(&host) {
                    peer.keep(number, connection, records, self.limits.waiting);
                }
            }
        }
        Ok(())
    }

    fn handle_peer(&mut self, host: u32, number: u64) -> Result<(), ChannelError> {
        let Some(peer) = self.peers.get_mut(&host) else { return Ok(()) };
        let Some((open, connection, records)) = peer.receive(number)? else { return Ok(()) };
        epoll::delete(&self.poll, &connection).map_err(io::Error::from)?;
        (self.ask)(OpenRequest { host, open, connection, records });
        Ok(())
    }
}

/// Wakes the thread when `what` is readable or hung up.
fn watch(poll: &OwnedFd, what: impl AsFd, number: u64) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    Ok(epoll::add(poll, what, epoll::EventData::new_u64(number), flags)?)
}
