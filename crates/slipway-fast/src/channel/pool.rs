//! The side that calls: connections to other hosts' routers, made before they are needed.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::line::Line;
use super::refill::Refill;
use super::session::length_of;
use super::stock::{Peer, Ready, Shared};
use super::{Breach, ChannelError, Hello, Key, Open, OpenAnswer, OpenReply, Talk};
use crate::status;
use crate::sync::{bell, ring, whole};

/// Most connections that are kept ready for one host: half of what its acceptor lets wait by default
/// ([`Limits::waiting`](super::Limits::waiting)), so that it never sends one away for another.
const MOST: usize = 128;

/// Keeps connections to other routers ready, in a thread of its own, which ends with it. It costs nothing while none is
/// taken and no session ends.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Pool {
    /// Begins to keep `wanted` connections (1 to 128) ready for each of `peers`: index of its host, and where its
    /// router accepts.
    ///
    /// # Errors
    /// When the kernel has no descriptors or no thread for it.
    pub fn start(
        key: Key,
        us: Hello,
        peers: impl IntoIterator<Item = (u32, SocketAddr)>,
        wanted: usize,
    ) -> io::Result<Self> {
        let peer = |address| Peer { address, stock: Mutex::default(), changed: Condvar::new() };
        let shared = Arc::new(Shared {
            peers: peers.into_iter().map(|(host, address)| (host, peer(address))).collect(),
            wanted: wanted.clamp(1, MOST),
            bell: bell()?,
            ending: AtomicBool::new(false),
        });
        let refill = Refill::new(shared.clone(), key, us)?;
        let thread = std::thread::Builder::new().name("pool".into()).spawn(move || refill.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Asks the router of `host` for a server, on a connection that is ready, or becomes so within `limit`.
    ///
    /// # Errors
    /// `NotReady` when none is or becomes ready, at once where the last attempt to make one failed; `Gone` when the other
    /// router goes.
    pub fn ask(&self, host: u32, open: &Open, limit: Duration) -> Result<Asking, ChannelError> {
        let Ready { line, mut talk } = self.take(host, Instant::now() + limit)?;
        line.say(&talk.seal(open))?;
        Ok(Asking { flow: open.flow, line, talk })
    }

    /// [`ask`](Self::ask)s, and waits for the verdict, all within `limit`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask) and [`Asking::wait`].
    pub fn open(&self, host: u32, open: &Open, limit: Duration) -> Result<TcpStream, ChannelError> {
        let deadline = Instant::now() + limit;
        self.ask(host, open, limit)?.wait(deadline)
    }

    /// How it stands with each of the others, in the order of hosts.
    #[must_use]
    pub fn standing(&self) -> Vec<status::Peer> {
        let standing = |(host, peer): (&u32, &Peer)| {
            let stock = peer.stock();
            status::Peer { host: *host, ready: stock.ready.len(), trouble: stock.trouble.clone() }
        };
        self.shared.peers.iter().map(standing).collect()
    }

    fn take(&self, host: u32, deadline: Instant) -> Result<Ready, ChannelError> {
        let not_ready = |trouble: &str| ChannelError::NotReady { host, trouble: trouble.to_owned() };
        let peer = self.shared.peers.get(&host).ok_or_else(|| not_ready("it has no router"))?;
        let mut stock = peer.stock();
        loop {
            while let Some(ready) = stock.ready.pop() {
                // Once, when half are gone, so that they are made many at a time; the thread looks again after each.
                if stock.ready.len() == self.shared.wanted / 2 {
                    ring(&self.shared.bell);
                }
                if ready.line.is_quiet() {
                    return Ok(ready);
                }
            }
            if let Some(trouble) = &stock.trouble {
                return Err(not_ready(trouble));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(not_ready("all are in use, and new ones are being made"));
            }
            stock.askers += 1;
            stock = whole(peer.changed.wait_timeout(stock, left)).0;
            stock.askers -= 1;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        ring(&self.shared.bell);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A question on its way. Readable as soon as there is something to hear; dropped, it is taken back.
#[derive(Debug)]
pub struct Asking {
    flow: u64,
    line: Line,
    talk: Talk,
}

/// What [`Asking::hear`] heard.
#[derive(Debug)]
pub enum Heard {
    /// The other side accepts: the stream for the client's program. Nothing of it has been read.
    Accepted(TcpStream),
    /// Nothing yet.
    Nothing(Asking),
}

impl Asking {
    /// Whether the verdict is there. Does not wait.
    ///
    /// # Errors
    /// `Refused`, or whatever ended the connection.
    pub fn hear(mut self) -> Result<Heard, ChannelError> {
        let Some(message) = self.line.hear(length_of::<OpenReply>())? else { return Ok(Heard::Nothing(self)) };
        let reply: OpenReply = self.talk.open(message)?;
        if reply.flow != self.flow {
            return Err(Breach::Turn.into());
        }
        match reply.answer {
            OpenAnswer::Accepted => Ok(Heard::Accepted(self.line.release())),
            OpenAnswer::Refused(reason) => Err(ChannelError::Refused(reason)),
        }
    }

    /// Waits for the verdict.
    ///
    /// # Errors
    /// As [`hear`](Self::hear), and `TimedOut`.
    pub fn wait(mut self, deadline: Instant) -> Result<TcpStream, ChannelError> {
        loop {
            if !self.line.wait(deadline)? {
                return Err(ChannelError::TimedOut);
            }
            match self.hear()? {
                Heard::Accepted(stream) => return Ok(stream),
                Heard::Nothing(again) => self = again,
            }
        }
    }
}

impl AsFd for Asking {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}
