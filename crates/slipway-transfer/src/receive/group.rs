//! Groups of whole files, which wait for their names.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, getrlimit};

use super::incoming::{Incoming, Part};

/// Files of a group, about, at most.
const MOST: usize = 16_384;

/// A file of which nothing more comes.
pub(super) struct Whole {
    pub(super) incoming: Arc<Incoming>,
    /// Its bytes, which are to take their name; `None` where the destination has it already.
    pub(super) part: Option<Arc<Part>>,
}

/// The files that wait for their names.
#[derive(Default)]
pub(super) struct Group {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    files: Vec<Whole>,
    closed: bool,
}

impl Group {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds files. Waits while there are as many as this process may hold open, and forgets them once the session is over.
    pub(super) fn add(&self, mut files: Vec<Whole>) {
        if files.is_empty() {
            return;
        }
        let most = most();
        let state = self.changed.wait_while(self.state(), |state| state.files.len() >= most && !state.closed);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if !state.closed {
            state.files.append(&mut files);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// No more come.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// The next group; `None` when there are no more.
    pub(super) fn next(&self) -> Option<Vec<Whole>> {
        let state = self.changed.wait_while(self.state(), |state| state.files.is_empty() && !state.closed);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let files = std::mem::take(&mut state.files);
        self.changed.notify_all();
        (!files.is_empty()).then_some(files)
    }
}

/// Files that this process may hold open in a group.
fn most() -> usize {
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    (limit.unwrap_or(usize::MAX) / 8).clamp(1, MOST)
}
