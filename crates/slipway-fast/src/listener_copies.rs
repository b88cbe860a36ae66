//! Copies of programs' listeners. A copy keeps a listener open, and its port in use, after its program has closed it.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::sync::{lock, whole};

/// All copies of a node, in the order in which they were taken.
#[derive(Debug, Default)]
pub(crate) struct ListenerCopies {
    state: Mutex<State>,
    fewer: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: u64,
    permitted: BTreeSet<u64>,
}

/// A permit: its holder takes a copy, or has it.
#[derive(Debug)]
pub(crate) struct CopyPermit {
    copies: Arc<ListenerCopies>,
    number: u64,
}

/// A copy of a program's listener.
#[derive(Debug)]
pub(crate) struct ListenerCopy {
    // Dropped first.
    socket: OwnedFd,
    _held: CopyPermit,
}

impl ListenerCopies {
    /// Announces that the caller takes a copy.
    pub(crate) fn permit(self: &Arc<Self>) -> CopyPermit {
        let mut state = lock(&self.state);
        state.taken += 1;
        let number = state.taken;
        state.permitted.insert(number);
        drop(state);
        CopyPermit { copies: Arc::clone(self), number }
    }

    /// Waits, up to a limit, until all copies are closed that were announced before this. Nobody copies a listener that is
    /// closed already.
    pub(crate) fn settle(&self, patience: Duration) {
        let state = lock(&self.state);
        let last = state.taken;
        let is_held = |state: &mut State| state.permitted.first().is_some_and(|first| *first <= last);
        drop(whole(self.fewer.wait_timeout_while(state, patience, is_held)));
    }
}

impl CopyPermit {
    pub(crate) fn copy(self, socket: OwnedFd) -> ListenerCopy {
        ListenerCopy { socket, _held: self }
    }
}

impl Drop for CopyPermit {
    fn drop(&mut self) {
        lock(&self.copies.state).permitted.remove(&self.number);
        self.copies.fewer.notify_all();
    }
}

impl Deref for ListenerCopy {
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
        let copies = Arc::new(ListenerCopies::default());
        copies.settle(LONG);
        let early = copies.permit();
        let (done, is_done) = mpsc::channel();
        let waiting = Arc::clone(&copies);
        let waits = thread::spawn(move || {
            waiting.settle(LONG);
            done.send(()).expect("it listens");
        });
        assert!(is_done.recv_timeout(Duration::from_millis(20)).is_err());
        let late = copies.permit();
        drop(early);
        is_done.recv_timeout(LONG).expect("the late one is not waited for");
        waits.join().expect("it ends");
        copies.settle(Duration::from_millis(1));
        drop(late);
        copies.settle(LONG);
    }
}
