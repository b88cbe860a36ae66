//! Counts of connections, by path and reason.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use slipway_lab::id::NodeId;

use crate::metadata::Path;
use crate::reason::Reason;
use crate::sync::lock;

/// Counts since the router started.
#[derive(Debug, Default)]
pub struct Counts {
    pair: AtomicU64,
    tcp: AtomicU64,
    accepted: AtomicU64,
    native: [AtomicU64; Reason::ALL.len()],
    revoked: [AtomicU64; Reason::ALL.len()],
    refused: AtomicU64,
    between: Mutex<BTreeMap<(NodeId, Option<NodeId>), Between>>,
}

/// Pairs of nodes that have counts of their own; all other pairs share one.
const PAIRS: usize = 1024;

/// Connections from one node to another, by path and reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between {
    /// The client's node; `None` for all pairs that share one count.
    pub client: Option<NodeId>,
    /// The server's node; `None` where no node on a fast network has the address.
    pub server: Option<NodeId>,
    /// Connections on the fast path that are pairs of unix sockets within the host.
    pub pair: u64,
    /// Connections on the fast path that are of TCP.
    pub tcp: u64,
    /// Connections on the container network, by reason.
    pub native: BTreeMap<Reason, u64>,
}

/// The counts at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Connections on the fast path that are pairs of unix sockets within the host.
    pub pair: u64,
    /// Fast connections of TCP: to other hosts, or within this one where a rule limits them or the network is exact. A
    /// connection between two hosts counts at its client's host, so that the sum over hosts is the number of connections.
    pub tcp: u64,
    /// Connections that clients on other hosts made. Their hosts count them too.
    #[serde(default)]
    pub accepted: u64,
    /// Connections on the container network, by reason.
    pub native: BTreeMap<Reason, u64>,
    /// Fast connections that the lab ended, because they were no longer allowed, by reason.
    #[serde(default)]
    pub revoked: BTreeMap<Reason, u64>,
    /// Refused connections: nobody listened, or a rule allowed no more.
    pub refused: u64,
    /// Connections that nodes of this host requested, by client and server: the first 1024 pairs of nodes each, all others
    /// together.
    #[serde(default)]
    pub between: Vec<Between>,
}

impl Counts {
    /// Counts a connection from a client on another host.
    pub fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection on the fast path.
    fn taken(&self, path: Path) {
        let counter = match path {
            Path::Pair => &self.pair,
            Path::Tcp => &self.tcp,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection from node `client` to `server`, on the fast path or, for a reason, not.
    pub fn connected(&self, client: NodeId, server: Option<NodeId>, way: Result<Path, Reason>) {
        match way {
            Ok(path) => self.taken(path),
            Err(reason) => self.native(reason),
        }
        let mut all = lock(&self.between);
        let key = (client, server);
        let known = all.len() < PAIRS || all.contains_key(&key);
        let (key, client) = if known { (key, Some(client)) } else { ((NodeId(usize::MAX), None), None) };
        let empty = || Between { client, server: key.1, ..Between::default() };
        let counted = all.entry(key).or_insert_with(empty);
        match way {
            Ok(Path::Pair) => counted.pair += 1,
            Ok(Path::Tcp) => counted.tcp += 1,
            Err(reason) => *counted.native.entry(reason).or_default() += 1,
        }
    }

    /// Counts a connection that stayed on the container network.
    fn native(&self, reason: Reason) {
        add(&self.native, reason);
    }

    /// Counts a connection that was ended, because it was no longer allowed.
    pub fn revoked(&self, reason: Reason) {
        add(&self.revoked, reason);
    }

    /// Counts a connection for which nobody listened.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The current counts.
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
            counts.connected(NodeId(client), Some(NodeId(0)), Ok(Path::Pair));
            counts.connected(NodeId(0), None, Err(Reason::NotANode));
        }
        let tally = counts.tally();
        assert_eq!(tally.between.len(), PAIRS + 1);
        assert_eq!(tally.between.iter().map(|between| between.pair).sum::<u64>(), tally.pair);
        assert_eq!(tally.native[&Reason::NotANode], 2 * PAIRS as u64);
        let rest = tally.between.iter().find(|between| between.client.is_none()).expect("there are more");
        assert!(rest.pair > PAIRS as u64 / 2, "{rest:?}");
    }
}
