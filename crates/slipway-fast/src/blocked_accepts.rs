//! Calls that wait for their socket: `accept(2)` on a listener that blocks and has nobody in its queue.
//!
//! A blocked accept holds none of the program's files, or a listener that the program closes would stay open here. Epoll
//! drops a file that nobody else has (`epoll(7)`, Q6). When the listener becomes readable, the router tries the call again
//! from the start.
//!
//! This module also keeps connections that wait for calls. A program that usually waits in `accept(2)` comes for its next
//! connection by itself. If it polls instead, or is busy, a wake-up socket announces the connection in the kernel's queue.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_cookie;
use slipway_lab::id::NodeId;
use slipway_sys::notify::Call;
use slipway_sys::sockopt::{self, Name};

use crate::channel::OpenRequest;
use crate::journal::Journal;
use crate::listener_cache::{CachedListener, ListenerCache};
use crate::listener_copies::{ListenerCopies, ListenerCopy};
use crate::pending::Connection;
use crate::shares::Share;
use crate::sync::{bell, lock, ring, timespec};
use crate::tree::Tree;
use crate::wakeup::WakeupSocket;

// The data of an epoll event: a listener's cookie, which counts up from 1 (`net/core/sock_diag.c`), or the number of a wake-up,
// with a mark for its end or for its client's data. No count reaches a mark.
const WAKEUP_ENDED: u64 = 1 << 62;
const DATA_CAME: u64 = 1 << 63;
const BELL: u64 = u64::MAX;

/// No listener's cookie: connections whose listener the kernel is still to pick are kept under it.
const NO_LISTENER: u64 = 0;

/// Time that a connection waits for a call; it can delay a wake-up by as much.
const READY_FOR: Duration = Duration::from_millis(10);

/// Most connections that are kept for one listener; each takes the router a descriptor.
const MOST_READY: usize = 32;

/// Number of remembered listeners at which the router first looks for ended ones.
const FEW: usize = 256;

/// Most work that [`BlockedAccepts::entrust`] and [`BlockedAccepts::close`] leave to a node's thread, each with up to two
/// descriptors.
const MOST_ENTRUSTED: usize = 32;

/// A connection that the router keeps for a program's next `accept(2)`.
#[derive(Debug)]
pub(crate) struct ReadyConnection {
    /// Virtual address of the server.
    pub(crate) node: NodeId,
    /// Whether the listener's family is IPv6.
    pub(crate) ipv6: bool,
    /// The connection, ready to be given.
    pub(crate) connection: Connection,
    due: Instant,
}

impl ReadyConnection {
    /// Start of the wait.
    #[must_use]
    pub(crate) fn new(node: NodeId, ipv6: bool, connection: Connection) -> Self {
        Self { node, ipv6, connection, due: Instant::now() + READY_FOR }
    }
}

/// A listener at which programs wait in `accept(2)` for connections.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) node: NodeId,
    pub(crate) cached: CachedListener,
    pub(crate) socket: ListenerCopy,
    /// Number of connections that its queue has room for.
    pub(crate) room: usize,
}

/// An event of a node's epoll instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Another thread woke this one.
    Bell,
    /// The listener with this cookie is readable.
    Listener(u64),
    /// The client of the connection with this wake-up has sent data.
    Data(u64),
    /// This wake-up has ended before a program accepted it.
    Ended(u64),
}

/// Work that other threads have left to a node's thread.
#[derive(Debug)]
pub(crate) struct Entrusted {
    /// Connections, each with the listener whose programs come for it.
    pub(crate) connections: Vec<(Expected, Connection)>,
    /// Other hosts' requests, each with its share.
    pub(crate) requests: Vec<(OpenRequest, Share)>,
}

/// The result of offering a connection.
#[derive(Debug)]
pub(crate) enum Offered {
    /// This call gets it.
    For(Arc<Tree>, Call, ReadyConnection),
    /// The router keeps it for a later call.
    Kept,
    /// There is no room for it, or its program does not wait in `accept(2)`.
    Full(ReadyConnection),
}

