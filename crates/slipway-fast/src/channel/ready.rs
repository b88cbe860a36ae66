//! The connections that are ready for each other router, which a pool's callers and its thread share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Condvar, Mutex, MutexGuard};

use super::RecordLayer;
use super::connection::Connection;
use crate::sync::lock;

/// The state that callers and the thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) peers: BTreeMap<u32, Peer>,
    /// Connections kept ready for each peer.
    pub(super) wanted: usize,
    /// Rung when the thread is to look again.
    pub(super) bell: OwnedFd,
    pub(super) ending: AtomicBool,
}

/// Another host's router.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) state: Mutex<PeerState>,
    /// The stock changed.
    pub(super) changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct PeerState {
    /// The newest last, which is taken first.
    pub(super) ready: Vec<Ready>,
    /// Why the last attempt failed. `None` again once one succeeds.
    pub(super) trouble: Option<String>,
    /// How many wait for a change: to wake nobody is a system call too.
    pub(super) waiters: usize,
}

/// A connection that belongs to a session.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) connection: Connection,
    pub(super) records: RecordLayer,
}

impl Peer {
    pub(super) fn lock(&self) -> MutexGuard<'_, PeerState> {
        lock(&self.state)
    }

    /// Changes the stock and tells those who wait.
    pub(super) fn change(&self, change: impl FnOnce(&mut PeerState)) {
        let mut state = self.lock();
        change(&mut state);
        if state.waiters > 0 {
            self.changed.notify_all();
        }
    }
}
