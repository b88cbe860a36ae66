//! The thread of a pool. It makes connections, many at once and without blocking, and notices when a session ends.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;

use super::connection::{Connection, Progress};
use super::handshake::Handshake;
use super::ready::{Ready, Shared};
use super::{ChannelError, Hello, Key, Message, Nonce, Session};
use crate::sync::timespec;

const BELL: u64 = 0;

/// Longest time to make a connection: TCP's part and, for a session, the handshake.
const LIMIT: Duration = Duration::from_secs(5);
/// Shortest and longest pause after a failed attempt. Each further failure doubles the pause.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Most attempts for one host at once, well below the room in its router's queue.
const AT_ONCE: usize = 16;

pub(super) struct Connector {
    shared: Arc<Shared>,
    poll: OwnedFd,
    key: Key,
    us: Hello,
    /// The number of the next connection. Numbers are never used again.
    next: u64,
    /// Connections that are being made.
    attempts: HashMap<u64, Attempt>,
    hosts: BTreeMap<u32, HostState>,
}

/// The state of the connections to one host.
#[derive(Default)]
struct HostState {
    /// The session that further connections join. Without one, the connector first makes a session, and nothing else.
    live: Option<LiveSession>,
    /// Whether the connector adds connections until there are as many as wanted. It begins when half or more are gone.
    filling: bool,
    /// After a failure, the time of the next attempt, and the length of the pause before it.
    backoff: Option<(Instant, Duration)>,
    /// Connections that are being made.
    pending: usize,
}

/// A session and its first connection, which carries nothing more, and ends with the other router.
struct LiveSession {
    number: u64,
    connection: Connection,
    session: Session,
}

struct Attempt {
    host: u32,
    connection: Connection,
    deadline: Instant,
    stage: Stage,
}

enum Stage {
    /// For a session: the greeting goes out once TCP is connected.
    Calling(Handshake, Message),
    /// For a session: the handshake goes on.
    Shaking(Handshake),
    /// For a further connection of a session.
    Joining,
}

