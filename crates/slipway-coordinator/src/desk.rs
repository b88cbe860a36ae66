//! The coordinator's decisions, without sockets and processes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use slipway_campaign::model::{Campaign, Design};
use slipway_campaign::value::Value;
use slipway_results::objects::ObjectError;

use crate::pace::{PILOTS, Pace};
use crate::protocol::Report;
use crate::store::{
    Attempt, Counts, FailureKind, Filter, Lease, Outcome, Recorded, Rules, Spent, State, Step, Store, StoreError, Usage,
};

/// Longest message of a failure in bytes.
const WORDS: usize = 16 << 10;
/// Pulses that a worker may miss. They are counted by the coordinator's own: where it is stopped for a minute, or the
/// machine sleeps, no worker has missed any.
const MISSED: u32 = 10;
/// Attempts in a row, of any points, that fail since storage does, before the campaign stops.
const UNSTORED: u32 = 3;

/// What a worker is to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Given {
    /// Run these points.
    Run {
        leases: Vec<Lease>,
        /// Longest time of each.
        limit: Option<Duration>,
        /// Values of each, where a search chose them.
        values: Vec<Vec<Value>>,
    },
    /// Wait for a change, or for this long.
    Wait(Option<Duration>),
    /// End.
    End,
}

/// A report that was checked, and whether storage took its objects over.
pub(crate) struct Handed {
    pub(crate) report: Report,
    pub(crate) stored: Result<(), Refused>,
}

/// The reason why a report is none of a result.
pub(crate) struct Refused {
    kind: FailureKind,
    message: String,
}

impl From<ObjectError> for Refused {
    fn from(error: ObjectError) -> Self {
        let kind = match error {
            // The worker's fault, so that it cannot stop the campaign.
            ObjectError::Missing(_) | ObjectError::Content { .. } => FailureKind::Output,
            _ => FailureKind::Storage,
        };
        Self { kind, message: error.to_string() }
    }
}

/// The queue, and what was learnt of points.
pub(crate) struct Desk {
    store: Box<dyn Store>,
    outputs: usize,
    /// Whether a search chooses the points.
    searches: bool,
    rules: Rules,
    pace: Pace,
    peak: u64,
    start: Instant,
    closing: bool,
    workers: BTreeMap<u32, Heard>,
    /// Most workers; further ones end when they have no point.
    room: usize,
    /// Attempts in a row that storage failed, and the last one's reason.
    unstored: (u32, String),
}

/// The coordinator's record of a worker's calls.
#[derive(Debug, Default)]
struct Heard {
    has_called: bool,
    /// It was told to end.
    leaves: bool,
    /// Pulses of the coordinator since the worker's last.
    missed: u32,
}

impl Desk {
    /// Opens the queue. Points that workers of an earlier coordinator had wait again.
    pub(crate) fn new(campaign: &Campaign, mut store: Box<dyn Store>) -> Result<Self, StoreError> {
        store.recover()?;
        let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        store.begin(began.as_secs_f64())?;
        let mut pace = Pace::new(campaign.attempts.timeout.map(slipway_document::units::Seconds::duration));
        let mut peak = 0;
        for row in store.results(0, PILOTS)? {
            pace.note(row.usage.seconds);
            peak = row.usage.peak_bytes.max(peak);
        }
        let rules = Rules { most: campaign.attempts.most, pause: campaign.attempts.pause.0 };
        let outputs = campaign.outputs.len();
        let searches = matches!(campaign.design, Design::Search(_));
        store.lead(campaign.baseline.is_some().into())?;
        if searches {
            store.hold(campaign.baseline.as_deref())?;
        }
        let (start, closing, workers) = (Instant::now(), false, BTreeMap::new());
        let (room, unstored) = (usize::MAX, (0, String::new()));
        Ok(Self { store, outputs, searches, rules, pace, peak, start, closing, workers, room, unstored })
    }

    /// Expects a worker to call.
    pub(crate) fn expect(&mut self, worker: u32) {
        self.workers.insert(worker, Heard::default());
    }

    /// A worker lives.
    pub(crate) fn beat(&mut self, worker: u32) {
        if let Some(heard) = self.workers.get_mut(&worker) {
            heard.missed = 0;
        }
    }

    /// A second of the coordinator's has passed. Returns workers that have been silent for too long.
    pub(crate) fn pulse(&mut self) -> Vec<u32> {
        for heard in self.workers.values_mut() {
            heard.missed += 1;
        }
        self.workers.iter().filter(|(_, heard)| heard.missed > MISSED).map(|(worker, _)| *worker).collect()
    }

