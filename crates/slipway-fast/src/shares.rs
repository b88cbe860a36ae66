//! Shares of what all nodes of a host have together: so many of something, of which no node can take what others need.
//!
//! A connection is charged to the two nodes that it is between. It is let in while its two nodes have fewer of them, together with
//! what its server's node has from anybody, than are free. So one pair of nodes has a third at most, and several that
//! want everything have even parts. One more node always finds a part left. A node that asks for more is refused; what
//! the others have is never taken from them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// So many of something.
#[derive(Debug)]
pub(crate) struct Shares {
    most: usize,
    usage: Mutex<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    all: usize,
    /// By the server's node.
    of_server: HashMap<usize, usize>,
    /// By the client's node and the server's.
    of_pair: HashMap<(usize, usize), usize>,
}

/// One of them, until this is dropped. Connections are moved about, so it is small.
#[derive(Debug)]
pub(crate) struct Share(Box<(Arc<Shares>, usize, usize)>);

impl Shares {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, usage: Mutex::default() })
    }

    /// One more for a connection between these nodes; `None` where they have their share.
    pub(crate) fn take(self: &Arc<Self>, client: usize, server: usize) -> Option<Share> {
        let usage = lock(&self.usage);
        let free = self.most.saturating_sub(usage.all);
        let its = usage.of_server.get(&server).copied().unwrap_or_default();
        let both = usage.of_pair.get(&(client, server)).copied().unwrap_or_default();
        let has_room = its + both < free;
        drop(usage);
        has_room.then(|| self.keep(client, server))
    }

    /// One more, whatever there is: what lives already is only counted.
    pub(crate) fn keep(self: &Arc<Self>, client: usize, server: usize) -> Share {
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

/// One less, and no entry for none: nodes come and go.
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

    fn fill(shares: &Arc<Shares>, client: usize, server: usize) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(client, server)).collect()
    }

    #[test]
    fn one_pair_of_nodes_has_a_third_and_the_next_its_part() {
        let shares = Shares::new(2500);
        let first = fill(&shares, 1, 2);
        assert_eq!(first.len(), 834);
        let same_server = fill(&shares, 3, 2);
        let other = fill(&shares, 4, 5);
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
                all.extend(fill(&shares, client, server));
            }
            for newcomer in 8..10 {
                let its = fill(&shares, newcomer, newcomer);
                prop_assert!(!its.is_empty(), "all {} are taken", shares.taken());
                all.extend(its);
            }
            prop_assert!(shares.taken() <= 512);
        }
    }
}
