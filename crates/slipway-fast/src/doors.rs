//! Which listener the kernel picks for an address, learned from the knocks that it sent there.
//!
//! A program that waits in `accept(2)` can be given a connection at once, without a knock, where it is certain that the kernel
//! would have given it to the same listener. A knock tells. What it told is true until a program of the node makes another
//! listener, which the router hears of (`listen(2)`) and forgets all of the node; whether the listener itself is one still is
//! seen when a connection is given to it. Whatever else may come between (the node's own firewall) is asked by a knock once a
//! second.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// How long what was learned is believed.
const AGE: Duration = Duration::from_secs(1);

/// What was learned.
#[derive(Debug, Default)]
pub struct Doors(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By node and address, the listener's cookie (`SO_COOKIE`), which no other socket will have.
    known: HashMap<(usize, SocketAddr), (u64, Instant)>,
    forgotten: u64,
}

impl Doors {
    /// The moment before a knock.
    pub fn now(&self) -> u64 {
        lock(&self.0).forgotten
    }

    /// A knock at this address, made after the moment `since`, came to this listener.
    pub fn learn(&self, node: usize, at: SocketAddr, cookie: u64, since: u64) {
        let mut state = lock(&self.0);
        // With another listener since then it would perhaps have gone elsewhere.
        if state.forgotten == since {
            state.known.insert((node, at), (cookie, Instant::now()));
        }
    }

    /// The listener for an address.
    pub fn of(&self, node: usize, at: SocketAddr) -> Option<u64> {
        let mut state = lock(&self.0);
        let (cookie, since) = *state.known.get(&(node, at))?;
        if since.elapsed() < AGE {
            return Some(cookie);
        }
        state.known.remove(&(node, at));
        None
    }

    /// Forgets a node's: there is another listener, or the node has ended.
    pub fn forget(&self, node: usize) {
        let mut state = lock(&self.0);
        state.forgotten += 1;
        state.known.retain(|(of, _), _| *of != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_holds_until_there_is_another_listener() {
        let doors = Doors::default();
        let at = "10.64.0.1:80".parse().expect("an address");
        let before = doors.now();
        doors.learn(1, at, 7, before);
        assert_eq!((doors.of(1, at), doors.of(2, at)), (Some(7), None));
        doors.forget(2);
        assert_eq!(doors.of(1, at), Some(7), "another node's");
        doors.forget(1);
        assert_eq!(doors.of(1, at), None);
        doors.learn(1, at, 7, before);
        assert_eq!(doors.of(1, at), None, "the knock was before");
    }
}
