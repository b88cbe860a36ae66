//! The caller's side: connections to other hosts' routers, made before programs need them.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::connector::Connector;
use super::ready::{Peer, Ready, Shared};
use super::session::length_of;
use super::{ChannelError, Hello, Key, Open, OpenAnswer, OpenReply, ProtocolError, RecordLayer};
use crate::status;
use crate::sync::{bell, ring, whole};

/// Most ready connections for one host: half of what its acceptor lets wait by default
/// ([`Limits::waiting`](super::Limits::waiting)). So the acceptor never closes one for another.
const MOST: usize = 128;

/// Keeps connections to other routers ready, in a thread that ends when this is dropped. The thread uses no processor time
/// while no caller takes one and no session ends.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Pool {
    /// Starts the thread. It keeps `wanted` connections (1 to 128) ready for each of `peers`: the index of its host, and
    /// the address of its router's acceptor.
    ///
    /// # Errors
    /// When the kernel has no descriptors or no thread for it.
    pub fn start(
        key: Key,
        us: Hello,
        peers: impl IntoIterator<Item = (u32, SocketAddr)>,
        wanted: usize,
    ) -> io::Result<Self> {
        let peer = |address| Peer { address, state: Mutex::default(), changed: Condvar::new() };
        let shared = Arc::new(Shared {
            peers: peers.into_iter().map(|(host, address)| (host, peer(address))).collect(),
            wanted: wanted.clamp(1, MOST),
            bell: bell()?,
            ending: AtomicBool::new(false),
        });
        let connector = Connector::new(shared.clone(), key, us)?;
        let thread = std::thread::Builder::new().name("pool".into()).spawn(move || connector.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Requests a server from the router of `host`, on a connection that is ready, or becomes so within `limit`.
    ///
    /// # Errors
    /// `NotReady` when no connection becomes ready, at once where the last attempt to make one failed. `Gone` when the
    /// other router closes the connection.
    pub fn ask(&self, host: u32, open: &Open, limit: Duration) -> Result<PendingOpen, ChannelError> {
        self.take(host, Instant::now() + limit, Trouble::Ends)?.ask(open)
    }

    /// [`ask`](Self::ask)s, and waits for the reply, all within `limit`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask) and [`PendingOpen::wait`].
    pub fn open(&self, host: u32, open: &Open, limit: Duration) -> Result<TcpStream, ChannelError> {
        let deadline = Instant::now() + limit;
        self.ask(host, open, limit)?.wait(deadline)
    }

    /// Like [`open`](Self::open), for a caller that has no other way: waits while the other router is being replaced, and asks
    /// the next one.
    ///
    /// # Errors
    /// As [`open`](Self::open), after `limit` where there is no router.
    pub fn open_patiently(&self, host: u32, open: &Open, limit: Duration) -> Result<TcpStream, ChannelError> {
        let deadline = Instant::now() + limit;
        loop {
            let ready = self.take(host, deadline, Trouble::MayPass)?;
            match ready.ask(open).and_then(|pending| pending.wait(deadline)) {
                // The router has ended. Its other connections are found to have ended when they are taken.
                Err(ChannelError::Gone | ChannelError::Io(_)) if Instant::now() < deadline => {}
                opened => return opened,
            }
        }
    }

    /// The state of the connections to each other router, in the order of hosts.
    #[must_use]
    pub fn status(&self) -> Vec<status::Peer> {
        let status = |(host, peer): (&u32, &Peer)| {
            let state = peer.lock();
            status::Peer { host: *host, ready: state.ready.len(), trouble: state.trouble.clone() }
        };
        self.shared.peers.iter().map(status).collect()
    }

    fn take(&self, host: u32, deadline: Instant, trouble: Trouble) -> Result<Ready, ChannelError> {
        let not_ready = |trouble: &str| ChannelError::NotReady { host, trouble: trouble.to_owned() };
        let peer = self.shared.peers.get(&host).ok_or_else(|| not_ready("it has no router"))?;
        let mut state = peer.lock();
        loop {
            while let Some(ready) = state.ready.pop() {
                // Wakes the thread once, when half are gone, so that it makes many at a time. It looks again after each.
                if state.ready.len() == self.shared.wanted / 2 {
                    ring(&self.shared.bell);
                }
                if ready.connection.is_silent() {
                    return Ok(ready);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match &state.trouble {
                Some(why) if trouble == Trouble::Ends || left.is_zero() => return Err(not_ready(why)),
                None if left.is_zero() => return Err(not_ready("all are in use, and new ones are being made")),
                _ => {}
            }
            state.waiters += 1;
            state = whole(peer.changed.wait_timeout(state, left)).0;
            state.waiters -= 1;
        }
    }
}

/// Whether a caller waits where the last attempt to make a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Ends,
    MayPass,
}

impl Ready {
    fn ask(mut self, open: &Open) -> Result<PendingOpen, ChannelError> {
        self.connection.send(&self.records.seal(open))?;
        Ok(PendingOpen { flow: open.flow, connection: self.connection, records: self.records })
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

/// A request on its way. Its descriptor becomes readable when there is something to receive. To drop it takes it back.
#[derive(Debug)]
pub struct PendingOpen {
    flow: u64,
    connection: Connection,
    records: RecordLayer,
}

/// The result of [`PendingOpen::poll`].
#[derive(Debug)]
pub enum OpenProgress {
    /// The other side accepts: the stream for the client's program. Nothing of it has been read.
    Accepted(TcpStream),
    /// The reply is not complete yet.
    Pending(PendingOpen),
}

impl PendingOpen {
    /// Reads the reply, if it is there. Does not wait.
    ///
    /// # Errors
    /// `Refused`, or the error that ended the connection.
    pub fn poll(mut self) -> Result<OpenProgress, ChannelError> {
        let Some(message) = self.connection.receive(length_of::<OpenReply>())? else {
            return Ok(OpenProgress::Pending(self));
        };
        let reply: OpenReply = self.records.open(message)?;
        if reply.flow != self.flow {
            return Err(ProtocolError::OutOfOrder.into());
        }
        match reply.answer {
            OpenAnswer::Accepted => Ok(OpenProgress::Accepted(self.connection.release())),
            OpenAnswer::Refused(reason) => Err(ChannelError::Refused(reason)),
        }
    }

    /// Waits for the reply.
    ///
    /// # Errors
    /// As [`poll`](Self::poll), and `TimedOut`.
    pub fn wait(mut self, deadline: Instant) -> Result<TcpStream, ChannelError> {
        loop {
            if !self.connection.wait(deadline)? {
                return Err(ChannelError::TimedOut);
            }
            match self.poll()? {
                OpenProgress::Accepted(stream) => return Ok(stream),
                OpenProgress::Pending(again) => self = again,
            }
        }
    }
}

impl AsFd for PendingOpen {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
