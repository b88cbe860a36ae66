//! Shares of a resource that all nodes of a host use, so that no node can take what others need.
//!
//! A connection counts for its two nodes. The router admits it while its two nodes' connections, together with all to its
//! server's node, are fewer than the free ones. So one pair of nodes has a third at most, and several greedy pairs have
//! even parts. A further node always finds a part left. The router refuses a node that asks for more, and never takes from
//! the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use slipway_lab::id::NodeId;

use crate::sync::lock;

/// A bounded number of things, shared by nodes.
#[derive(Debug)]
pub(crate) struct Shares {
    most: usize,
    usage: Mutex<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    all: usize,
    /// Shares by the server's node.
    of_server: HashMap<NodeId, usize>,
    /// Shares by the client's node and the server's.
    of_pair: HashMap<(NodeId, NodeId), usize>,
}

/// One share, until this is dropped. It is small, because connections are moved about.
#[derive(Debug)]
pub(crate) struct Share(Box<(Arc<Shares>, NodeId, NodeId)>);

impl Shares {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, usage: Mutex::default() })
    }

    /// Takes a share for a connection between these nodes; `None` where they have their part.
    pub(crate) fn take(self: &Arc<Self>, client: NodeId, server: NodeId) -> Option<Share> {
        let usage = lock(&self.usage);
        let free = self.most.saturating_sub(usage.all);
        let its = usage.of_server.get(&server).copied().unwrap_or_default();
        let both = usage.of_pair.get(&(client, server)).copied().unwrap_or_default();
        let has_room = its + both < free;
        drop(usage);
        has_room.then(|| self.keep(client, server))
    }

    /// Takes a share, even beyond the bound: a connection that lives is only counted.
    pub(crate) fn keep(self: &Arc<Self>, client: NodeId, server: NodeId) -> Share {
        let mut usage = lock(&self.usage);
        usage.all += 1;
        *usage.of_server.entry(server).or_default() += 1;
        *usage.of_pair.entry((client, server)).or_default() += 1;
        Share(Box::new((Arc::clone(self), client, server)))
    }

    /// Shares that are taken.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        lock(&self.usage).all
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let (shares, client, server) = &*self.0;
        let (client, server) = (*client, *server);
        let mut usage = lock(&shares.usage);
        usage.all -= 1;
        less(&mut usage.of_server, server);
        less(&mut usage.of_pair, (client, server));
    }
}

/// Counts one less, and drops an entry of zero: nodes come and go.
pub(crate) fn less<K: Copy + std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fill(shares: &Arc<Shares>, client: NodeId, server: NodeId) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(client, server)).collect()
    }

    #[test]
    fn one_pair_of_nodes_has_a_third_and_the_next_its_part() {
        let shares = Shares::new(2500);
        let first = fill(&shares, NodeId(1), NodeId(2));
        assert_eq!(first.len(), 834);
        let same_server = fill(&shares, NodeId(3), NodeId(2));
        let other = fill(&shares, NodeId(4), NodeId(5));
        assert!(same_server.len() >= 250 && other.len() >= 400, "{} {}", same_server.len(), other.len());
        drop((first, same_server, other));
        assert_eq!(shares.taken(), 0);
        assert!(lock(&shares.usage).of_pair.is_empty() && lock(&shares.usage).of_server.is_empty());
    }

    proptest! {
        /// However others fill it, a node that has nothing there gets in.
        #[test]
        fn there_is_always_a_part_for_one_more(greedy in prop::collection::vec((0..8_usize, 0..8_usize), 1..200)) {
            let shares = Shares::new(512);
            let mut all = Vec::new();
            for (client, server) in greedy {
                all.extend(fill(&shares, NodeId(client), NodeId(server)));
            }
            for newcomer in 8..10 {
                let its = fill(&shares, NodeId(newcomer), NodeId(newcomer));
                prop_assert!(!its.is_empty(), "all {} are taken", shares.taken());
                all.extend(its);
            }
            prop_assert!(shares.taken() <= 512);
        }
    }
}
