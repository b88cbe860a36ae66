//! A run of a campaign as its caller sees it: what it takes, tells, and ends with.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use slipway_campaign::model::Campaign;
use slipway_results::objects::ObjectError;
use slipway_results::objects::service::Service;

use crate::far::{Gate, GateError};
use crate::folder::{Folder, FolderError};
use crate::protocol::Setup;
use crate::search::SearchError;
use crate::store::{Counts, State, Step, StoreError};

/// Workers in a row that may end before their first call.
pub(crate) const BARREN: u32 = 3;

/// The places that workers run in.
pub trait Fleet {
    /// Starts workers, each in a clean place. `start` tells these starts from all others of the run. Each worker's
    /// descriptor becomes readable when the worker has ended.
    ///
    /// # Errors
    /// Where there is no such place.
    fn start(&mut self, workers: &[u32], start: u64) -> io::Result<Vec<OwnedFd>>;

    /// Ends a worker with all that it started. Returns its last words; empty without any.
    fn end(&mut self, worker: u32) -> String;

    /// Looks after workers that nobody reports. It is called about once a second.
    fn look(&mut self) {}
}

/// Limits of a campaign's workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Most workers at once.
    pub most: u32,
    /// Memory that workers may take together, in bytes, where the campaign does not give each its own. A pilot runs alone
    /// then, and tells the memory of a point.
    pub memory: Option<u64>,
}

/// A campaign to run.
#[derive(Debug)]
pub struct Run<'a> {
    /// Its folder, whose lock the caller has.
    pub folder: &'a Folder,
    /// The campaign.
    pub campaign: &'a Campaign,
    /// The campaign as workers get it.
    pub setup: Setup,
    /// Points of its design.
    pub points: u64,
    /// Limits of its workers.
    pub size: Size,
    /// Where workers of other machines come in; `None`: they are on this machine.
    pub gate: Option<Gate>,
    /// The program that stores results in a bucket; `None`: they are in the folder.
    pub service: Option<Service>,
    /// The Python interpreter with the library of a design that searches.
    pub python: Option<PathBuf>,
}

/// Progress of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Progress {
    /// Counts of points.
    #[serde(flatten)]
    pub counts: Counts,
    /// Workers that run.
    pub workers: u32,
    /// Whether no more points are given out, since the caller asked for an end.
    pub closing: bool,
    /// Duration of the run so far, in seconds.
    pub elapsed: f64,
    /// Time of workers in this run, where those that run now count until now.
    pub time: Time,
    /// The last step of a search.
    pub step: Option<Step>,
}

impl Progress {
    /// Whether something else than time differs.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        (self.counts, self.workers, self.closing, self.step) != (other.counts, other.workers, other.closing, other.step)
    }
}

/// A run of a campaign that has ended. Times are seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Counts of points.
    #[serde(flatten)]
    pub counts: Counts,
    /// The campaign's state.
    pub state: State,
    /// Whether a signal ended the run before all points had.
    pub interrupted: bool,
    /// Duration of the run.
    pub elapsed: f64,
    /// Time of workers in this run.
    pub workers: Time,
}

/// Time of workers in seconds: `used + lost + idle` is all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// For attempts that gave a result.
    pub used: f64,
    /// For attempts that failed.
    pub lost: f64,
    /// Without a program.
    pub idle: f64,
    /// Time of a fixed cluster: as many workers as there were at most, from begin to end.
    pub fixed: f64,
}

/// The reason why a campaign does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The queue.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Storage of results.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// Storage takes no results.
    #[error(
        "store results: several attempts in a row failed so; the last: {0}\nHint: their points wait again; mend it, then `slipway campaign run` goes on"
    )]
    Unstored(String),
    /// The point that all others wait for has failed.
    #[error(
        "run the baseline, point 0, so no other point runs; it failed with all attempts, the last one so: {0}\nHint: mend the cause; `slipway campaign retry --point 0` and `slipway campaign run` go on"
    )]
    Baseline(String),
    /// The folder was removed, or another one is in its place.
    #[error("use the campaign's database {}: it is gone, or another file is in its place\nHint: is its file system still mounted?", .0.display())]
    Gone(PathBuf),
    /// The place where workers of other machines come in.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The search.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// Workers end before they have done anything.
    #[error("run workers: {BARREN} in a row ended before their first call; the last: {0}")]
    Barren(String),
    /// A system call.
    #[error("{doing}: {source}")]
    Io {
        /// The failed action.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
}

impl RunError {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}
