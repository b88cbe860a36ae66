//! State that the sender's threads share: files on their way out, work, and figures.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Request;
use super::looking::Looking;
use super::outgoing::Outgoing;
use super::pace::Pace;
use super::queue::Queue;
use crate::counts::Counts;
use crate::error::TransferError;
use crate::link::{ALIVE, Link, Sockets};
use crate::message::HEAVY;
use crate::report::Outcome;

/// Files that are announced and not settled, at most.
const MOST: usize = 200_000;

/// How long the receiver's reason may take, when a stream ended.
const PATIENCE: Duration = Duration::from_secs(3);

/// Figures, summed over streams. Times in nanoseconds.
pub(super) struct Figures {
    pub(super) counts: Counts,
    /// Bytes of frames.
    pub(super) sent: AtomicU64,
    pub(super) directories: AtomicU64,
    pub(super) links: AtomicU64,
    /// Files of which the receiver had the same.
    pub(super) same: AtomicU64,
    /// Bytes that the receiver had.
    pub(super) kept: AtomicU64,
    pub(super) reading: AtomicU64,
    pub(super) limited: AtomicU64,
    /// Streams without work.
    pub(super) idle: AtomicU64,
    /// The part of that in which files were listed, or the receiver looked for what it has.
    pub(super) listing: AtomicU64,
    /// All time of all streams.
    pub(super) streaming: AtomicU64,
    /// The receiver's writing.
    pub(super) writing: AtomicU64,
    /// When the first frame was ready, since the beginning.
    pub(super) first: AtomicU64,
    /// When the last frame was sent, since the beginning.
    pub(super) last: AtomicU64,
}

impl Default for Figures {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            counts: Counts::default(),
            sent: zero(),
            directories: zero(),
            links: zero(),
            same: zero(),
            kept: zero(),
            reading: zero(),
            limited: zero(),
            idle: zero(),
            listing: zero(),
            streaming: zero(),
            writing: zero(),
            // The earliest counts.
            first: AtomicU64::new(u64::MAX),
            last: zero(),
        }
    }
}

/// State that the sender's threads share.
pub(super) struct Shared {
    pub(super) queue: Queue,
    pub(super) pace: Option<Pace>,
    pub(super) figures: Figures,
    pub(super) verify: bool,
    pub(super) began: Instant,
    /// Blocks of the receiver's that are kept.
    pub(super) blocks: AtomicUsize,
    pub(super) waited: Arc<AtomicU64>,
    pub(super) outcome: Mutex<Outcome>,
    state: Mutex<State>,
    changed: Condvar,
    sockets: Sockets,
}

#[derive(Default)]
struct State {
    files: HashMap<u64, Arc<Outgoing>>,
    /// Their weight at the receiver.
    weight: usize,
    looking: Looking,
    /// The last order was sent.
    finished: bool,
    over: bool,
    error: Option<TransferError>,
}

/// End of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The condition holds.
    Ready,
    /// The session is over.
    Ended,
    /// Neither; the other end is to hear that this one lives.
    Longer,
}

impl State {
    fn has_room(&self) -> bool {
        self.files.len() < MOST && self.weight < HEAVY
    }

    fn ended(&self) -> bool {
        self.over || self.error.is_some()
    }
}

