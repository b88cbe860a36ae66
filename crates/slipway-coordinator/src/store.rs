//! The queue of points and the records of their results.
//!
//! A point that no worker has had yet has no row: it lies behind the cursor. So a million planned points cost nothing. Each
//! lease has a *fence*, a number that only grows. A result counts if its fence is that of the point's lease, so a point gets
//! one result, whichever workers come late or repeat themselves.

mod history;
mod sqlite;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use slipway_campaign::value::Value;
use slipway_results::Digest;

pub use history::{Batch, History, Learnt, Step};
pub use sqlite::{Failures, Sqlite, Tally};

/// The number of a lease; greater than those of all leases before.
pub type Fence = u64;

/// The state of the whole campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Points are given out.
    Running,
    /// No further points are given out.
    Paused,
    /// Given up: points that wait will not run.
    Cancelled,
}

/// The state of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PointState {
    /// It waits for a worker.
    Waiting,
    /// A worker has it.
    Running,
    /// It has a result.
    Done,
    /// All its attempts failed.
    Failed,
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The program ended with an error of its own.
    Fatal,
    /// The attempt took too long.
    Timeout,
    /// The worker ended or was silent.
    LostWorker,
    /// Results could not be stored.
    Storage,
    /// The program ended well, but a result is missing.
    Output,
}

/// A point that a worker is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The point.
    pub point: u64,
    /// The number of the lease.
    pub fence: Fence,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

/// Resources that an attempt took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Wall-clock time in seconds.
    pub seconds: f64,
    /// Processor time of the program and its children, in seconds.
    pub cpu_seconds: f64,
    /// Most memory that one process of the program had, in bytes.
    pub peak_bytes: u64,
}

/// A point's result: small, whatever the size of its files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The extracted values, in the order of the campaign's outputs. `None` for a time series.
    pub values: Vec<Option<Value>>,
    /// Digests of the objects that hold time series, by index of the output.
    pub series: Vec<(usize, Digest)>,
    /// Digest of the list of files; `None` where the campaign keeps none.
    pub manifest: Option<Digest>,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The program ended well, with a result.
    Done(Record),
    /// It did not.
    Failed {
        /// The kind of failure.
        kind: FailureKind,
        /// The reason, in the program's own words where it has some.
        message: String,
        /// Digest of the list of files that it left; `None` where the campaign keeps none.
        manifest: Option<Digest>,
    },
}

/// An attempt that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The point.
    pub point: u64,
    /// The fence of its lease.
    pub fence: Fence,
    /// The worker.
    pub worker: u32,
    /// Its end.
    pub outcome: Outcome,
    /// Resources that it took.
    pub usage: Usage,
}

/// What became of a reported attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// The result counts.
    Done,
    /// The point waits for another attempt.
    Again,
    /// The point has failed.
    Failed,
    /// The lease was not, or no longer, the worker's: nothing changed.
    Stale,
}

/// Limits of attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// Attempts before a point has failed.
    pub most: u32,
    /// Seconds before the second attempt; twice as many before each further one.
    pub pause: f64,
}

/// How many points are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All points of the design.
    pub points: u64,
    /// Points that wait, whether or not some worker had them.
    pub waiting: u64,
    /// Points that workers have.
    pub running: u64,
    /// Points with a result.
    pub done: u64,
    /// Points whose attempts all failed.
    pub failed: u64,
}

/// A point that some worker had, or that has a priority.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Its number in the design.
    pub point: u64,
    /// Its state.
    pub state: PointState,
    /// Attempts so far.
    pub attempts: u32,
    /// The worker of the last attempt; 0 before the first.
    pub worker: u32,
    /// The kind of the last failure, if the last attempt failed.
    pub failure: Option<FailureKind>,
    /// The reason of it.
    pub message: Option<String>,
    /// Digest of the list of files that the last attempt left, if it failed and the campaign keeps them.
    pub manifest: Option<Digest>,
    /// Of points that wait, those with a greater one come first.
    pub priority: i32,
}

impl Point {
    /// The reason of the last failure in one line of at most 120 characters; empty without one.
    #[must_use]
    pub fn reason(&self) -> String {
        let message = self.message.as_deref().unwrap_or_default();
        let words: Vec<&str> = message.split_whitespace().collect();
        let line = words.join(" ");
        match line.char_indices().nth(REASON) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }
}

/// Characters of a reason in one line.
const REASON: usize = 119;

/// A result, in the order in which results came.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Greater than those of all results before.
    pub seq: u64,
    /// The point.
    pub point: u64,
    /// The worker.
    pub worker: u32,
    /// Attempts that the point took.
    pub attempts: u32,
    /// Resources of the last attempt.
    pub usage: Usage,
    /// Time at which it came, in seconds since 1970: the wall clock's when the run began, and the steady clock's since.
    pub at: f64,
    /// The result.
    pub record: Record,
}

/// Time of workers over all runs of a campaign, in seconds: `used + lost + idle` is all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// For attempts that gave a result.
    pub used: f64,
    /// For attempts that failed, or were cut off.
    pub lost: f64,
    /// Without a program.
    pub idle: f64,
    /// The time that each run's greatest number of workers would have taken, from its begin to its end.
    pub fixed: f64,
}

/// One run of a campaign: from the start of a coordinator to its end. Times are seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stint {
    /// The wall clock's time at the begin, since 1970.
    pub began: f64,
    /// Duration so far.
    pub elapsed: f64,
    /// Time of its workers together.
    pub alive: f64,
    /// Most workers at once.
    pub most: u32,
}