    fn hear(&mut self, worker: u32) {
        if let Some(heard) = self.workers.get_mut(&worker) {
            (heard.has_called, heard.missed) = (true, 0);
        }
    }

    /// A worker asks for points, and may have done so a while ago: its call says nothing about the present.
    fn note_call(&mut self, worker: u32) {
        if let Some(heard) = self.workers.get_mut(&worker) {
            heard.has_called = true;
        }
    }

    /// Seconds on the queue's clock.
    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Records what a worker reports. Objects are in storage before a record names them.
    pub(crate) fn record(&mut self, worker: u32, handed: Vec<Handed>) -> Result<Vec<Recorded>, StoreError> {
        self.hear(worker);
        let attempts: Vec<Attempt> = handed.into_iter().map(|handed| attempt(worker, handed)).collect();
        let recorded = self.store.record(&attempts, self.rules, self.now())?;
        for (attempt, recorded) in attempts.iter().zip(&recorded) {
            match &attempt.outcome {
                _ if *recorded == Recorded::Stale => {}
                Outcome::Failed { kind: FailureKind::Storage, message, .. } => {
                    self.unstored = (self.unstored.0 + 1, message.clone());
                }
                _ => self.unstored.0 = 0,
            }
            match recorded {
                Recorded::Done => {
                    self.pace.note(attempt.usage.seconds);
                    self.peak = self.peak.max(attempt.usage.peak_bytes);
                }
                Recorded::Stale => tracing::warn!(worker, point = attempt.point, "refused a late result"),
                Recorded::Again | Recorded::Failed => {}
            }
        }
        Ok(recorded)
    }

    /// Holds a report against the campaign, before its objects are taken over.
    pub(crate) fn check(&self, worker: u32, report: &Report) -> Result<(), Refused> {
        match self.fault(&report.outcome, &report.objects) {
            Some(fault) => {
                Err(Refused { kind: FailureKind::Output, message: format!("worker {worker} reported {fault}") })
            }
            None => Ok(()),
        }
    }

