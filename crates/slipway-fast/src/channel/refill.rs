//! The thread of a pool: makes connections, all at once and without waiting for any, and hears when one dies.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;

use super::handshake::Handshake;
use super::line::{Greeting, Line, timespec};
use super::pool::{Ready, Shared};
use super::{ChannelError, Hello, Key, Message, Nonce, Session};

const BELL: u64 = 0;

/// How long a connection may take to be made, TCP's part and the handshake.
const LIMIT: Duration = Duration::from_secs(5);
/// How long it is left alone after one failed; twice as long after each further failure, up to the second.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

pub(super) struct Refill {
    shared: Arc<Shared>,
    key: Key,
    us: Hello,
    /// The number of the next connection. Numbers are never used again.
    next: u64,
    /// Connections that are being made.
    making: HashMap<u64, Making>,
    /// Whose last connection failed: when to try again, and how long was waited for that.
    patience: BTreeMap<u32, (Instant, Duration)>,
}

struct Making {
    host: u32,
    greeting: Greeting,
    /// To be said once it is connected.
    first: Option<Message>,
}

impl Refill {
    pub(super) fn new(shared: Arc<Shared>, key: Key, us: Hello) -> io::Result<Self> {
        epoll::add(&shared.poll, &shared.bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Self { shared, key, us, next: BELL + 1, making: HashMap::new(), patience: BTreeMap::new() })
    }

    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        while !self.shared.ending.load(Ordering::Acquire) {
            self.refill();
            events.clear();
            let timeout = self.deadline().map(|at| timespec(at.saturating_duration_since(Instant::now())));
            let wait = epoll::wait(&self.shared.poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            if !matches!(wait, Ok(_) | Err(Errno::INTR)) {
                return;
            }
            for event in &events {
                match event.data.u64() {
                    BELL => drop(rustix::io::read(&self.shared.bell, &mut [0; 8])),
                    number if self.making.contains_key(&number) => self.go_on(number),
                    number => self.bury(number),
                }
            }
            self.expire();
        }
    }

    /// Begins connections where half or more are gone.
    fn refill(&mut self) {
        let shared = self.shared.clone();
        let now = Instant::now();
        for (host, peer) in &shared.peers {
            if self.patience.get(host).is_some_and(|(until, _)| *until > now) {
                continue;
            }
            let coming = self.making.values().filter(|making| making.host == *host).count();
            let there = peer.shelf().ready.len() + coming;
            if there > shared.wanted / 2 {
                continue;
            }
            // After a failure one shows whether it is worth it.
            let missing = if self.patience.contains_key(host) { 1 - coming.min(1) } else { shared.wanted - there };
            for _ in 0..missing {
                if let Err(error) = self.begin(*host, peer.address) {
                    self.fail(*host, &error.into());
                    break;
                }
            }
        }
    }

    fn begin(&mut self, host: u32, address: SocketAddr) -> io::Result<()> {
        let (handshake, first) = Handshake::call(self.key.clone(), self.us, host, Nonce::draw()?);
        let line = Line::connect(address)?;
        epoll::add(&self.shared.poll, &line, epoll::EventData::new_u64(self.next), epoll::EventFlags::OUT)?;
        let greeting = Greeting::new(line, handshake, LIMIT);
        self.making.insert(self.next, Making { host, greeting, first: Some(first) });
        self.next += 1;
        Ok(())
    }

    fn go_on(&mut self, number: u64) {
        let Some(mut making) = self.making.remove(&number) else { return };
        match self.step(number, &mut making) {
            Ok(None) => {
                self.making.insert(number, making);
            }
            Ok(Some(session)) => {
                let Making { host, greeting: Greeting { line, .. }, .. } = making;
                self.patience.remove(&host);
                self.shared.peers[&host].change(|shelf| {
                    shelf.trouble = None;
                    shelf.ready.push(Ready { number, line, session });
                });
            }
            Err(error) => self.fail(making.host, &error),
        }
    }

    fn step(&self, number: u64, making: &mut Making) -> Result<Option<Session>, ChannelError> {
        let Making { greeting, first, .. } = making;
        if let Some(first) = first.take() {
            greeting.line.connected()?;
            greeting.line.say(&first)?;
            let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            let data = epoll::EventData::new_u64(number);
            epoll::modify(&self.shared.poll, &greeting.line, data, flags).map_err(io::Error::from)?;
            return Ok(None);
        }
        Ok(greeting.step()?.map(|(session, _)| session))
    }

    /// One that was ready and is dead, or spoke out of turn, unless it was taken meanwhile.
    fn bury(&self, number: u64) {
        for peer in self.shared.peers.values() {
            peer.shelf().ready.retain(|ready| ready.number != number);
        }
    }

    fn fail(&mut self, host: u32, error: &ChannelError) {
        let (first, longest) = PATIENCE;
        let now = Instant::now();
        let wait = match self.patience.get(&host) {
            // Others that were begun at the same time say the same.
            Some((until, _)) if *until > now => None,
            Some((_, waited)) => Some((*waited * 2).min(longest)),
            None => Some(first),
        };
        self.patience.extend(wait.map(|wait| (host, (now + wait, wait))));
        let trouble = error.to_string();
        self.shared.peers[&host].change(|shelf| shelf.trouble = Some(trouble));
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let late: Vec<u64> = self
            .making
            .iter()
            .filter(|(_, making)| making.greeting.deadline <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            if let Some(making) = self.making.remove(&number) {
                self.fail(making.host, &ChannelError::TimedOut);
            }
        }
    }

    /// When something has to be done though nothing happens.
    fn deadline(&self) -> Option<Instant> {
        let making = self.making.values().map(|making| making.greeting.deadline);
        let patience = self.patience.values().map(|(until, _)| *until).filter(|until| *until > Instant::now());
        making.chain(patience).min()
    }
}
