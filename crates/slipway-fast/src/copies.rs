//! Copies of programs' listeners. While there is one, a listener that its program has closed is open, and keeps its port.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::sync::{lock, whole};

/// All of a node, by the order in which they were taken.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    state: Mutex<State>,
    fewer: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: u64,
    held: BTreeSet<u64>,
}

/// Somebody takes a copy, or has it.
#[derive(Debug)]
pub(crate) struct Held {
    copies: Arc<Copies>,
    number: u64,
}

/// A copy of a program's listener.
#[derive(Debug)]
pub(crate) struct Listener {
    // Closed first.
    socket: OwnedFd,
    _held: Held,
}

impl Copies {
    /// Before a copy is taken.
    pub(crate) fn hold(self: &Arc<Self>) -> Held {
        let mut state = lock(&self.state);
        state.taken += 1;
        let number = state.taken;
        state.held.insert(number);
        drop(state);
        Held { copies: Arc::clone(self), number }
    }

    /// Waits until all are closed that somebody took before this, but no longer than so. What is closed already nobody copies.
    pub(crate) fn settle(&self, patience: Duration) {
        let state = lock(&self.state);
        let last = state.taken;
        let is_held = |state: &mut State| state.held.first().is_some_and(|first| *first <= last);
        drop(whole(self.fewer.wait_timeout_while(state, patience, is_held)));
    }
}

impl Held {
    pub(crate) fn by(self, socket: OwnedFd) -> Listener {
        Listener { socket, _held: self }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.copies.state).held.remove(&self.number);
        self.copies.fewer.notify_all();
    }
}

impl Deref for Listener {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.socket
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn who_waits_does_so_for_those_that_were_there() {
        let copies = Arc::new(Copies::default());
        copies.settle(LONG);
        let early = copies.hold();
        let (done, is_done) = mpsc::channel();
        let waiting = Arc::clone(&copies);
        let waits = thread::spawn(move || {
            waiting.settle(LONG);
            done.send(()).expect("it listens");
        });
        assert!(is_done.recv_timeout(Duration::from_millis(20)).is_err());
        let late = copies.hold();
        drop(early);
        is_done.recv_timeout(LONG).expect("the late one is not waited for");
        waits.join().expect("it ends");
        copies.settle(Duration::from_millis(1));
        drop(late);
        copies.settle(LONG);
    }
}