/// A call that waits.
#[derive(Debug)]
struct BlockedAccept {
    tree: Arc<Tree>,
    call: Call,
    deadline: Option<Instant>,
}

/// All blocked accepts of a node, with a thread of their own. Programs can delay that thread, by a socket that closes
/// slowly (`SO_LINGER`) or by using all processor time. The delay affects their node alone. So threads that no node may
/// delay leave such work to it.
#[derive(Debug)]
pub(crate) struct BlockedAccepts {
    node: NodeId,
    journal: Arc<Journal>,
    /// Copies of its programs' listeners.
    pub(crate) copies: Arc<ListenerCopies>,
    /// Held while a thread accepts. The accept blocks where a program makes its listener anew meanwhile.
    pub(crate) accepting: Mutex<()>,
    epoll: OwnedFd,
    /// Wakes the thread when there is a new deadline (`eventfd(2)`).
    bell: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Blocked calls, oldest first, by the socket's cookie, which is never used again (`SO_COOKIE`).
    blocked: HashMap<u64, VecDeque<BlockedAccept>>,
    /// Sockets that are in the epoll instance, or were until they were closed.
    watched: HashSet<u64>,
    /// Number of these at which the router first looks for ended ones.
    sweep_at: usize,
    /// Listeners at which programs wait in `accept(2)`, and come soon.
    waited_at: HashSet<u64>,
    /// Connections that wait for calls.
    ready: HashMap<u64, VecDeque<ReadyConnection>>,
    /// Connections for the node's thread to hand over.
    entrusted: Vec<(Expected, Connection)>,
    /// Other hosts' requests for the node's thread to answer, each with its share.
    asked: Vec<(OpenRequest, Share)>,
    /// Copies of programs' descriptors for the node's thread to close.
    closing: Vec<ListenerCopy>,
    /// Whether the thread checks them from time to time, and their number when it last did.
    patrols: bool,
    since: usize,
}

impl State {
    /// Forgets calls that wait no more, and listeners at which nobody waits. So a program that makes many listeners takes
    /// no more memory than it has threads. Runs when the number has doubled since the last run.
    fn sweep(&mut self) {
        if self.watched.len().max(self.waited_at.len()) < self.sweep_at.max(FEW) {
            return;
        }
        self.blocked.retain(|_, blocked| {
            blocked.retain(|accept| accept.tree.listener.is_waiting(accept.call.id));
            !blocked.is_empty()
        });
        let Self { blocked, ready, watched, waited_at, .. } = self;
        for cookies in [&mut *watched, waited_at] {
            cookies.retain(|cookie| blocked.contains_key(cookie) || ready.contains_key(cookie));
        }
        self.sweep_at = 2 * self.watched.len().max(self.waited_at.len());
    }

    fn has_room(&self, cookie: u64, room: usize) -> bool {
        let is_parked = self.blocked.get(&cookie).is_some_and(|blocked| !blocked.is_empty());
        let ready = self.ready.get(&cookie).map_or(0, VecDeque::len);
        is_parked || self.waited_at.contains(&cookie) && ready < room.min(MOST_READY)
    }
}

impl BlockedAccepts {
    /// The blocked accepts of a node, with none yet.
    ///
    /// # Errors
    /// As `epoll_create1(2)`.
    pub(crate) fn new(node: NodeId, journal: Arc<Journal>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let (copies, accepting, state) = Default::default();
        let blocked_accepts = Self { node, journal, copies, accepting, epoll, bell: bell()?, state };
        blocked_accepts.watch(&blocked_accepts.bell, BELL, EventFlags::IN | EventFlags::ET)?;
        Ok(blocked_accepts)
    }

    fn watch(&self, socket: impl AsFd, data: u64, events: EventFlags) -> io::Result<()> {
        let data = EventData::new_u64(data);
        match epoll::add(&self.epoll, &socket, data, events) {
            // The instance has an entry of the same number and file, whose descriptor was closed, or that fired.
            Err(Errno::EXIST) => Ok(epoll::modify(&self.epoll, &socket, data, events)?),
            other => Ok(other?),
        }
    }

