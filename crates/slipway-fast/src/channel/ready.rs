//! The connections that are ready for each other router. A pool's callers and its thread share them.

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
    /// Wakes the thread to look again (`eventfd(2)`).
    pub(super) bell: OwnedFd,
    pub(super) ending: AtomicBool,
}

/// Another host's router.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) state: Mutex<PeerState>,
    /// Notified when the state changes.
    pub(super) changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct PeerState {
    /// Connections that are ready. The newest is last, and is taken first.
    pub(super) ready: Vec<Ready>,
    /// Why the last attempt failed. `None` again once one succeeds.
    pub(super) trouble: Option<String>,
    /// The number of callers that wait for a change: a notification without a waiter still costs a system call.
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

    /// Changes the state, and notifies waiting callers.
    pub(super) fn change(&self, change: impl FnOnce(&mut PeerState)) {
        let mut state = self.lock();
        change(&mut state);
        if state.waiters > 0 {
            self.changed.notify_all();
        }
    }
}