impl Connector {
    pub(super) fn new(shared: Arc<Shared>, key: Key, us: Hello) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &shared.bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let hosts = shared.peers.keys().map(|host| (*host, HostState::default())).collect();
        Ok(Self { shared, poll, key, us, next: BELL + 1, attempts: HashMap::new(), hosts })
    }

    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        while !self.shared.ending.load(Ordering::Acquire) {
            // No event tells when callers take connections that were ready at once.
            let due = if self.fill() { Some(Instant::now()) } else { self.deadline() };
            events.clear();
            let timeout = due.map(|at| timespec(at.saturating_duration_since(Instant::now())));
            let wait = epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            if !matches!(wait, Ok(_) | Err(Errno::INTR)) {
                return;
            }
            for event in &events {
                match event.data.u64() {
                    BELL => drop(rustix::io::read(&self.shared.bell, &mut [0; 8])),
                    number => self.handle(number),
                }
            }
            self.expire();
        }
    }

    /// Begins to make the missing connections. True where any was ready at once.
    fn fill(&mut self) -> bool {
        let mut at_once = false;
        let shared = self.shared.clone();
        let now = Instant::now();
        for (host, peer) in &shared.peers {
            let Some(state) = self.hosts.get_mut(host) else { continue };
            let ready = peer.lock().ready.len();
            state.filling = ready <= shared.wanted / 2 || state.filling && ready < shared.wanted;
            // After a failure, one attempt shows whether more are worth it.
            let most = match state.backoff {
                Some((until, _)) if until > now => 0,
                Some(_) => 1,
                None => AT_ONCE,
            };
            let missing = match state.live {
                None => most.min(1),
                Some(_) if state.filling => most.min(shared.wanted - ready),
                Some(_) => 0,
            };
            for _ in state.pending..missing {
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

    /// Begins to make a connection. True where it is ready at once.
    fn begin(&mut self, host: u32, address: SocketAddr) -> Result<bool, ChannelError> {
        let connection = Connection::connect(address)?;
        let (connection, stage) = if self.hosts[&host].live.is_some() {
            // Between hosts on one machine, TCP is connected by now.
            let Some(connection) = self.join(host, connection)? else { return Ok(true) };
            (connection, Stage::Joining)
        } else {
            let (handshake, first) = Handshake::call(self.key.clone(), self.us, host, Nonce::draw()?);
            (connection, Stage::Calling(handshake, first))
        };
        let data = epoll::EventData::new_u64(self.next);
        epoll::add(&self.poll, &connection, data, epoll::EventFlags::OUT).map_err(io::Error::from)?;
        self.keep(self.next, Attempt { host, connection, deadline: Instant::now() + LIMIT, stage });
        self.next += 1;
        Ok(false)
    }

    fn keep(&mut self, number: u64, attempt: Attempt) {
        self.hosts.entry(attempt.host).or_default().pending += 1;
        self.attempts.insert(number, attempt);
    }

    fn take(&mut self, number: u64) -> Option<Attempt> {
        let attempt = self.attempts.remove(&number)?;
        self.hosts.entry(attempt.host).or_default().pending -= 1;
        Some(attempt)
    }

    fn handle(&mut self, number: u64) {
        let Some(attempt) = self.take(number) else { return self.check(number) };
        let host = attempt.host;
        if let Err(error) = self.advance(number, attempt) {
            self.fail(host, &error);
        }
    }

    fn advance(&mut self, number: u64, attempt: Attempt) -> Result<(), ChannelError> {
        let Attempt { host, mut connection, deadline, stage } = attempt;
        let progress = match stage {
            Stage::Joining => {
                // The pool checks that it is alive when a caller takes it.
                epoll::delete(&self.poll, &connection).map_err(io::Error::from)?;
                return self.join(host, connection).map(drop);
            }
            Stage::Calling(handshake, first) => {
                connection.send(&first)?;
                let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
                epoll::modify(&self.poll, &connection, epoll::EventData::new_u64(number), flags)
                    .map_err(io::Error::from)?;
                Progress::More(handshake)
            }
            Stage::Shaking(handshake) => connection.advance(handshake)?,
        };
        match progress {
            Progress::More(handshake) => {
                self.keep(number, Attempt { host, connection, deadline, stage: Stage::Shaking(handshake) });
            }
            Progress::Done(session, _) => {
                connection.keep_alive()?;
                self.hosts.entry(host).or_default().live = Some(LiveSession { number, connection, session });
                self.succeed(host, None);
            }
        }
        Ok(())
    }

    /// Joins a connection to the session, which makes it ready. Returns it where TCP is not connected yet.
    fn join(&mut self, host: u32, connection: Connection) -> Result<Option<Connection>, ChannelError> {
        let live = self.hosts.get_mut(&host).and_then(|state| state.live.as_mut());
        // Without a session, the connection is of no use.
        let Some(LiveSession { session, .. }) = live else { return Ok(None) };
        let (records, join) = session.join();
        match connection.send(&join) {
            Err(ChannelError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Some(connection)),
            sent => sent?,
        }
        self.succeed(host, Some(Ready { connection, records }));
        Ok(None)
    }

    /// If this is a session's first connection and has ended, drops the session and its connections that no caller took.
    fn check(&mut self, number: u64) {
        for (host, state) in &mut self.hosts {
            let live = state.live.as_mut().filter(|live| live.number == number);
            let Some(Err(error)) = live.map(|live| live.connection.check_silent()) else { continue };
            (state.live, state.pending) = (None, 0);
            self.attempts.retain(|_, attempt| attempt.host != *host);
            self.shared.peers[host].change(|state| state.ready.clear());
            let host = *host;
            return self.fail(host, &error);
        }
    }

    fn succeed(&mut self, host: u32, ready: Option<Ready>) {
        self.hosts.entry(host).or_default().backoff = None;
        self.shared.peers[&host].change(|state| {
            state.trouble = None;
            state.ready.extend(ready);
        });
    }

    fn fail(&mut self, host: u32, error: &ChannelError) {
        let (first, longest) = BACKOFF;
        let now = Instant::now();
        let backoff = &mut self.hosts.entry(host).or_default().backoff;
        let wait = match backoff {
            // Attempts that began at the same time fail alike.
            Some((until, _)) if *until > now => None,
            Some((_, waited)) => Some((*waited * 2).min(longest)),
            None => Some(first),
        };
        if let Some(wait) = wait {
            *backoff = Some((now + wait, wait));
        }
        let trouble = error.to_string();
        self.shared.peers[&host].change(|state| state.trouble = Some(trouble));
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let late: Vec<u64> =
            self.attempts.iter().filter(|(_, attempt)| attempt.deadline <= now).map(|(number, _)| *number).collect();
        for number in late {
            if let Some(attempt) = self.take(number) {
                self.fail(attempt.host, &ChannelError::TimedOut);
            }
        }
    }

    /// The time when the next attempt ends or is due.
    fn deadline(&self) -> Option<Instant> {
        let attempts = self.attempts.values().map(|attempt| attempt.deadline);
        let backoff = self.hosts.values().filter_map(|state| state.backoff).map(|(until, _)| until);
        attempts.chain(backoff.filter(|until| *until > Instant::now())).min()
    }
}