impl Shared {
    pub(super) fn new(request: &Request, waited: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            queue: Queue::default(),
            pace: request.limit.map(Pace::new),
            figures: Figures::default(),
            verify: request.verify,
            began: Instant::now(),
            blocks: AtomicUsize::new(0),
            waited,
            outcome: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            sockets: Sockets::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_socket(&self, link: &Link) {
        self.sockets.add(link);
    }

    /// Waits until `ready` or the end, for [`ALIVE`] at most.
    fn await_that(&self, ready: impl Fn(&State) -> bool) -> (MutexGuard<'_, State>, Wait) {
        let waited = self.changed.wait_timeout_while(self.state(), ALIVE, |state| !ready(state) && !state.ended());
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let wait = match (state.ended(), ready(&state)) {
            (true, _) => Wait::Ended,
            (false, true) => Wait::Ready,
            (false, false) => Wait::Longer,
        };
        (state, wait)
    }

    /// Waits while too many files are on their way. Meanwhile none is listed.
    pub(super) fn await_room(&self) -> Wait {
        if self.state().has_room() {
            return Wait::Ready;
        }
        self.list(false);
        let wait = self.await_that(State::has_room).1;
        self.list(true);
        wait
    }

    /// Files are listed from now on, or no longer.
    pub(super) fn list(&self, lists: bool) {
        self.state().looking.list(lists, Instant::now());
    }

    /// The receiver has said what it has of files.
    pub(super) fn answer(&self, files: u64) {
        self.state().looking.answer(files, Instant::now());
    }

    /// How long files were listed, or looked for at the receiver.
    pub(super) fn looking(&self) -> Duration {
        self.state().looking.time(Instant::now())
    }

    /// Takes note of a file before it is announced.
    pub(super) fn announce(&self, outgoing: Arc<Outgoing>) {
        let mut state = self.state();
        state.weight += outgoing.weight;
        state.looking.announce(Instant::now());
        self.figures.counts.announce(outgoing.size);
        state.files.insert(outgoing.id, outgoing);
    }

    /// Files that the receiver speaks of.
    pub(super) fn files(&self, ids: &[u64]) -> Result<Vec<Arc<Outgoing>>, TransferError> {
        let state = self.state();
        let unknown = |id| TransferError::Protocol(format!("it speaks of file {id}, which nobody announced"));
        ids.iter().map(|id| state.files.get(id).cloned().ok_or_else(|| unknown(id))).collect()
    }

    /// As [`files`](Self::files), for one.
    pub(super) fn file(&self, id: u64) -> Result<Arc<Outgoing>, TransferError> {
        let unknown = || TransferError::Protocol(format!("it speaks of file {id}, which nobody announced"));
        self.state().files.get(&id).cloned().ok_or_else(unknown)
    }

    /// Files need nothing more.
    pub(super) fn settle(&self, ids: &[u64]) {
        let mut state = self.state();
        let had_room = state.has_room();
        for id in ids {
            let Some(outgoing) = state.files.remove(id) else { continue };
            state.weight -= outgoing.weight;
            self.figures.counts.settle(1);
            if !outgoing.answered.swap(true, Ordering::Relaxed) {
                state.looking.answer(1, Instant::now());
            }
            // Where the file was not compared to its end.
            outgoing.found().clear(&self.blocks);
        }
        if state.files.is_empty() || !had_room && state.has_room() {
            self.changed.notify_all();
        }
    }

    /// Waits until no file is on its way.
    pub(super) fn await_settled(&self) -> Wait {
        self.await_that(|state| state.files.is_empty()).1
    }

    /// Waits until the receiver says that all is done, or something fails.
    pub(super) fn await_over(&self) -> Wait {
        self.await_that(|_| false).1
    }

    /// The next order is the last.
    pub(super) fn finish(&self) {
        self.state().finished = true;
    }

    /// Waits for a while. True when it is over.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), time, |state| !state.ended());
        waited.unwrap_or_else(PoisonError::into_inner).0.ended()
    }

    /// The receiver says that all is done. False where that cannot be.
    pub(super) fn over(&self) -> bool {
        let mut state = self.state();
        if !state.finished || !state.files.is_empty() {
            return false;
        }
        state.over = true;
        drop(state);
        self.queue.close(true);
        self.changed.notify_all();
        true
    }

    /// Whether the session is over, in whatever way.
    pub(super) fn has_ended(&self) -> bool {
        self.state().ended()
    }

    /// Whether the receiver said that all is done.
    pub(super) fn is_over(&self) -> bool {
        self.state().over
    }

    /// As [`fail`](Self::fail), for a stream that ended: the receiver's own reason is on its way with the answers.
    pub(super) fn fail_after_answers(&self, error: TransferError) {
        self.wait(PATIENCE);
        self.fail(error);
    }

    /// The first error counts. All threads end.
    pub(super) fn fail(&self, error: TransferError) {
        let mut state = self.state();
        if !state.ended() {
            state.error = Some(error);
        }
        self.changed.notify_all();
        drop(state);
        self.queue.close(false);
        self.sockets.end();
    }

    pub(super) fn end(&self) -> Result<(), TransferError> {
        self.state().error.take().map_or(Ok(()), Err)
    }
}
