//! The thread of a pool: makes connections, all at once and without waiting for any, and hears when a session ends.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;

use super::handshake::Handshake;
use super::line::{Line, Shaken};
use super::stock::{Ready, Shared};
use super::{ChannelError, Hello, Key, Message, Nonce, Session};
use crate::sync::timespec;

const BELL: u64 = 0;

/// How long a connection may take to be made, TCP's part and, for a session, the handshake.
const LIMIT: Duration = Duration::from_secs(5);
/// How long it is left alone after one failed; twice as long after each further failure, up to the second.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Most connections to one host that are being made at once, well below what its router's queue holds.
const AT_ONCE: usize = 16;

pub(super) struct Refill {
    shared: Arc<Shared>,
    poll: OwnedFd,
    key: Key,
    us: Hello,
    /// What the next connection is called here. Numbers are never used again.
    next: u64,
    /// Connections that are being made.
    making: HashMap<u64, Making>,
    courses: BTreeMap<u32, Course>,
}

/// How it goes with one host.
#[derive(Default)]
struct Course {
    /// What further connections belong to. Without one, it is what is being made, and nothing else.
    standing: Option<Standing>,
    /// Connections are made until there are as many as wanted. Begins when half or more are gone.
    filling: bool,
    /// The last attempt failed: when to try again, and how long is waited for that.
    patience: Option<(Instant, Duration)>,
    /// Connections that are being made.
    coming: usize,
}

/// A session, and the connection that it was begun on. Nothing more is said on that, and it ends with the other router.
struct Standing {
    number: u64,
    line: Line,
    session: Session,
}

struct Making {
    host: u32,
    line: Line,
    deadline: Instant,
    stage: Stage,
}

enum Stage {
    /// For a session: to be said once it is connected.
    Calling(Handshake, Message),
    /// For a session.
    Shaking(Handshake),
    /// For the stock.
    Joining,
}

impl Refill {
    pub(super) fn new(shared: Arc<Shared>, key: Key, us: Hello) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &shared.bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let courses = shared.peers.keys().map(|host| (*host, Course::default())).collect();
        Ok(Self { shared, poll, key, us, next: BELL + 1, making: HashMap::new(), courses })
    }

    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        while !self.shared.ending.load(Ordering::Acquire) {
            // Nobody tells when those are taken again that were ready at once.
            let due = if self.refill() { Some(Instant::now()) } else { self.deadline() };
            events.clear();
            let timeout = due.map(|at| timespec(at.saturating_duration_since(Instant::now())));
            let wait = epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            if !matches!(wait, Ok(_) | Err(Errno::INTR)) {
                return;
            }
            for event in &events {
                match event.data.u64() {
                    BELL => drop(rustix::io::read(&self.shared.bell, &mut [0; 8])),
                    number => self.hear(number),
                }
            }
            self.expire();
        }
    }

    /// Begins what connections are missing. Whether any was ready at once.
    fn refill(&mut self) -> bool {
        let mut at_once = false;
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
            let missing = match course.standing {
                None => most.min(1),
                Some(_) if course.filling => most.min(shared.wanted - ready),
                Some(_) => 0,
            };
            for _ in course.coming..missing {
                match self.begin(*host, peer.address) {
                    Ok(ready) => at_once |= ready,
                    Err(error) => {
                        self.fail(*host, &error);
                        break;
                    }
                }
            }
        }
        at_once
    }

    /// Begins one. Whether it is ready.
    fn begin(&mut self, host: u32, address: SocketAddr) -> Result<bool, ChannelError> {
        let line = Line::connect(address)?;
        let (line, stage) = if self.courses[&host].standing.is_some() {
            // Where the hosts are of one machine, it is connected by now.
            let Some(line) = self.join(host, line)? else { return Ok(true) };
            (line, Stage::Joining)
        } else {
            let (handshake, first) = Handshake::call(self.key.clone(), self.us, host, Nonce::draw()?);
            (line, Stage::Calling(handshake, first))
        };
        let data = epoll::EventData::new_u64(self.next);
        epoll::add(&self.poll, &line, data, epoll::EventFlags::OUT).map_err(io::Error::from)?;
        self.keep(self.next, Making { host, line, deadline: Instant::now() + LIMIT, stage });
        self.next += 1;
        Ok(false)
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

    fn hear(&mut self, number: u64) {
        let Some(making) = self.take(number) else { return self.check(number) };
        let host = making.host;
        if let Err(error) = self.go_on(number, making) {
            self.fail(host, &error);
        }
    }

    fn go_on(&mut self, number: u64, making: Making) -> Result<(), ChannelError> {
        let Making { host, mut line, deadline, stage } = making;
        let shaken = match stage {
            Stage::Joining => {
                // Whether it is alive is asked when it is taken.
                epoll::delete(&self.poll, &line).map_err(io::Error::from)?;
                return self.join(host, line).map(drop);
            }
            Stage::Calling(handshake, first) => {
                line.say(&first)?;
                let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
                epoll::modify(&self.poll, &line, epoll::EventData::new_u64(number), flags).map_err(io::Error::from)?;
                Shaken::More(handshake)
            }
            Stage::Shaking(handshake) => line.shake(handshake)?,
        };
        match shaken {
            Shaken::More(handshake) => {
                self.keep(number, Making { host, line, deadline, stage: Stage::Shaking(handshake) });
            }
            Shaken::Done(session, _) => {
                line.keep_alive()?;
                self.courses.entry(host).or_default().standing = Some(Standing { number, line, session });
                self.succeed(host, None);
            }
        }
        Ok(())
    }

    /// A connection that is there is said to be of the session, and is ready. One that is not there yet is given back.
    fn join(&mut self, host: u32, line: Line) -> Result<Option<Line>, ChannelError> {
        let standing = self.courses.get_mut(&host).and_then(|course| course.standing.as_mut());
        // It would have gone with its session.
        let Some(Standing { session, .. }) = standing else { return Ok(None) };
        let (talk, join) = session.join();
        match line.say(&join) {
            Err(ChannelError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Some(line)),
            said => said?,
        }
        self.succeed(host, Some(Ready { line, talk }));
        Ok(None)
    }

    /// Where the session of this connection is over, what belongs to it goes with it, unless it was taken before.
    fn check(&mut self, number: u64) {
        for (host, course) in &mut self.courses {
            let standing = course.standing.as_mut().filter(|standing| standing.number == number);
            let Some(Err(error)) = standing.map(|standing| standing.line.stands()) else { continue };
            (course.standing, course.coming) = (None, 0);
            self.making.retain(|_, making| making.host != *host);
            self.shared.peers[host].change(|stock| stock.ready.clear());
            let host = *host;
            return self.fail(host, &error);
        }
    }

    fn succeed(&mut self, host: u32, ready: Option<Ready>) {
        self.courses.entry(host).or_default().patience = None;
        self.shared.peers[&host].change(|stock| {
            stock.trouble = None;
            stock.ready.extend(ready);
        });
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
        let late: Vec<u64> =
            self.making.iter().filter(|(_, making)| making.deadline <= now).map(|(number, _)| *number).collect();
        for number in late {
            if let Some(making) = self.take(number) {
                self.fail(making.host, &ChannelError::TimedOut);
            }
        }
    }

    /// When something has to be done though nothing happens.
    fn deadline(&self) -> Option<Instant> {
        let making = self.making.values().map(|making| making.deadline);
        let patience = self.courses.values().filter_map(|course| course.patience).map(|(until, _)| until);
        making.chain(patience.filter(|until| *until > Instant::now())).min()
    }
}
