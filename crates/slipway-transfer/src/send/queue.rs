//! Work for the streams.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::found::Step;
use super::outgoing::Outgoing;

/// A piece of work.
pub(super) enum Job {
    /// All of a small file.
    Whole(Arc<Outgoing>),
    /// A segment of a file of which the receiver has nothing.
    Segment(Arc<Outgoing>, Range<u64>),
    /// Find the blocks of a segment that the receiver has.
    Compare(Arc<Outgoing>, Range<u64>),
    /// Send the rest of it.
    Steps(Arc<Outgoing>, Vec<Step>),
    /// Tell the receiver that its version is the same.
    Same(Arc<Outgoing>),
}

/// Jobs in order; all streams take from it.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, jobs: impl IntoIterator<Item = Job>) {
        let mut state = self.state();
        let before = state.jobs.len();
        state.jobs.extend(jobs);
        if state.jobs.len() == before + 1 {
            self.changed.notify_one();
        } else {
            self.changed.notify_all();
        }
    }

    /// Before all others: what finishes a file that was begun.
    pub(super) fn push_front(&self, jobs: impl DoubleEndedIterator<Item = Job>) {
        let mut state = self.state();
        for job in jobs.rev() {
            state.jobs.push_front(job);
        }
        self.changed.notify_all();
    }

    /// The next, as soon as there is one; `None` when there are no more.
    pub(super) fn pop(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next, if there is one now.
    pub(super) fn try_pop(&self) -> Option<Job> {
        self.state().jobs.pop_front()
    }

    /// No more jobs come. Workers do the remaining ones where `drain`; else the queue forgets them.
    pub(super) fn close(&self, drain: bool) {
        let mut state = self.state();
        state.closed = true;
        if !drain {
            state.jobs.clear();
        }
        self.changed.notify_all();
    }
}