    /// A contradiction between a report and the campaign.
    fn fault(&self, outcome: &Outcome, objects: &[slipway_results::Digest]) -> Option<&'static str> {
        let (manifest, series) = match outcome {
            Outcome::Done(record) if record.values.len() != self.outputs => return Some("too many or too few results"),
            Outcome::Done(record) => (&record.manifest, &record.series[..]),
            Outcome::Failed { manifest, .. } => (manifest, &[][..]),
        };
        if series.iter().any(|(output, _)| *output >= self.outputs) {
            return Some("a time series of no output");
        }
        let mut named = series.iter().map(|(_, digest)| digest).chain(manifest);
        named.any(|digest| !objects.contains(digest)).then_some("an object without sending it")
    }

    /// What a worker is to do.
    pub(crate) fn give(&mut self, worker: u32) -> Result<Given, StoreError> {
        self.note_call(worker);
        if self.is_surplus(worker) {
            return Ok(Given::End);
        }
        if self.closing {
            return Ok(Given::End);
        }
        let now = self.now();
        let leases = self.store.lease(worker, self.share()?, now)?;
        if !leases.is_empty() {
            let values = if self.searches { self.values(&leases)? } else { Vec::new() };
            return Ok(Given::Run { leases, limit: self.pace.limit(), values });
        }
        let counts = self.store.counts()?;
        if counts.waiting + counts.running == 0 || self.store.state()? == State::Cancelled {
            return Ok(Given::End);
        }
        let due = self.store.due(now)?.map(|due| Duration::try_from_secs_f64((due - now).max(0.0)).unwrap_or_default());
        Ok(Given::Wait(due))
    }

    fn values(&self, leases: &[Lease]) -> Result<Vec<Vec<Value>>, StoreError> {
        let values = |lease: &Lease| Ok(self.store.values(lease.point)?.unwrap_or_default());
        leases.iter().map(values).collect()
    }

    /// The number of points that a worker gets: a batch, but no more than its share of the last ones.
    fn share(&self) -> Result<usize, StoreError> {
        let batch = self.pace.batch();
        if batch == 1 {
            return Ok(1);
        }
        let share = self.store.ready()? / (2 * self.workers.len().max(1) as u64);
        Ok(batch.min(usize::try_from(share).unwrap_or(batch)).max(1))
    }

    /// Takes the points of a worker back that has ended, for this reason. Returns whether the worker had called.
    pub(crate) fn lost(&mut self, worker: u32, why: &str) -> Result<bool, StoreError> {
        self.store.lost(worker, why, self.rules, self.now())?;
        Ok(self.workers.remove(&worker).is_some_and(|heard| heard.has_called))
    }

    /// Takes points back that a worker has, though it asks for others: it will not report them. Returns how many.
    pub(crate) fn settle(&mut self, worker: u32) -> Result<u64, StoreError> {
        self.store.lost(worker, "asked for other points, and gave no result", self.rules, self.now())
    }

    /// Sets how many workers there may be. Returns whether there are more.
    pub(crate) fn make_room(&mut self, room: u32) -> bool {
        self.room = usize::try_from(room).unwrap_or(usize::MAX);
        self.workers.len() > self.room
    }

    /// Whether a worker without points is one too many; it leaves then.
    fn is_surplus(&mut self, worker: u32) -> bool {
        if self.workers.len() <= self.room {
            return false;
        }
        let stay = self.workers.values().filter(|heard| !heard.leaves).count();
        let Some(heard) = self.workers.get_mut(&worker) else { return false };
        heard.leaves |= stay > self.room;
        heard.leaves
    }

    /// The reason why nothing can be stored, once it has failed several attempts in a row. Points that failed by it wait
    /// again: it is none of their faults.
    pub(crate) fn unstored(&mut self) -> Result<Option<String>, StoreError> {
        if self.unstored.0 < UNSTORED {
            return Ok(None);
        }
        self.store.retry(&Filter { failure: Some(FailureKind::Storage), ..Filter::default() })?;
        Ok(Some(std::mem::take(&mut self.unstored).1))
    }

    /// The reason why the baseline failed, once it has, in the program's words. Nothing else can run then.
    pub(crate) fn failed_baseline(&self) -> Result<Option<String>, StoreError> {
        Ok(self.store.stopper()?.map(|point| point.message.unwrap_or_default()))
    }

    /// Notes the time of workers in the queue, in seconds, so that the end of the coordinator loses none.
    pub(crate) fn note(&mut self, alive: f64, most: u32) -> Result<(), StoreError> {
        let elapsed = self.now();
        self.store.note(elapsed, alive, most)
    }

    /// Gives out no more points.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Has points that workers have wait again, as if they had not been given out.
    pub(crate) fn recover(&mut self) -> Result<u64, StoreError> {
        self.store.recover()
    }

    pub(crate) fn state(&self) -> Result<State, StoreError> {
        self.store.state()
    }

    pub(crate) fn counts(&self) -> Result<Counts, StoreError> {
        self.store.counts()
    }

    /// Points that can be given out now.
    pub(crate) fn ready(&self) -> Result<u64, StoreError> {
        self.store.ready()
    }

    /// The last step of the search, if there is one.
    pub(crate) fn step(&self) -> Result<Option<Step>, StoreError> {
        if self.searches { self.store.step() } else { Ok(None) }
    }

    /// The queue, for the search that fills it.
    pub(crate) fn store(&mut self) -> &mut dyn Store {
        self.store.as_mut()
    }

    pub(crate) fn spent(&self) -> Result<Spent, StoreError> {
        self.store.spent()
    }

    /// Most memory that a point took, in bytes; `None` before the first result.
    pub(crate) fn peak(&self) -> Option<u64> {
        (self.peak > 0).then_some(self.peak)
    }
}

/// A report as the queue takes it.
fn attempt(worker: u32, Handed { report, stored }: Handed) -> Attempt {
    let Report { point, fence, mut outcome, usage, .. } = report;
    if let Err(Refused { kind, message }) = stored {
        outcome = Outcome::Failed { kind, message, manifest: None };
    }
    if let Outcome::Failed { message, .. } = &mut outcome {
        message.truncate(message.floor_char_boundary(WORDS));
    }
    Attempt { point, fence, worker, outcome, usage: sane(usage) }
}

/// Usage without numbers that no attempt has, so that a worker cannot spoil sums.
fn sane(usage: Usage) -> Usage {
    let seconds = |seconds: f64| if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
    Usage {
        seconds: seconds(usage.seconds),
        cpu_seconds: seconds(usage.cpu_seconds),
        peak_bytes: usage.peak_bytes.min(i64::MAX.unsigned_abs()),
    }
}
