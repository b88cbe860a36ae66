//! The coordinator: it starts workers, answers them, and ends when the queue is empty.
//!
//! It has one thread: labs' processes are cloned from it, and SQLite's calls are short.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use slipway_campaign::model::Campaign;
use slipway_results::objects::service::Service;
use slipway_results::objects::{Directory, ObjectError};
use slipway_sys::signals::Taken;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::desk::Desk;
use crate::folder::{Folder, FolderError};
use crate::keeper::{Client, Keeper};
use crate::protocol::{PULSE, Setup};
use crate::search::{Quest, SearchError, search};
use crate::serve::{self, Office};
use crate::store::{Counts, Spent, Sqlite, State, Step, Store as _, StoreError};

/// Time after which the coordinator looks for another process's change of the queue.
const LOOK: Duration = Duration::from_millis(500);
/// Shortest time between two reports of progress.
const TOLD: Duration = Duration::from_millis(100);
/// Longest time between them.
const QUIET: Duration = Duration::from_secs(1);
/// Workers in a row that may end before their first call.
const BARREN: u32 = 3;
/// A worker's memory is this many times the most that a point took.
const ROOM: f64 = 1.25;

/// The places that workers run in.
pub trait Fleet {
    /// Starts a worker in a clean place. The descriptor becomes readable when the worker has ended.
    ///
    /// # Errors
    /// Where there is no such place.
    fn start(&mut self, worker: u32) -> io::Result<OwnedFd>;

    /// Ends a worker with all that it started. Returns its last words; empty without any.
    fn end(&mut self, worker: u32) -> String;
}

