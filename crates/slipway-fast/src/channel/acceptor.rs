//! The side that is called: connections of other hosts' routers, each waiting to be asked for a server.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::handshake::Handshake;
use super::line::{Greeting, Line};
use super::session::length_of;
use super::{Answer, ChannelError, Hello, Key, Nonce, Open, Refusal, Session, Verdict};
use crate::sync::{bell, ring, timespec};

const BELL: u64 = 0;
const LISTENER: u64 = 1;
const FIRST: u64 = 2;

/// How long nobody is accepted after the kernel had no descriptor or memory for it.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a stranger has at least, however many others there are.
const GRACE: Duration = Duration::from_millis(100);

/// What callers may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many there are at once who have not shown that they are of the lab, at least one. One more makes the oldest
    /// go once that had 100 ms for it, and is not accepted before.
    pub strangers: usize,
    /// How long each of these has while there are not too many.
    pub handshake: Duration,
    /// How many connections of one other host wait, at least one. One more makes the oldest go: its router died where it
    /// could not say so, or its pool is greater.
    pub waiting: usize,
}

impl Default for Limits {
    /// 128 for 5 s: a handshake takes two round trips, so that no router of the lab is pushed out, and a flood of
    /// strangers costs 128 descriptors and passes at 1280 a second. 256 that wait.
    fn default() -> Self {
        Self { strangers: 128, handshake: Duration::from_secs(5), waiting: 256 }
    }
}

/// Accepts connections of other routers in a thread of its own, which ends with it. It costs nothing while nobody calls.
#[derive(Debug)]
pub struct Acceptor {
    bell: Arc<OwnedFd>,
    breaches: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// Another router asks for a server, and waits. Dropped without an answer, it closes the connection.
#[derive(Debug)]
pub struct Asked {
    /// Index of the router's host.
    pub host: u32,
    /// For what.
    pub open: Open,
    line: Line,
    session: Session,
}

impl Asked {
    /// Says yes, and gives the stream for the server's program. Nothing of it has been read.
    ///
    /// # Errors
    /// When the caller is gone.
    pub fn accept(self) -> Result<TcpStream, ChannelError> {
        self.accept_after(|_| ()).map(|(stream, ())| stream)
    }

    /// The same, after something has been done about the stream. What came of that is dropped before the stream is closed.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_after<T>(mut self, act: impl FnOnce(BorrowedFd<'_>) -> T) -> Result<(TcpStream, T), ChannelError> {
        let came = act(self.line.as_fd());
        self.say(Answer::Accepted)?;
        Ok((self.line.release(), came))
    }

    /// Says no.
    ///
    /// # Errors
    /// When the caller is gone.
    pub fn refuse(mut self, reason: Refusal) -> Result<(), ChannelError> {
        self.say(Answer::Refused(reason))
    }

    fn say(&mut self, answer: Answer) -> Result<(), ChannelError> {
        let verdict = self.session.seal(&Verdict { flow: self.open.flow, answer });
        self.line.say(&verdict)
    }
}

/// Readable, or hung up, as soon as the caller gives up.
impl AsFd for Asked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

impl Acceptor {
    /// Begins. `ask` is called in the acceptor's thread with each question, and may take it elsewhere to answer it later;
    /// what keeps it long keeps those after it.
    ///
    /// # Errors
    /// When the kernel has no descriptors or no thread for it.
    pub fn start(
        listener: TcpListener,
        key: Key,
        us: Hello,
        limits: Limits,
        ask: impl FnMut(Asked) + Send + 'static,
    ) -> io::Result<Self> {
        let limits = Limits { strangers: limits.strangers.max(1), waiting: limits.waiting.max(1), ..limits };
        listener.set_nonblocking(true)?;
        let (poll, bell) = (epoll::create(epoll::CreateFlags::CLOEXEC)?, Arc::new(bell()?));
        watch(&poll, &bell, BELL)?;
        watch(&poll, &listener, LISTENER)?;
        let breaches = Arc::new(AtomicU64::new(0));
        let hall = Hall {
            poll,
            listener,
            paused: None,
            key,
            us,
            limits,
            ask,
            breaches: breaches.clone(),
            next: FIRST,
            strangers: VecDeque::new(),
            waiting: BTreeMap::new(),
        };
        let rung = bell.clone();
        let thread = std::thread::Builder::new().name("acceptor".into()).spawn(move || {
            // Kept open here too, for the epoll instance refers to it.
            let _rung = rung;
            hall.run();
        })?;
        Ok(Self { bell, breaches, thread: Some(thread) })
    }

