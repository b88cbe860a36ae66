//! Work for the streams.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::found::Step;
use super::outgoing::Outgoing;

/// Small files that a worker takes at once, at most.
const BATCH: usize = 128;
/// Bytes of them, about.
const MOST: u64 = 512 << 10;

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

impl State {
    /// Takes one job, or small files for a frame: a lock for each would cost more than the file.
    fn take(&mut self, batch: &mut Vec<Job>) -> bool {
        let mut bytes = 0;
        while let Some(job) = self.jobs.front() {
            let small = match job {
                Job::Whole(outgoing) => Some(outgoing.size),
                _ => None,
            };
            bytes += small.unwrap_or(u64::MAX / 2);
            if !batch.is_empty() && (bytes > MOST || batch.len() == BATCH) {
                break;
            }
            batch.extend(self.jobs.pop_front());
            if small.is_none() {
                break;
            }
        }
        !batch.is_empty()
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, jobs: impl IntoIterator<Item = Job>) {
        let mut state = self.state();
        let before = state.jobs.len();
        state.jobs.extend(jobs);
        let more = state.jobs.len() - before;
        let small = matches!(state.jobs.back(), Some(Job::Whole(_)));
        drop(state);
        // A worker that woke for nothing would only be in the way.
        for _ in 0..if small { more.div_ceil(BATCH) } else { more } {
            self.changed.notify_one();
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

    /// Fills `batch` with the next job, or the next small files, as soon as there are some. False when there are no more.
    pub(super) fn pop(&self, batch: &mut Vec<Job>) -> bool {
        let mut state = self.state();
        loop {
            if state.take(batch) {
                return true;
            }
            if state.closed {
                return false;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`pop`](Self::pop), if there are any now.
    pub(super) fn try_pop(&self, batch: &mut Vec<Job>) -> bool {
        self.state().take(batch)
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
