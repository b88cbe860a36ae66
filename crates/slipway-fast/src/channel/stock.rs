//! The connections that are ready for each other router, which a pool's callers and its thread share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Condvar, Mutex, MutexGuard};

use super::Talk;
use super::line::Line;
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
    pub(super) stock: Mutex<Stock>,
    /// The stock changed.
    pub(super) changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct Stock {
    /// The newest last, which is taken first.
    pub(super) ready: Vec<Ready>,
    /// Why the last attempt failed. `None` again once one succeeds.
    pub(super) trouble: Option<String>,
    /// How many wait for a change: to wake nobody is a system call too.
    pub(super) askers: usize,
}

/// A connection that belongs to a session.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) line: Line,
    pub(super) talk: Talk,
}

impl Peer {
    pub(super) fn stock(&self) -> MutexGuard<'_, Stock> {
        lock(&self.stock)
    }

    /// Changes the stock and tells those who wait.
    pub(super) fn change(&self, change: impl FnOnce(&mut Stock)) {
        let mut stock = self.stock();
        change(&mut stock);
        if stock.askers > 0 {
            self.changed.notify_all();
        }
    }
}