/// The points that a call is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// In this state.
    pub state: Option<PointState>,
    /// With a last failure of this kind.
    pub failure: Option<FailureKind>,
    /// One of these, where there are any.
    pub points: Vec<u64>,
}

/// The queue of a campaign. Times are seconds on one clock of the caller's, which starts anew with each opening.
pub trait Store: History + Send {
    /// The state of the campaign.
    fn state(&self) -> Result<State, StoreError>;

    /// Sets the state of the campaign.
    fn set_state(&mut self, state: State) -> Result<(), StoreError>;

    /// Counts of points, without looking at them.
    fn counts(&self) -> Result<Counts, StoreError>;

    /// Makes the design longer. A shorter length changes nothing.
    fn extend(&mut self, points: u64) -> Result<(), StoreError>;

    /// Has all points wait until those below `points` have a result.
    fn lead(&mut self, points: u64) -> Result<(), StoreError>;

    /// A point that all others wait for, and that has failed.
    fn stopper(&self) -> Result<Option<Point>, StoreError>;

    /// Gives points a priority: of those that wait, the greatest comes first. Each has 0 before. Points with a result, and those
    /// that a search has not chosen, are left out. Returns how many were not.
    fn prioritise(&mut self, points: &[u64], priority: i32) -> Result<u64, StoreError>;

    /// Gives at most `want` points to a worker.
    fn lease(&mut self, worker: u32, want: usize, now: f64) -> Result<Vec<Lease>, StoreError>;

    /// The time after `now` at which the next point that waits after a failure is due; `None` where none waits.
    fn due(&self, now: f64) -> Result<Option<f64>, StoreError>;

    /// Records attempts that ended, in one step.
    fn record(&mut self, attempts: &[Attempt], rules: Rules, now: f64) -> Result<Vec<Recorded>, StoreError>;

    /// Takes a worker's points back, each as an attempt that failed by [`FailureKind::LostWorker`], for this reason.
    fn lost(&mut self, worker: u32, why: &str, rules: Rules, now: f64) -> Result<u64, StoreError>;

    /// Takes all points back that workers have, as if they had not been given out: after the end of a coordinator.
    fn recover(&mut self) -> Result<u64, StoreError>;

    /// Begins a run, whose clock starts now. `began` is the wall clock's time, in seconds since 1970.
    fn begin(&mut self, began: f64) -> Result<(), StoreError>;

    /// Notes how long the run that began last has gone on, how long its workers lived together, and how many there were at
    /// most. Times are seconds.
    fn note(&mut self, elapsed: f64, alive: f64, most: u32) -> Result<(), StoreError>;

    /// All runs, the first one first.
    fn stints(&self) -> Result<Vec<Stint>, StoreError>;

    /// Has points run again whose results are damaged: those results are dropped. Returns how many had one.
    fn redo(&mut self, points: &[u64]) -> Result<u64, StoreError>;

    /// Results in a second, over the latest of them; `None` where there are too few to tell.
    fn rate(&self) -> Result<Option<f64>, StoreError>;

    /// Has points that failed run again, with all their attempts. Returns how many.
    fn retry(&mut self, filter: &Filter) -> Result<u64, StoreError>;

    /// Points that some worker had or that have a priority, from `from` in the order of their numbers.
    fn points(&self, filter: &Filter, from: u64, most: usize) -> Result<Vec<Point>, StoreError>;

    /// A point; `None` where no worker had it, and it has no priority.
    fn point(&self, point: u64) -> Result<Option<Point>, StoreError> {
        let filter = Filter { points: vec![point], ..Filter::default() };
        Ok(self.points(&filter, point, 1)?.pop())
    }

    /// Points whose last attempt failed, the latest first.
    fn failures(&self, most: usize) -> Result<Vec<Point>, StoreError>;

    /// How many points failed with all their attempts, by the kind of the last failure.
    fn kinds(&self) -> Result<Vec<(FailureKind, u64)>, StoreError>;

    /// Workers that have points.
    fn busy(&self) -> Result<u32, StoreError>;

    /// Results with a `seq` above `after`, in order.
    fn results(&self, after: u64, most: usize) -> Result<Vec<Row>, StoreError>;

    /// Number of results with a `seq` from `first` to `last`: of them all, if none was dropped.
    fn count_results(&self, first: u64, last: u64) -> Result<u64, StoreError>;

    /// The result of a point.
    fn result(&self, point: u64) -> Result<Option<Row>, StoreError>;

    /// Time that attempts took.
    fn spent(&self) -> Result<Spent, StoreError>;

    /// Compares counts with rows. Each sentence is a fault; none means that all is well.
    fn verify(&self) -> Result<Vec<String>, StoreError>;
}

/// The reason why the queue cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused.
    #[error("use the campaign's database {}: {source}{}", path.display(), sqlite::hint(source))]
    Database {
        /// Its file.
        path: PathBuf,
        /// The error.
        source: rusqlite::Error,
    },
    /// The file is no database of this version of Slipway.
    #[error("use {} as a campaign's database: {why}\nHint: the newest backup is {backup}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// The backup's name, or that there is none.
        backup: String,
    },
    /// A row cannot be read.
    #[error("read the record of point {point}: {source}\nHint: `slipway campaign verify` checks all of them")]
    Record {
        /// The point.
        point: u64,
        /// The error.
        source: serde_json::Error,
    },
}