    /// Blocks a call until this socket, with this cookie, is readable, for `patience` at most. If a connection is ready,
    /// returns it instead. Check the socket once more afterwards: nobody may have received an earlier event.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`.
    pub(crate) fn block(
        &self,
        tree: &Arc<Tree>,
        call: Call,
        cookie: u64,
        socket: impl AsFd,
        patience: Option<Duration>,
    ) -> io::Result<Option<ReadyConnection>> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let accept = BlockedAccept { tree: Arc::clone(tree), call, deadline };
        let mut state = lock(&self.state);
        state.sweep();
        state.waited_at.insert(cookie);
        if let Some(ready) = state.ready.get_mut(&cookie).and_then(VecDeque::pop_front) {
            return Ok(Some(ready));
        }
        state.blocked.entry(cookie).or_default().push_back(accept);
        if state.watched.insert(cookie) {
            self.watch(&socket, cookie, EventFlags::IN | EventFlags::ET)?;
        }
        drop(state);
        if deadline.is_some() {
            ring(&self.bell);
        }
        Ok(None)
    }

    /// Takes a blocked call back; false where it has been served already.
    pub(crate) fn take_back(&self, tree: &Arc<Tree>, call: Call, cookie: u64) -> bool {
        let mut state = lock(&self.state);
        let Some(blocked) = state.blocked.get_mut(&cookie) else { return false };
        let is_it = |accept: &BlockedAccept| accept.call.id == call.id && Arc::ptr_eq(&accept.tree, tree);
        blocked.iter().position(is_it).is_some_and(|at| blocked.remove(at).is_some())
    }

    /// Whether programs wait in `accept(2)` at the socket with this cookie.
    pub(crate) fn is_waited_at(&self, cookie: u64) -> bool {
        lock(&self.state).waited_at.contains(&cookie)
    }

    /// Whether there is a call for a connection, or room to keep it. [`offer`](Self::offer) finds the same unless another
    /// thread is quicker.
    pub(crate) fn has_room(&self, cookie: u64, room: usize) -> bool {
        lock(&self.state).has_room(cookie, room)
    }

    /// Offers a connection to the longest blocked call at the socket with this cookie, or keeps it for the next call. It
    /// keeps no more than `room`.
    pub(crate) fn offer(&self, cookie: u64, ready: ReadyConnection, room: usize) -> Offered {
        let mut state = lock(&self.state);
        if let Some(BlockedAccept { tree, call, .. }) = state.blocked.get_mut(&cookie).and_then(VecDeque::pop_front) {
            return Offered::For(tree, call, ready);
        }
        if !state.has_room(cookie, room) {
            return Offered::Full(ready);
        }
        state.ready.entry(cookie).or_default().push_back(ready);
        state.since += 1;
        let patrols = std::mem::replace(&mut state.patrols, true);
        drop(state);
        if !patrols {
            ring(&self.bell);
        }
        Offered::Kept
    }

    /// The listener at which programs wait in `accept(2)` for connections to this address. The node's thread closes a copy
    /// of another listener. While that thread is busy, this takes no copy.
    pub(crate) fn expects(&self, cache: &ListenerCache, server: SocketAddr) -> Option<Expected> {
        if !self.has_time() {
            return None;
        }
        self.expected(cache, server).map_err(|copy| copy.into_iter().for_each(|copy| self.close(copy))).ok()
    }

    /// The same listener, if it still listens and has room.
    ///
    /// # Errors
    /// If there is no such listener, returns the copied descriptor, if any: closing that can take long.
    fn expected(&self, cache: &ListenerCache, server: SocketAddr) -> Result<Expected, Option<ListenerCopy>> {
        let node = self.node;
        let cached = cache.of(node, server).filter(|cached| self.is_waited_at(cached.cookie)).ok_or(None)?;
        let tree = cached.tree.upgrade().ok_or(None)?;
        let permit = self.copies.permit();
        let socket = tree.found(cached.tid, cached.number).map(|(_, socket)| permit.copy(socket)).map_err(|_| None)?;
        let is_it = socket_cookie(&*socket).is_ok_and(|cookie| cookie == cached.cookie);
        let room = if is_it { room(&socket) } else { None };
        match room.filter(|room| self.has_room(cached.cookie, *room)) {
            Some(room) => Ok(Expected { node, cached, socket, room }),
            None => Err(Some(socket)),
        }
    }

    /// Whether the node's thread can take more work.
    fn has_time(&self) -> bool {
        let state = lock(&self.state);
        state.entrusted.len() + state.closing.len() < MOST_ENTRUSTED
    }

    /// Leaves it to the node's thread to hand a connection to the program that will come for it.
    pub(crate) fn entrust(&self, expected: Expected, connection: Connection) {
        self.leave(|state| state.entrusted.push((expected, connection)));
    }

    /// Leaves it to the node's thread to answer another host's request. Shares bound how many wait for that.
    pub(crate) fn leave_request(&self, asked: OpenRequest, share: Share) {
        self.leave(|state| state.asked.push((asked, share)));
    }

    /// Leaves it to the node's thread to announce a connection that another router had in hand, by a wake-up socket. A
    /// connection of a silent node is kept until the node starts anew.
    pub(crate) fn leave_connection(&self, connection: Connection) {
        let (ipv6, due) = (connection.server.is_ipv6(), Instant::now());
        self.keep(NO_LISTENER, ReadyConnection { node: self.node, ipv6, connection, due });
        ring(&self.bell);
    }

    /// Leaves it to the node's thread to close a copy of a program's descriptor.
    pub(crate) fn close(&self, copy: ListenerCopy) {
        self.leave(|state| state.closing.push(copy));
    }

    fn leave(&self, leave: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        // The thread takes all at once.
        let is_first = state.entrusted.is_empty() && state.closing.is_empty() && state.asked.is_empty();
        leave(&mut state);
        drop(state);
        if is_first {
            ring(&self.bell);
        }
    }

    /// Watches a wake-up socket for an end before a program accepts it.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`.
    pub(crate) fn watch_wakeup(&self, wakeup_socket: &WakeupSocket, wakeup: u64) -> io::Result<()> {
        self.watch(&wakeup_socket.socket, WAKEUP_ENDED | wakeup, EventFlags::RDHUP | EventFlags::ONESHOT)
    }

    /// Notes that some listeners of the node defer (`TCP_DEFER_ACCEPT`).
    pub(crate) fn defer(&self) {
        self.journal.defer(self.node);
    }

    /// Where some listeners defer, watches the server's end of a connection for data or its end.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`.
    pub(crate) fn watch_data(&self, end: &OwnedFd, wakeup: u64) -> io::Result<()> {
        if !self.journal.defers(self.node) {
            return Ok(());
        }
        self.watch(end, DATA_CAME | wakeup, EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT)
    }

    /// Stops watching a connection for data.
    pub(crate) fn unwatch(&self, wakeup_socket: &WakeupSocket) {
        // The connection may never have been watched.
        let _ = epoll::delete(&self.epoll, &wakeup_socket.socket);
    }

    /// Waits until sockets are ready, another thread wakes this one, or something is due. Returns the number of events;
    /// `None` where the epoll instance fails.
    pub(crate) fn wait(&self, events: &mut [Event]) -> Option<usize> {
        let wait = self.patience().map(timespec);
        match epoll::wait(&self.epoll, events, wait.as_ref()) {
            Ok(ready) => Some(ready),
            Err(Errno::INTR) => Some(0),
            Err(_) => None,
        }
    }

    /// Decodes an event of the epoll instance.
    pub(crate) fn read(event: &Event) -> Ready {
        match event.data.u64() {
            BELL => Ready::Bell,
            data if data & DATA_CAME != 0 => Ready::Data(data & !DATA_CAME),
            data if data & WAKEUP_ENDED != 0 => Ready::Ended(data & !WAKEUP_ENDED),
            cookie => Ready::Listener(cookie),
        }
    }

    /// Takes the work for the node's thread: connections to hand over, and other hosts' requests. Closes the copies of
    /// descriptors.
    pub(crate) fn take_entrusted(&self) -> Entrusted {
        let mut state = lock(&self.state);
        let (connections, closing) = (std::mem::take(&mut state.entrusted), std::mem::take(&mut state.closing));
        let requests = std::mem::take(&mut state.asked);
        drop(state);
        drop(closing);
        Entrusted { connections, requests }
    }

    /// Time until the next deadline.
    fn patience(&self) -> Option<Duration> {
        let state = lock(&self.state);
        let next = state.blocked.values().flatten().filter_map(|accept| accept.deadline).min();
        let next = next.map(|next| next.saturating_duration_since(Instant::now()));
        let patrol = state.patrols.then_some(READY_FOR);
        next.into_iter().chain(patrol).min()
    }

    /// Drops the connections that are kept for the node's programs.
    pub(crate) fn drop_all(&self) {
        lock(&self.state).ready.clear();
    }

    /// Takes the ready connections that no call came for in time, each with its listener's cookie, unless their node is silent.
    pub(crate) fn take_late(&self, is_silent: impl Fn(NodeId) -> bool) -> Vec<(u64, ReadyConnection)> {
        let now = Instant::now();
        let mut late = Vec::new();
        let mut state = lock(&self.state);
        let State { waited_at, ready, .. } = &mut *state;
        ready.retain(|cookie, queue| {
            while let Some(first) = queue.pop_front_if(|first| first.due <= now && !is_silent(first.node)) {
                waited_at.remove(cookie);
                late.push((*cookie, first));
            }
            !queue.is_empty()
        });
        let some = state.ready.values().flatten().any(|ready| !is_silent(ready.node));
        state.patrols = some || std::mem::take(&mut state.since) > 0;
        late
    }

    /// Keeps a connection that could not be announced for another while.
    pub(crate) fn keep(&self, cookie: u64, ready: ReadyConnection) {
        let mut state = lock(&self.state);
        state.ready.entry(cookie).or_default().push_back(ready);
        state.patrols = true;
    }

    /// Takes the calls that wait at the socket with this cookie, to serve them again.
    pub(crate) fn take_blocked(&self, cookie: u64) -> impl Iterator<Item = (Arc<Tree>, Call)> {
        let blocked = lock(&self.state).blocked.remove(&cookie).unwrap_or_default();
        blocked.into_iter().map(|BlockedAccept { tree, call, .. }| (tree, call))
    }

    /// The number of calls that wait.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.state).blocked.values().map(VecDeque::len).sum()
    }

    /// Answers the calls whose time limit is over.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        let mut late = Vec::new();
        lock(&self.state).blocked.retain(|_, blocked| {
            let (over, wait) = std::mem::take(blocked)
                .into_iter()
                .partition::<VecDeque<_>, _>(|accept| accept.deadline.is_some_and(|deadline| deadline <= now));
            late.extend(over);
            *blocked = wait;
            !blocked.is_empty()
        });
        for BlockedAccept { tree, call, .. } in late {
            // A caller that is gone needs no answer.
            let _ = tree.answer(call.id, Err(Errno::AGAIN));
        }
    }
}

/// Number of connections that a listener's queue has room for; `None` where the socket does not listen.
fn room(listening: &OwnedFd) -> Option<usize> {
    /// `TCP_LISTEN` (`include/net/tcp_states.h`).
    const LISTENS: u8 = 10;
    // `struct tcp_info`: of a listener, `tcpi_unacked` are those in its queue, and `tcpi_sacked` is the most (`tcp_get_info`).
    let mut info = [0; 32];
    let name = Name { level: libc::IPPROTO_TCP, name: libc::TCP_INFO };
    sockopt::get(listening, name, &mut info).ok().filter(|_| info[0] == LISTENS)?;
    let [waiting, most] = [24, 28].map(|at| info[at..].first_chunk().map_or(0, |number| u32::from_ne_bytes(*number)));
    usize::try_from(most.saturating_sub(waiting)).ok()
}
