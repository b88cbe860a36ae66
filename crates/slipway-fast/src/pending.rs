//! Connections that wait to be accepted.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};

use slipway_lab::id::NodeId;

use crate::journal::Entry;
use crate::metadata::Path;
use crate::shares::Share;
use crate::sync::{lock, whole};
use crate::wakeup::WakeupSocket;

/// A connection on its way to a server's program.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Its share of the connections that the router may have in hand; `None` before the router announces it.
    pub(crate) share: Option<Share>,
    /// Its entry in the recovery journal. (Dropped before the end, because the journal lists open descriptors.)
    pub(crate) entry: Option<Entry>,
    /// The server's end.
    pub(crate) end: ServerEnd,
    /// The kind of connection; `None` for one of the base network that its program had no descriptor for.
    pub(crate) path: Option<Path>,
    /// Its number.
    pub(crate) flow: u64,
    /// The client's virtual address.
    pub(crate) client: SocketAddr,
    /// The address that the client connected to.
    pub(crate) server: SocketAddr,
    /// The descriptor at which its program has it already, where a signal interrupted the call before the answer.
    pub(crate) number: Option<i32>,
}

/// The wake-up that announces a connection. A connection that is put back is announced again, perhaps by the same wake-up socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wakeup {
    /// Index of the server's node.
    pub(crate) node: NodeId,
    /// The address of the wake-up socket.
    pub(crate) from: SocketAddr,
    /// The number of the wake-up; no other has it.
    pub(crate) number: u64,
}

/// A connection that a wake-up socket announces.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The connection.
    pub(crate) connection: Connection,
    /// The time of the announcement ([`ListenerCache::now`](crate::listener_cache::ListenerCache::now)).
    pub(crate) since: u64,
    /// The wake-up socket that announces it.
    pub(crate) wakeup_socket: Arc<WakeupSocket>,
}

impl Pending {
    /// Ends the announcement, and frees the wake-up socket for others.
    #[must_use]
    pub(crate) fn woken(self) -> (Connection, Arc<WakeupSocket>) {
        self.connection.entry.iter().for_each(|entry| entry.set_wakeup_socket(None));
        (self.connection, self.wakeup_socket)
    }
}

/// The server's end of a connection that waits.
#[derive(Debug)]
pub(crate) enum ServerEnd {
    /// The end is elsewhere: the other host's router is being answered.
    Awaited,
    /// The end is here.
    There(OwnedFd),
    /// The other host's router has gone away meanwhile.
    Gone,
}

/// The server's node, and the address of the wake-up socket.
type Key = (NodeId, SocketAddr);

/// All waiting connections of a host, by the server's node and the address of the wake-up socket.
#[derive(Debug, Default)]
pub(crate) struct PendingConnections {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Connections, each with the number of its wake-up.
    all: HashMap<Key, (u64, Pending)>,
    /// Keys, by the number of the wake-up.
    numbers: HashMap<u64, Key>,
    wakeups: u64,
}

impl State {
    fn remove(&mut self, key: Key) -> Option<Pending> {
        let (number, pending) = self.all.remove(&key)?;
        self.numbers.remove(&number);
        Some(pending)
    }
}

impl PendingConnections {
    /// Adds a connection. The caller adds it before it connects the wake-up socket, or `accept` would take that for a connection.
    /// Shares bound the number of connections.
    pub(crate) fn add(&self, node: NodeId, pending: Pending) -> Wakeup {
        let mut state = lock(&self.state);
        state.wakeups += 1;
        let wakeup = Wakeup { node, from: pending.wakeup_socket.address, number: state.wakeups };
        state.all.insert((node, wakeup.from), (wakeup.number, pending));
        state.numbers.insert(wakeup.number, (node, wakeup.from));
        wakeup
    }

    /// Takes the connection that a wake-up socket with this address announces, once its end is there; `None` where no wake-up
    /// socket has the address.
    pub(crate) fn take(&self, node: NodeId, from: SocketAddr) -> Option<Pending> {
        let key = (node, from);
        let mut state = lock(&self.state);
        while matches!(state.all.get(&key)?.1.connection.end, ServerEnd::Awaited) {
            state = whole(self.changed.wait(state));
        }
        state.remove(key)
    }

    /// Calls a function on a connection that no program has taken yet; `None` where one has.
    pub(crate) fn with<T>(&self, wakeup: Wakeup, act: impl FnOnce(&mut Pending) -> T) -> Option<T> {
        let mut state = lock(&self.state);
        let found = state.all.get_mut(&(wakeup.node, wakeup.from)).filter(|(number, _)| *number == wakeup.number);
        let done = found.map(|(_, pending)| act(pending));
        drop(state);
        self.changed.notify_all();
        done
    }

    /// Takes a connection back whose wake-up failed, or ended.
    pub(crate) fn withdraw(&self, wakeup: Wakeup) -> Option<Pending> {
        let mut state = lock(&self.state);
        let key = (wakeup.node, wakeup.from);
        let is_it = state.all.get(&key).is_some_and(|(number, _)| *number == wakeup.number);
        let withdrawn = if is_it { state.remove(key) } else { None };
        drop(state);
        self.changed.notify_all();
        withdrawn
    }

    /// Drops all that wait for this node's programs.
    pub(crate) fn drop_all_of(&self, node: NodeId) {
        let mut state = lock(&self.state);
        state.all.retain(|(of, _), _| *of != node);
        state.numbers.retain(|_, (of, _)| *of != node);
        drop(state);
        self.changed.notify_all();
    }

    /// The wake-up with this number.
    pub(crate) fn find(&self, number: u64) -> Option<Wakeup> {
        let state = lock(&self.state);
        state.numbers.get(&number).map(|&(node, from)| Wakeup { node, from, number })
    }

    /// Has the wake-up socket of this number send a byte.
    pub(crate) fn send_byte(&self, number: u64) {
        let state = lock(&self.state);
        if let Some((_, pending)) = state.numbers.get(&number).and_then(|key| state.all.get(key)) {
            pending.wakeup_socket.send_byte();
        }
    }

    /// The number of connections that wait.
    pub(crate) fn count(&self) -> usize {
        lock(&self.state).all.len()
    }
}