/// Limits of a campaign's workers on this machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Most workers at once.
    pub most: u32,
    /// Memory that workers may take together, in bytes, where the campaign does not give each its own: a pilot runs alone
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
    /// The same, for workers.
    pub setup: Setup,
    /// Points of its design.
    pub points: u64,
    /// Limits of its workers.
    pub size: Size,
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
    fn differs(&self, other: &Self) -> bool {
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
    fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

/// Runs a campaign until its points are done, or a signal comes: the first one lets running points end, the second ends
/// them. The caller has one thread.
///
/// # Errors
/// Where queue, storage or workers fail. Results that were recorded stay.
pub fn run(
    run: Run<'_>,
    fleet: &mut dyn Fleet,
    signals: &Taken,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, RunError> {
    let Run { folder, campaign, setup, points, size, service, python } = run;
    let mut store = Sqlite::create(&folder.store(), points)?;
    store.back_up()?;
    store.extend(points)?;
    let desk = Desk::new(campaign, Box::new(store))?;
    let keeper = match service {
        Some(service) => Keeper::There(Client::new(service)),
        None => Keeper::Here(Directory::open(&folder.objects())?),
    };
    let office = Office::new(desk, keeper, setup, campaign.workers.idle.duration());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(RunError::io("start the event loop"))?;
    runtime.block_on(async {
        let quest = python.zip(campaign.search()).map(|(python, plan)| Quest {
            campaign: campaign.clone(),
            plan,
            python,
            log: folder.optimiser(),
        });
        let mut crew = Crew::new(folder, office, size, fleet);
        crew.search = quest.map(|quest| tokio::spawn(search(crew.office.clone(), quest)));
        let outcome = crew.work(signals, progress).await;
        let ended = crew.end_all();
        // The first error is the cause.
        let interrupted = outcome?;
        ended?;
        crew.summary(interrupted)
    })
}

struct Crew<'a> {
    folder: &'a Folder,
    office: Arc<Office>,
    size: Size,
    fleet: &'a mut dyn Fleet,
    alive: BTreeMap<u32, Alive>,
    ended: (mpsc::UnboundedSender<u32>, mpsc::UnboundedReceiver<u32>),
    barren: u32,
    start: Instant,
    /// Seconds of workers that have ended.
    lived: f64,
    most: usize,
    before: Spent,
    /// The search, until it has ended.
    search: Option<JoinHandle<Result<(), SearchError>>>,
    /// Device and inode of the queue's file.
    file: Option<(u64, u64)>,
}

struct Alive {
    since: Instant,
    serve: JoinHandle<()>,
    watch: JoinHandle<()>,
}

impl<'a> Crew<'a> {
    fn new(folder: &'a Folder, office: Arc<Office>, size: Size, fleet: &'a mut dyn Fleet) -> Self {
        let before = office.desk().spent().unwrap_or_default();
        let (alive, ended, start) = (BTreeMap::new(), mpsc::unbounded_channel(), Instant::now());
        let file = identity(folder);
        Self {
            folder,
            office,
            size,
            fleet,
            alive,
            ended,
            barren: 0,
            start,
            lived: 0.0,
            most: 0,
            before,
            search: None,
            file,
        }
    }

    /// Works until nothing is left to do. Returns whether a signal ended it.
    async fn work(&mut self, signals: &Taken, progress: &mut dyn FnMut(Progress)) -> Result<bool, RunError> {
        let asked = watch(signals.as_fd()).map_err(RunError::io("await signals"))?;
        let mut told: Option<(Instant, Progress)> = None;
        let mut last = (State::Running, 0);
        let mut pulse = tokio::time::interval(PULSE);
        // A coordinator that was stopped has one pulse for all that it missed: see `Desk::pulse`.
        pulse.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if let Some(error) = self.office.fault() {
                return Err(error.into());
            }
            if let Some(why) = self.office.desk().unstored()? {
                self.is_there()?;
                return Err(RunError::Unstored(why));
            }
            let (counts, ready, state, closing, step) = {
                let desk = self.office.desk();
                (desk.counts()?, desk.ready()?, desk.state()?, desk.is_closing(), desk.step()?)
            };
            let workers = u32::try_from(self.alive.len()).unwrap_or(u32::MAX);
            let (elapsed, time) = self.time()?;
            let now = Progress { counts, workers, closing, elapsed, time, step };
            let is_due =
                |(at, before): (Instant, Progress)| at.elapsed() >= if before.differs(&now) { TOLD } else { QUIET };
            if told.is_none_or(is_due) {
                progress(now);
                told = Some((Instant::now(), now));
            }
            // Another command may have changed the state, or have points that failed run again.
            if state != last.0 || counts.waiting > last.1 {
                self.office.changed.notify_waiters();
            }
            last = (state, counts.waiting);
            if let Some(why) = self.office.desk().failed_baseline()?.filter(|_| state != State::Cancelled) {
                progress(now);
                return Err(RunError::Baseline(why));
            }
            let is_done = counts.waiting + counts.running == 0 && self.search.is_none();
            let is_over = is_done || closing && self.alive.is_empty();
            if is_over || state == State::Cancelled {
                progress(now);
                return Ok(closing && counts.waiting > 0);
            }
            let demand = counts.running + if state == State::Running && !closing { ready } else { 0 };
            self.grow(demand)?;
            tokio::select! {
                worker = self.ended.1.recv() => self.bury(worker.unwrap_or_default(), "ended")?,
                _ = pulse.tick() => self.pulse()?,
                ended = ended(&mut self.search) => {
                    self.search = None;
                    ended?;
                }
                () = self.office.progress.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
                ready = asked.readable() => {
                    ready.map_err(RunError::io("await signals"))?.clear_ready();
                    while signals.take().map_err(RunError::io("take a signal"))?.is_some() {
                        if self.office.desk().is_closing() {
                            return Ok(true);
                        }
                        self.office.desk().close();
                        self.office.changed.notify_waiters();
                    }
                }
            }
        }
    }

    /// Looks after what nobody reports: silent workers, a folder that is gone, the time.
    fn pulse(&mut self) -> Result<(), RunError> {
        self.is_there()?;
        let silent = self.office.desk().pulse();
        for worker in silent {
            tracing::warn!(worker, "end a worker that is silent");
            self.bury(worker, "was silent for 10 s: it was stopped, or its machine is too busy")?;
        }
        self.note()?;
        Ok(())
    }

    /// Makes sure that the queue is in its folder: without it, changes would go to a file that nobody finds again.
    fn is_there(&self) -> Result<(), RunError> {
        let is_there = self.file.is_some() && identity(self.folder) == self.file;
        if is_there { Ok(()) } else { Err(RunError::Gone(self.folder.store())) }
    }

    /// Notes the time of workers.
    fn note(&self) -> Result<(), StoreError> {
        let alive: f64 = self.alive.values().map(|alive| alive.since.elapsed().as_secs_f64()).sum();
        self.office.desk().note(self.lived + alive, u32::try_from(self.most).unwrap_or(u32::MAX))
    }

    /// Starts workers where there are more points than workers. Where memory turns out too small for those that live, some
    /// end, after their points: idle ones first, since they hear of it at once.
    fn grow(&mut self, demand: u64) -> Result<(), RunError> {
        let room = self.room();
        if self.office.desk().make_room(room) {
            self.office.changed.notify_waiters();
        }
        let target = demand.min(u64::from(room));
        let free: Vec<u32> = (1..=self.size.most).filter(|worker| !self.alive.contains_key(worker)).collect();
        for worker in free {
            if self.alive.len() as u64 >= target {
                break;
            }
            self.folder.make_worker(worker)?;
            let socket = self.folder.socket(worker);
            let serve = serve::open(&self.office, worker, &socket, self.folder.work(worker).join("out"))
                .map_err(RunError::io("open a worker's socket"))?;
            self.office.desk().expect(worker);
            let started = self.fleet.start(worker).and_then(watch);
            let pidfd = match started {
                Ok(pidfd) => pidfd,
                Err(source) => {
                    serve.abort();
                    return Err(RunError::Io { doing: "start a worker", source });
                }
            };
            let ended = self.ended.0.clone();
            let watch = tokio::spawn(async move {
                // An error means that nobody can watch: the worker counts as ended.
                let _ = pidfd.readable().await.map(drop);
                let _ = ended.send(worker);
            });
            self.alive.insert(worker, Alive { since: Instant::now(), serve, watch });
            self.most = self.most.max(self.alive.len());
        }
        Ok(())
    }

    /// Most workers at once.
    fn room(&self) -> u32 {
        let Some(memory) = self.size.memory else { return self.size.most };
        match self.office.desk().peak() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a ratio from 1 to `most`")]
            Some(peak) => (memory as f64 / (peak as f64 * ROOM)).clamp(1.0, f64::from(self.size.most)) as u32,
            None => 1,
        }
    }

    /// Takes back what a worker had that has ended, or is to end, for this reason.
    fn bury(&mut self, worker: u32, why: &str) -> Result<(), RunError> {
        let words = self.remove(worker);
        if self.office.desk().lost(worker, why)? {
            self.barren = 0;
        } else {
            self.barren += 1;
            if self.barren == BARREN {
                let words = if words.is_empty() { "it said nothing".to_owned() } else { words };
                return Err(RunError::Barren(words));
            }
        }
        self.office.changed.notify_waiters();
        Ok(())
    }

    /// Ends a worker. Returns its last words.
    fn remove(&mut self, worker: u32) -> String {
        let Some(Alive { since, serve, watch }) = self.alive.remove(&worker) else { return String::new() };
        watch.abort();
        let words = self.fleet.end(worker);
        serve.abort();
        self.lived += since.elapsed().as_secs_f64();
        words
    }

    fn end_all(&mut self) -> Result<(), RunError> {
        while let Some(&worker) = self.alive.keys().next() {
            self.remove(worker);
        }
        self.note()?;
        self.office.desk().recover()?;
        Ok(())
    }

    /// Duration of the run so far, and the time of its workers.
    fn time(&self) -> Result<(f64, Time), StoreError> {
        let (spent, elapsed) = (self.office.desk().spent()?, self.start.elapsed().as_secs_f64());
        let (used, lost) = (spent.used - self.before.used, spent.lost - self.before.lost);
        let lived = self.lived + self.alive.values().map(|alive| alive.since.elapsed().as_secs_f64()).sum::<f64>();
        Ok((elapsed, Time { used, lost, idle: (lived - used - lost).max(0.0), fixed: self.most as f64 * elapsed }))
    }

    fn summary(&self, interrupted: bool) -> Result<Summary, RunError> {
        let (elapsed, workers) = self.time()?;
        let desk = self.office.desk();
        Ok(Summary { counts: desk.counts()?, state: desk.state()?, interrupted, elapsed, workers })
    }
}

/// The end of a search; never, where there is none.
async fn ended(search: &mut Option<JoinHandle<Result<(), SearchError>>>) -> Result<(), SearchError> {
    let Some(search) = search else { return std::future::pending().await };
    match search.await {
        Ok(ended) => ended,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The file that has the queue now: its device and inode.
fn identity(folder: &Folder) -> Option<(u64, u64)> {
    std::fs::metadata(folder.store()).ok().map(|found| (found.dev(), found.ino()))
}

/// A descriptor on the event loop, for what becomes readable.
#[expect(
    deprecated,
    reason = "`AsFd` promises what the new function's unsafe contract asks: the descriptor stays open"
)]
fn watch<T: AsFd + AsRawFd>(descriptor: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}
