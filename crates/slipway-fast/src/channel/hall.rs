//! The connections of callers, until each sends a request.

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

use super::guest::{Guest, Shown, Stranger};
use super::line::Line;
use super::{Asked, ChannelError, Hello, Key, Limits};
use crate::sync::timespec;

const BELL: u64 = 0;
const LISTENER: u64 = 1;
const FIRST: u64 = 2;

/// How long nobody is accepted after the kernel had no descriptor or memory for it.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a stranger has at least, however many others there are.
const GRACE: Duration = Duration::from_millis(100);

pub(super) struct Hall<F> {
    poll: OwnedFd,
    listener: TcpListener,
    /// Nobody is accepted for now.
    paused: Option<Pause>,
    /// The lab's key, and who this is.
    own: (Key, Hello),
    limits: Limits,
    ask: F,
    breaches: Arc<AtomicU64>,
    /// The number of the next connection. Numbers are never used again.
    next: u64,
    /// Connections whose callers have not shown who they are, the oldest first.
    strangers: VecDeque<(u64, Stranger)>,
    /// Those who have, by index of their hosts.
    guests: BTreeMap<u32, Guest>,
}

struct Pause {
    until: Instant,
    /// It ends earlier if a stranger goes or becomes known.
    full: bool,
}

impl<F: FnMut(Asked)> Hall<F> {
    pub(super) fn new(
        bell: &OwnedFd,
        listener: TcpListener,
        own: (Key, Hello),
        limits: Limits,
        ask: F,
        breaches: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&poll, bell, BELL)?;
        watch(&poll, &listener, LISTENER)?;
        let (strangers, guests) = (VecDeque::new(), BTreeMap::new());
        Ok(Self { poll, listener, paused: None, own, limits, ask, breaches, next: FIRST, strangers, guests })
    }

    /// Serves until the bell is rung.
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
                    number => self.hear(number),
                }
            }
            self.expire();
        }
    }

    /// When something has to be done though nobody does anything.
    fn deadline(&self) -> Option<Instant> {
        let oldest = self.strangers.front().map(|(_, stranger)| stranger.since + self.limits.handshake);
        oldest.into_iter().chain(self.paused.as_ref().map(|pause| pause.until)).min()
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let limit = self.limits.handshake;
        while self.strangers.front().is_some_and(|(_, stranger)| stranger.since + limit <= now) {
            self.strangers.pop_front();
        }
        let full = self.is_full();
        if self.paused.as_ref().is_some_and(|pause| pause.until <= now || pause.full && !full) {
            let watched = watch(&self.poll, &self.listener, LISTENER);
            self.paused = watched.is_err().then_some(Pause { until: now + PAUSE, full: false });
        }
    }

    fn is_full(&self) -> bool {
        self.strangers.len() >= self.limits.strangers
    }

    /// Leaves those who call in the kernel's queue, where they are not reported again and again.
    fn pause(&mut self, until: Instant, full: bool) {
        let _ = epoll::delete(&self.poll, &self.listener);
        self.paused = Some(Pause { until, full });
    }

    fn accept(&mut self) {
        loop {
            if self.is_full()
                && let Some((_, oldest)) = self.strangers.front()
            {
                let due = oldest.since + GRACE;
                if due > Instant::now() {
                    return self.pause(due, true);
                }
                self.strangers.pop_front();
            }
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                // A connection that cannot be served is closed.
                Ok(socket) => drop(self.receive(Line::over(socket.into()))),
                // Somebody who hung up before being accepted, and other such errors of a connection (accept(2)).
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::NETUNREACH | Errno::HOSTUNREACH) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.strangers.pop_front();
                    return self.pause(Instant::now() + PAUSE, false);
                }
            }
        }
    }

    fn receive(&mut self, line: Line) -> io::Result<()> {
        watch(&self.poll, &line, self.next)?;
        self.strangers.push_back((self.next, Stranger::new(line)));
        self.next += 1;
        Ok(())
    }

    fn hear(&mut self, number: u64) {
        let heard = match self.guests.iter().find(|(_, guest)| guest.has(number)) {
            Some((&host, _)) => self.hear_guest(host, number),
            None => self.hear_stranger(number),
        };
        if let Err(error) = heard {
            if matches!(error, ChannelError::Breach(_)) {
                self.breaches.fetch_add(1, Ordering::Relaxed);
            }
            self.guests.retain(|_, guest| guest.stays_without(number));
            self.strangers.retain(|(other, _)| *other != number);
        }
    }

    fn hear_stranger(&mut self, number: u64) -> Result<(), ChannelError> {
        // One that was pushed out meanwhile is not there.
        let Some(place) = self.strangers.iter().position(|(other, _)| *other == number) else { return Ok(()) };
        let shown = self.strangers[place].1.hear(&self.own, &mut self.guests)?;
        if matches!(shown, Shown::Nothing) {
            return Ok(());
        }
        let Some((_, Stranger { line, .. })) = self.strangers.remove(place) else { return Ok(()) };
        match shown {
            Shown::Nothing => {}
            // Its host has no other by now: who has the lab's key is believed.
            Shown::Router(session, host) => drop(self.guests.insert(host, Guest::new(number, line, session))),
            Shown::Connection(talk, host) => {
                if let Some(guest) = self.guests.get_mut(&host) {
                    guest.keep(number, line, talk, self.limits.waiting);
                }
            }
        }
        Ok(())
    }

    fn hear_guest(&mut self, host: u32, number: u64) -> Result<(), ChannelError> {
        let Some(guest) = self.guests.get_mut(&host) else { return Ok(()) };
        let Some((open, line, talk)) = guest.hear(number)? else { return Ok(()) };
        epoll::delete(&self.poll, &line).map_err(io::Error::from)?;
        (self.ask)(Asked { host, open, line, talk });
        Ok(())
    }
}

/// Wakes the thread when `what` is readable or hung up.
fn watch(poll: &OwnedFd, what: impl AsFd, number: u64) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    Ok(epoll::add(poll, what, epoll::EventData::new_u64(number), flags)?)
}
