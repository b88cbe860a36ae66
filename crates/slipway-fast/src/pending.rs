//! Connections that wait to be accepted.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};

use crate::knock::Knocker;
use crate::ledger::Entry;
use crate::note::Path;
use crate::sync::{lock, whole};

/// A connection on its way to a server's program.
#[derive(Debug)]
pub struct Connection {
    /// What is written of it for the next router. (Before the end: what is written is about what is open.)
    pub entry: Option<Entry>,
    /// The server's end.
    pub end: End,
    /// What it is; `None` for a connection of the container network that its program had no descriptor for.
    pub path: Option<Path>,
    /// Its number.
    pub flow: u64,
    /// The client's virtual address.
    pub client: SocketAddr,
    /// What it asked for.
    pub server: SocketAddr,
    /// By which its program has it already, where a call was interrupted before it was told so.
    pub number: Option<i32>,
}

/// A connection that is announced by a knock.
#[derive(Debug)]
pub struct Pending {
    /// The connection.
    pub connection: Connection,
    /// When it was announced ([`Doors::now`](crate::doors::Doors::now)).
    pub since: u64,
    /// Who knocks for it.
    pub knocker: Arc<Knocker>,
}

impl Pending {
    /// It is announced no more. Who knocked for it is free for others.
    #[must_use]
    pub fn heard(self) -> (Connection, Arc<Knocker>) {
        self.connection.entry.iter().for_each(|entry| entry.knocked(None));
        (self.connection, self.knocker)
    }
}

/// The server's end of a connection that waits.
#[derive(Debug)]
pub enum End {
    /// The other host's router is being told.
    Awaited,
    /// It is here.
    There(OwnedFd),
    /// The other host's router has gone away meanwhile.
    Gone,
}

/// All of a host, by the node of the server and the address that the knock comes from.
#[derive(Debug)]
pub struct AllPending {
    all: Mutex<HashMap<Key, Pending>>,
    changed: Condvar,
    most: usize,
}

type Key = (usize, SocketAddr);

impl AllPending {
    /// With room for so many at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { all: Mutex::default(), changed: Condvar::default(), most }
    }

    /// Adds one. It is there before its knock is, or the knock would be taken for a connection.
    ///
    /// # Errors
    /// Gives it back where there is no room.
    pub fn add(&self, node: usize, pending: Pending) -> Result<(), Connection> {
        let mut all = lock(&self.all);
        if all.len() >= self.most {
            return Err(pending.heard().0);
        }
        all.insert((node, pending.knocker.address), pending);
        Ok(())
    }

    /// Takes what a knock from this address announces, once its end is there; `None` where it is no knock.
    pub fn take(&self, node: usize, from: SocketAddr) -> Option<Pending> {
        let key = (node, from);
        let mut all = lock(&self.all);
        while matches!(all.get(&key)?.connection.end, End::Awaited) {
            all = whole(self.changed.wait(all));
        }
        all.remove(&key)
    }

    /// Does something about one that nobody has taken yet; `None` where somebody has.
    pub fn with<T>(&self, node: usize, from: SocketAddr, flow: u64, act: impl FnOnce(&mut Pending) -> T) -> Option<T> {
        let mut all = lock(&self.all);
        let done = all.get_mut(&(node, from)).filter(|pending| pending.connection.flow == flow).map(act);
        drop(all);
        self.changed.notify_all();
        done
    }

    /// Takes one back whose knock failed, or ended.
    pub fn withdraw(&self, node: usize, from: SocketAddr, flow: u64) -> Option<Pending> {
        let mut all = lock(&self.all);
        let is_it = all.get(&(node, from)).is_some_and(|pending| pending.connection.flow == flow);
        let pending = if is_it { all.remove(&(node, from)) } else { None };
        drop(all);
        self.changed.notify_all();
        pending
    }

    /// Drops all that wait for this node's programs.
    pub fn drop_all_of(&self, node: usize) {
        lock(&self.all).retain(|(of, _), _| *of != node);
        self.changed.notify_all();
    }

    /// Where the connection of this number waits.
    pub fn find(&self, flow: u64) -> Option<Key> {
        lock(&self.all).iter().find(|(_, pending)| pending.connection.flow == flow).map(|(key, _)| *key)
    }

    /// Has who knocks for the connection of this number say something.
    pub fn speak(&self, flow: u64) {
        let all = lock(&self.all);
        if let Some(pending) = all.values().find(|pending| pending.connection.flow == flow) {
            pending.knocker.speak();
        }
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        lock(&self.all).len()
    }
}
