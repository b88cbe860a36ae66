//! The listener cache: the listener that the kernel picks for an address, as wake-up sockets have shown.
//!
//! A program that waits in `accept(2)`, not in `poll(2)`, notices a connection without a wake-up socket. But the router
//! must be certain that the kernel would have picked the same listener. A wake-up shows that. It holds until a program of
//! the node makes another listener: the router traps `listen(2)`, and forgets all of the node. For each connection, the
//! router checks that the listener still listens and has room. Once a second it uses a wake-up socket all the same, to test
//! other obstacles (the node's own firewall).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, Weak};
use std::time::{Duration, Instant};

use slipway_lab::id::NodeId;

use crate::bounded::BoundedMap;
use crate::sync::lock;
use crate::tree::Tree;

/// Time that an entry is used.
const AGE: Duration = Duration::from_secs(1);

/// Most addresses of a node; one more pushes out the oldest.
const MOST: usize = 1024;

/// A listener, and the programs that accept from it.
#[derive(Debug, Clone)]
pub(crate) struct CachedListener {
    /// The listener's cookie (`SO_COOKIE`), which no other socket will have.
    pub(crate) cookie: u64,
    /// Whether the listener's family is IPv6.
    pub(crate) ipv6: bool,
    /// The tree of programs that has it.
    pub(crate) tree: Weak<Tree>,
    /// A thread of these programs.
    pub(crate) tid: i32,
    /// The listener's descriptor there.
    pub(crate) number: i32,
}

/// An entry of the cache.
#[derive(Debug, Default)]
pub(crate) struct ListenerCache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Entries by node and address.
    known: HashMap<NodeId, BoundedMap<SocketAddr, (CachedListener, Instant)>>,
    /// The number of times that a node was forgotten.
    forgotten: HashMap<NodeId, u64>,
}

impl ListenerCache {
    /// The moment before a wake-up.
    pub(crate) fn now(&self, node: NodeId) -> u64 {
        lock(&self.0).forgotten.get(&node).copied().unwrap_or_default()
    }

    /// Notes that a wake-up at this address, connected after the moment `since`, came to this listener.
    pub(crate) fn learn(&self, node: NodeId, at: SocketAddr, cached: CachedListener, since: u64) {
        let mut state = lock(&self.0);
        // Another listener made since then could have got the wake-up.
        if state.forgotten.get(&node).copied().unwrap_or_default() == since {
            let known = state.known.entry(node).or_insert_with(|| BoundedMap::new(MOST));
            known.insert(at, (cached, Instant::now()));
        }
    }

    /// The listener for an address.
    pub(crate) fn of(&self, node: NodeId, at: SocketAddr) -> Option<CachedListener> {
        let mut state = lock(&self.0);
        let known = state.known.get_mut(&node)?;
        let (cached, since) = known.get(at)?;
        if since.elapsed() < AGE {
            return Some(cached.clone());
        }
        known.remove(at);
        None
    }

    /// Forgets a node's entries: there is another listener, or the node has ended.
    pub(crate) fn forget(&self, node: NodeId) {
        let mut state = lock(&self.0);
        *state.forgotten.entry(node).or_default() += 1;
        state.known.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_holds_until_there_is_another_listener() {
        let cache = ListenerCache::default();
        let at = "10.64.0.1:80".parse().expect("an address");
        let cached = CachedListener { cookie: 7, ipv6: false, tree: Weak::new(), tid: 1, number: 3 };
        let known = |node| cache.of(NodeId(node), at).map(|cached| cached.cookie);
        let before = [1, 2].map(|node| cache.now(NodeId(node)));
        cache.learn(NodeId(1), at, cached.clone(), before[0]);
        assert_eq!((known(1), known(2)), (Some(7), None));
        cache.learn(NodeId(2), at, cached.clone(), before[1]);
        cache.forget(NodeId(2));
        assert_eq!((known(1), known(2)), (Some(7), None));
        cache.learn(NodeId(2), at, cached.clone(), before[1]);
        assert_eq!(known(2), None, "the knock was before");
        cache.learn(NodeId(1), at, cached, before[0]);
        assert_eq!(known(1), Some(7), "another node's listeners are its own");
    }
}
