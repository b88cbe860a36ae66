//! Counts of connections, by path and reason.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::metadata::Path;
use crate::reason::Reason;
use crate::sync::lock;

/// Counted since the router started.
#[derive(Debug, Default)]
pub struct Counts {
    pair: AtomicU64,
    tcp: AtomicU64,
    accepted: AtomicU64,
    native: [AtomicU64; Reason::ALL.len()],
    revoked: [AtomicU64; Reason::ALL.len()],
    refused: AtomicU64,
    between: Mutex<BTreeMap<(usize, Option<usize>), Between>>,
}

/// Of so many pairs of nodes connections are counted for each; of any others, together.
const PAIRS: usize = 1024;

/// Connections from one node to another, by path and reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between {
    /// Index of the node that connected; `None` for all pairs that are not counted each for itself.
    pub client: Option<usize>,
    /// Index of the node that it connected to; `None` where the address is none of a node on a fast network.
    pub server: Option<usize>,
    /// Connections on the fast path that are pairs of unix sockets within the host.
    pub pair: u64,
    /// Those that are of TCP.
    pub tcp: u64,
    /// Connections on the container network, by reason.
    pub native: BTreeMap<Reason, u64>,
}

/// The numbers at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Connections on the fast path that are pairs of unix sockets within the host.
    pub pair: u64,
    /// Those that are of TCP: to other hosts, or within this one where a rule holds them back or the network is exact. One between
    /// two hosts is counted where its client is, so that all hosts' together are all there were.
    pub tcp: u64,
    /// Connections that clients on other hosts made, which count them.
    #[serde(default)]
    pub accepted: u64,
    /// Connections on the container network, by reason.
    pub native: BTreeMap<Reason, u64>,
    /// Connections that were fast and were ended, because they may not be any more, by reason.
    #[serde(default)]
    pub revoked: BTreeMap<Reason, u64>,
    /// Connections that nobody listened for, or of which a rule allows no more.
    pub refused: u64,
    /// Connections that nodes of this host asked for, by who asked and for whom: of 1024 pairs of nodes each, the first that came.
    #[serde(default)]
    pub between: Vec<Between>,
}

impl Counts {
    /// A client on another host made a connection to here.
    pub fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection took the fast path.
    fn taken(&self, path: Path) {
        let counter = match path {
            Path::Pair => &self.pair,
            Path::Tcp => &self.tcp,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A program of node `client` has connected to one of `server`, on the fast path or, for a reason, not.
    pub fn connected(&self, client: usize, server: Option<usize>, way: Result<Path, Reason>) {
        match way {
            Ok(path) => self.taken(path),
            Err(reason) => self.native(reason),
        }
        let mut all = lock(&self.between);
        let key = (client, server);
        let known = all.len() < PAIRS || all.contains_key(&key);
        let (key, client) = if known { (key, Some(client)) } else { ((usize::MAX, None), None) };
        let empty = || Between { client, server: key.1, ..Between::default() };
        let counted = all.entry(key).or_insert_with(empty);
        match way {
            Ok(Path::Pair) => counted.pair += 1,
            Ok(Path::Tcp) => counted.tcp += 1,
            Err(reason) => *counted.native.entry(reason).or_default() += 1,
        }
    }

    /// A connection stayed on the container network.
    fn native(&self, reason: Reason) {
        add(&self.native, reason);
    }

    /// A connection was ended, because it may not be any more.
    pub fn revoked(&self, reason: Reason) {
        add(&self.revoked, reason);
    }

    /// Nobody listened.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers now.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let by_reason = |counters: &[AtomicU64]| {
            Reason::ALL.into_iter().zip(counters.iter().map(read)).filter(|(_, count)| *count > 0).collect()
        };
        Tally {
            pair: read(&self.pair),
            tcp: read(&self.tcp),
            accepted: read(&self.accepted),
            native: by_reason(&self.native),
            revoked: by_reason(&self.revoked),
            refused: read(&self.refused),
            between: lock(&self.between).values().cloned().collect(),
        }
    }
}

fn add(counters: &[AtomicU64; Reason::ALL.len()], reason: Reason) {
    if let Some(at) = Reason::ALL.iter().position(|other| *other == reason) {
        counters[at].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_connects_to_whom_takes_bounded_memory() {
        let counts = Counts::default();
        for client in 0..2 * PAIRS {
            counts.connected(client, Some(0), Ok(Path::Pair));
            counts.connected(0, None, Err(Reason::NotANode));
        }
        let tally = counts.tally();
        assert_eq!(tally.between.len(), PAIRS + 1);
        assert_eq!(tally.between.iter().map(|between| between.pair).sum::<u64>(), tally.pair);
        assert_eq!(tally.native[&Reason::NotANode], 2 * PAIRS as u64);
        let rest = tally.between.iter().find(|between| between.client.is_none()).expect("there are more");
        assert!(rest.pair > PAIRS as u64 / 2, "{rest:?}");
    }
}
