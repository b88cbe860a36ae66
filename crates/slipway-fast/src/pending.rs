//! Connections that wait to be accepted.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};

use crate::knock::Knocker;
use crate::ledger::Entry;
use crate::note::Path;
use crate::shares::Share;
use crate::sync::{lock, whole};

/// A connection on its way to a server's program.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Of what the router may have in hand; `None` before its server is told of it.
    pub(crate) share: Option<Share>,
    /// What is written of it for the next router. (Before the end: what is written is about what is open.)
    pub(crate) entry: Option<Entry>,
    /// The server's end.
    pub(crate) end: End,
    /// What it is; `None` for a connection of the container network that its program had no descriptor for.
    pub(crate) path: Option<Path>,
    /// Its number.
    pub(crate) flow: u64,
    /// The client's virtual address.
    pub(crate) client: SocketAddr,
    /// What it asked for.
    pub(crate) server: SocketAddr,
    /// By which its program has it already, where a call was interrupted before it was told so.
    pub(crate) number: Option<i32>,
}

/// Which knock announces a connection. One that is put back is announced again, and may be by the same knocker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Knock {
    /// Of the server.
    pub(crate) node: usize,
    /// Where it comes from.
    pub(crate) from: SocketAddr,
    /// Knocks are counted, so that no other has this.
    pub(crate) number: u64,
}

/// A connection that is announced by a knock.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The connection.
    pub(crate) connection: Connection,
    /// When it was announced ([`Doors::now`](crate::doors::Doors::now)).
    pub(crate) since: u64,
    /// Who knocks for it.
    pub(crate) knocker: Arc<Knocker>,
}

impl Pending {
    /// It is announced no more. Who knocked for it is free for others.
    #[must_use]
    pub(crate) fn heard(self) -> (Connection, Arc<Knocker>) {
        self.connection.entry.iter().for_each(|entry| entry.knocked(None));
        (self.connection, self.knocker)
    }
}

/// The server's end of a connection that waits.
#[derive(Debug)]
pub(crate) enum End {
    /// The other host's router is being told.
    Awaited,
    /// It is here.
    There(OwnedFd),
    /// The other host's router has gone away meanwhile.
    Gone,
}

/// The node of the server, and where the knock comes from.
type Key = (usize, SocketAddr);

/// All of a host, by the node of the server and the address that the knock comes from.
#[derive(Debug, Default)]
pub(crate) struct AllPending {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// With the number of the knock.
    all: HashMap<Key, (u64, Pending)>,
    /// By the number of the knock.
    numbers: HashMap<u64, Key>,
    knocks: u64,
}

impl State {
    fn remove(&mut self, key: Key) -> Option<Pending> {
        let (number, pending) = self.all.remove(&key)?;
        self.numbers.remove(&number);
        Some(pending)
    }
}

impl AllPending {
    /// Adds one. It is there before its knock is, or the knock would be taken for a connection. How many there are, their shares
    /// see to.
    pub(crate) fn add(&self, node: usize, pending: Pending) -> Knock {
        let mut state = lock(&self.state);
        state.knocks += 1;
        let knock = Knock { node, from: pending.knocker.address, number: state.knocks };
        state.all.insert((node, knock.from), (knock.number, pending));
        state.numbers.insert(knock.number, (node, knock.from));
        knock
    }

    /// Takes what a knock from this address announces, once its end is there; `None` where it is no knock.
    pub(crate) fn take(&self, node: usize, from: SocketAddr) -> Option<Pending> {
        let key = (node, from);
        let mut state = lock(&self.state);
        while matches!(state.all.get(&key)?.1.connection.end, End::Awaited) {
            state = whole(self.changed.wait(state));
        }
        state.remove(key)
    }

    /// Does something about one that nobody has taken yet; `None` where somebody has.
    pub(crate) fn with<T>(&self, knock: Knock, act: impl FnOnce(&mut Pending) -> T) -> Option<T> {
        let mut state = lock(&self.state);
        let found = state.all.get_mut(&(knock.node, knock.from)).filter(|(number, _)| *number == knock.number);
        let done = found.map(|(_, pending)| act(pending));
        drop(state);
        self.changed.notify_all();
        done
    }

    /// Takes one back whose knock failed, or ended.
    pub(crate) fn withdraw(&self, knock: Knock) -> Option<Pending> {
        let mut state = lock(&self.state);
        let key = (knock.node, knock.from);
        let is_it = state.all.get(&key).is_some_and(|(number, _)| *number == knock.number);
        let withdrawn = if is_it { state.remove(key) } else { None };
        drop(state);
        self.changed.notify_all();
        withdrawn
    }

    /// Drops all that wait for this node's programs.
    pub(crate) fn drop_all_of(&self, node: usize) {
        let mut state = lock(&self.state);
        state.all.retain(|(of, _), _| *of != node);
        state.numbers.retain(|_, (of, _)| *of != node);
        drop(state);
        self.changed.notify_all();
    }

    /// The knock of this number.
    pub(crate) fn find(&self, number: u64) -> Option<Knock> {
        let state = lock(&self.state);
        state.numbers.get(&number).map(|&(node, from)| Knock { node, from, number })
    }

    /// Has who knocks this knock say something.
    pub(crate) fn speak(&self, number: u64) {
        let state = lock(&self.state);
        if let Some((_, pending)) = state.numbers.get(&number).and_then(|key| state.all.get(key)) {
            pending.knocker.speak();
        }
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        lock(&self.state).all.len()
    }
}
