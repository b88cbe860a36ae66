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
use super::line::{Greeting, Line};
use super::pool::{Ready, Shared};
use super::{ChannelError, Hello, Key, Message, Nonce, Session};
use crate::sync::timespec;

const BELL: u64 = 0;

/// How long a connection may take to be made, TCP's part and the handshake.
const LIMIT: Duration = Duration::from_secs(5);
/// How long it is left alone after one failed; twice as long after each further failure, up to the second.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Most connections to one host that are being made at once, well below what its router's queue holds.
const AT_ONCE: usize = 16;

pub(super) struct Refill {
    shared: Arc<Shared>,
    key: Key,
    us: Hello,
    /// The number of the next connection. Numbers are never used again.
    next: u64,
    /// Connections that are being made.
    making: HashMap<u64, Making>,
    courses: BTreeMap<u32, Course>,
}

/// How it goes with one host.
#[derive(Default)]
struct Course {
    /// Connections are made until there are as many as wanted. Begins when half or more are gone.
    filling: bool,
    /// The last attempt failed: when to try again, and how long is waited for that.
    patience: Option<(Instant, Duration)>,
    /// Connections that are being made.
    coming: usize,
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
        let courses = shared.peers.keys().map(|host| (*host, Course::default())).collect();
        Ok(Self { shared, key, us, next: BELL + 1, making: HashMap::new(), courses })
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

    /// Begins what connections are missing.
    fn refill(&mut self) {
        let shared = self.shared.clone();
        let now = Instant::now();
        for (host, peer) in &shared.peers {
            let Some(course) = self.courses.get_mut(host) else { continue };
            let ready = peer.stock().ready.len();
            course.filling = ready <= shared.wanted / 2 || course.filling && ready < shared.wanted;
            // After a failure one shows whether it is worth it.
            let most = match course.patience {
                Some((until, _)) if until > now => 0,
                Some(_) => 1,
                None => AT_ONCE,
            };
            let missing = if course.filling { most.min(shared.wanted - ready) } else { 0 };
            for _ in course.coming..missing {
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
        self.keep(self.next, Making { host, greeting, first: Some(first) });
        self.next += 1;
        Ok(())
    }

    fn keep(&mut self, number: u64, making: Making) {
        self.courses.entry(making.host).or_default().coming += 1;
        self.making.insert(number, making);
    }

    fn take(&mut self, number: u64) -> Option<Making> {
        let making = self.making.remove(&number)?;
        self.courses.entry(making.host).or_default().coming -= 1;
        Some(making)
    }

    fn go_on(&mut self, number: u64) {
        let Some(mut making) = self.take(number) else { return };
        match self.step(number, &mut making) {
            Ok(None) => self.keep(number, making),
            Ok(Some(session)) => {
                let Making { host, greeting: Greeting { line, .. }, .. } = making;
                self.courses.entry(host).or_default().patience = None;
                self.shared.peers[&host].change(|stock| {
                    stock.trouble = None;
                    stock.ready.push(Ready { number, line, session: Box::new(session) });
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
            peer.stock().ready.retain(|ready| ready.number != number);
        }
    }

    fn fail(&mut self, host: u32, error: &ChannelError) {
        let (first, longest) = PATIENCE;
        let now = Instant::now();
        let patience = &mut self.courses.entry(host).or_default().patience;
        let wait = match patience {
            // Others that were begun at the same time say the same.
            Some((until, _)) if *until > now => None,
            Some((_, waited)) => Some((*waited * 2).min(longest)),
            None => Some(first),
        };
        if let Some(wait) = wait {
            *patience = Some((now + wait, wait));
        }
        let trouble = error.to_string();
        self.shared.peers[&host].change(|stock| stock.trouble = Some(trouble));
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
            if let Some(making) = self.take(number) {
                self.fail(making.host, &ChannelError::TimedOut);
            }
        }
    }

    /// When something has to be done though nothing happens.
    fn deadline(&self) -> Option<Instant> {
        let making = self.making.values().map(|making| making.greeting.deadline);
        let patience = self.courses.values().filter_map(|course| course.patience).map(|(until, _)| until);
        making.chain(patience.filter(|until| *until > Instant::now())).min()
    }
}
