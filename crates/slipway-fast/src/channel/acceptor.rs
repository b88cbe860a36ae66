//! The side that is called: connections of other hosts' routers, each waiting to be asked for a server.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::hall::Hall;
use super::line::Line;
use super::{ChannelError, Hello, Key, Open, OpenAnswer, OpenReply, Refusal, Talk};
use crate::sync::{bell, ring};

/// What callers may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many connections there are at once whose callers have not shown that they are of the lab, at least one. One more
    /// makes the oldest go once that had 100 ms for it, and is not accepted before.
    pub strangers: usize,
    /// How long each of these has while there are not too many.
    pub handshake: Duration,
    /// How many connections of one session wait, at least one. One more makes the oldest go: the caller's pool is greater.
    pub waiting: usize,
}

impl Default for Limits {
    /// 128 for 5 s: a handshake takes two round trips and a further connection none, so that no router of the lab is pushed out,
    /// and a flood of strangers costs 128 descriptors and passes at 1280 a second. 256 that wait.
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
    pub(super) line: Line,
    pub(super) talk: Talk,
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
        self.say(OpenAnswer::Accepted)?;
        Ok((self.line.release(), came))
    }

    /// Says no.
    ///
    /// # Errors
    /// When the caller is gone.
    pub fn refuse(mut self, reason: Refusal) -> Result<(), ChannelError> {
        self.say(OpenAnswer::Refused(reason))
    }

    fn say(&mut self, answer: OpenAnswer) -> Result<(), ChannelError> {
        let verdict = self.talk.seal(&OpenReply { flow: self.open.flow, answer });
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
        let (bell, breaches) = (Arc::new(bell()?), Arc::new(AtomicU64::new(0)));
        let hall = Hall::new(&bell, listener, (key, us), limits, ask, breaches.clone())?;
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