    /// How many connections were closed because of a [`Breach`](super::Breach).
    #[must_use]
    pub fn breaches(&self) -> u64 {
        self.breaches.load(Ordering::Relaxed)
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        ring(&self.bell);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where callers are until they are asked for.
struct Hall<F> {
    poll: OwnedFd,
    listener: TcpListener,
    /// Nobody is accepted for now.
    paused: Option<Pause>,
    key: Key,
    us: Hello,
    limits: Limits,
    ask: F,
    breaches: Arc<AtomicU64>,
    /// The number of the next connection. Numbers are never used again.
    next: u64,
    /// Those who have not shown who they are, the oldest first.
    strangers: VecDeque<(u64, Greeting)>,
    /// Those who have, and have not asked yet.
    waiting: BTreeMap<u64, Waiting>,
}

struct Pause {
    until: Instant,
    /// It ends earlier if a stranger goes or becomes known.
    full: bool,
}

struct Waiting {
    host: u32,
    line: Line,
    session: Session,
}

impl<F: FnMut(Asked)> Hall<F> {
    fn run(mut self) {
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
        let oldest = self.strangers.front().map(|(_, greeting)| greeting.deadline);
        oldest.into_iter().chain(self.paused.as_ref().map(|pause| pause.until)).min()
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while self.strangers.front().is_some_and(|(_, greeting)| greeting.deadline <= now) {
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
                Ok(socket) => drop(self.greet(socket.into())),
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

    fn greet(&mut self, stream: TcpStream) -> io::Result<()> {
        let handshake = Handshake::answer(self.key.clone(), self.us, Nonce::draw()?);
        let greeting = Greeting::new(Line::over(stream), handshake, self.limits.handshake);
        watch(&self.poll, &greeting.line, self.next)?;
        self.strangers.push_back((self.next, greeting));
        self.next += 1;
        Ok(())
    }

    fn hear(&mut self, number: u64) {
        let heard =
            if self.waiting.contains_key(&number) { self.hear_waiting(number) } else { self.hear_stranger(number) };
        if let Err(error) = heard {
            if matches!(error, ChannelError::Breach(_)) {
                self.breaches.fetch_add(1, Ordering::Relaxed);
            }
            self.waiting.remove(&number);
            self.strangers.retain(|(other, _)| *other != number);
        }
    }

    fn hear_stranger(&mut self, number: u64) -> Result<(), ChannelError> {
        // One that was pushed out meanwhile is not there.
        let Some(place) = self.strangers.iter().position(|(other, _)| *other == number) else { return Ok(()) };
        if let Some((session, Hello { host, .. })) = self.strangers[place].1.step()?
            && let Some((_, Greeting { line, .. })) = self.strangers.remove(place)
        {
            // In the order of their numbers, which is that of their age.
            let mut others = self.waiting.iter().filter(|(_, waiting)| waiting.host == host).map(|(number, _)| *number);
            let oldest = others.next();
            if others.count() + 1 >= self.limits.waiting {
                oldest.map(|oldest| self.waiting.remove(&oldest));
            }
            self.waiting.insert(number, Waiting { host, line, session });
        }
        Ok(())
    }

    fn hear_waiting(&mut self, number: u64) -> Result<(), ChannelError> {
        let Some(waiting) = self.waiting.get_mut(&number) else { return Ok(()) };
        let Some(message) = waiting.line.hear(length_of::<Open>())? else { return Ok(()) };
        let open = waiting.session.open(message)?;
        if let Some(Waiting { host, line, session }) = self.waiting.remove(&number) {
            epoll::delete(&self.poll, &line).map_err(io::Error::from)?;
            (self.ask)(Asked { host, open, line, session });
        }
        Ok(())
    }
}

/// Wakes the thread when `what` is readable or hung up.
fn watch(poll: &OwnedFd, what: impl AsFd, number: u64) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    Ok(epoll::add(poll, what, epoll::EventData::new_u64(number), flags)?)
}
