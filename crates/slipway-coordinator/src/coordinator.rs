//! The coordinator: it starts workers, answers them, and ends when the queue is empty.
//!
//! It has one thread: labs' processes are cloned from it, and SQLite's calls are short.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slipway_results::objects::Directory;
use slipway_sys::signals::Taken;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::desk::Desk;
use crate::far::{News, Seats};
use crate::folder::Folder;
use crate::keeper::{Client, Keeper};
use crate::protocol::PULSE;
use crate::readable::watch;
use crate::run::{BARREN, Fleet, Progress, Run, RunError, Size, Summary, Time};
use crate::search::{Quest, SearchError, search};
use crate::serve::{self, Office};
use crate::store::{Spent, Sqlite, State, Store as _, StoreError};

/// Time after which the coordinator looks for another process's change of the queue.
const LOOK: Duration = Duration::from_millis(500);
/// Shortest time between two reports of progress.
const TOLD: Duration = Duration::from_millis(100);
/// Longest time between them.
const QUIET: Duration = Duration::from_secs(1);
/// A worker's memory is this many times the most that a point took.
const ROOM: f64 = 1.25;

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
    let Run { folder, campaign, setup, points, size, gate, service, python } = run;
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
        if let Some(gate) = gate {
            let seats = gate.serve(folder, crew.ended.0.clone());
            crew.seats = Some(seats.map_err(RunError::io("let workers in"))?);
        }
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
    ended: (mpsc::UnboundedSender<News>, mpsc::UnboundedReceiver<News>),
    /// Workers of other machines; `None`: all are on this one.
    seats: Option<Seats>,
    /// Number of the last start of workers.
    starts: u64,
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
    /// Number of its start.
    start: u64,
    /// `None` until its machine has joined.
    since: Option<Instant>,
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
            seats: None,
            starts: 0,
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
            let workers = u32::try_from(self.working()).unwrap_or(u32::MAX);
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
            if closing || state == State::Paused {
                self.call_off();
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
                Some(news) = self.ended.1.recv() => self.hear(news)?,
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
        self.fleet.look();
        let silent = self.office.desk().pulse();
        for worker in silent {
            tracing::warn!(worker, "end a worker that is silent");
            self.bury(worker, "was silent for 10 s: it was stopped, or its machine is too busy", "")?;
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
        let alive = self.living();
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
        let alive = &self.alive;
        let wanted = usize::try_from(target).unwrap_or(usize::MAX).saturating_sub(alive.len());
        let free = (1..=self.size.most).filter(|worker| !alive.contains_key(worker));
        let workers: Vec<u32> = free.take(wanted).collect();
        if workers.is_empty() {
            return Ok(());
        }
        // No folder is made where the storage is gone, which may come to light only now.
        self.is_there()?;
        self.start(&workers).or_else(|error| self.is_there().and(Err(error)))
    }

    fn start(&mut self, workers: &[u32]) -> Result<(), RunError> {
        self.starts += 1;
        let start = self.starts;
        let mut serves = Vec::with_capacity(workers.len());
        for &worker in workers {
            self.folder.make_worker(worker)?;
            let (socket, out) = (self.folder.socket(worker), self.folder.work(worker).join("out"));
            let serve = serve::open(&self.office, worker, &socket, out);
            serves.push(serve.map_err(RunError::io("open a worker's socket"))?);
            match &self.seats {
                Some(seats) => seats.expect(worker, start),
                None => self.office.desk().expect(worker),
            }
        }
        let started = self.fleet.start(workers, start).and_then(|all| all.into_iter().map(watch).collect());
        let pidfds: Vec<_> = match started {
            Ok(pidfds) => pidfds,
            Err(source) => {
                serves.iter().for_each(JoinHandle::abort);
                return Err(RunError::Io { doing: "start a worker", source });
            }
        };
        for ((&worker, serve), pidfd) in workers.iter().zip(serves).zip(pidfds) {
            let ended = self.ended.0.clone();
            let watch = tokio::spawn(async move {
                // An error means that nobody can watch: the worker counts as ended.
                let _ = pidfd.readable().await.map(drop);
                let _ = ended.send(News::Left { worker, start, words: String::new() });
            });
            let since = self.seats.is_none().then(Instant::now);
            self.alive.insert(worker, Alive { start, since, serve, watch });
        }
        self.most = self.most.max(self.working());
        Ok(())
    }

    /// Takes up that a worker has joined or ended. News of an earlier start of the same worker say nothing.
    fn hear(&mut self, news: News) -> Result<(), RunError> {
        let (News::Joined { worker, start } | News::Left { worker, start, .. }) = news;
        let Some(alive) = self.alive.get_mut(&worker).filter(|alive| alive.start == start) else { return Ok(()) };
        match news {
            News::Left { words, .. } => self.bury(worker, "ended", &words),
            News::Joined { .. } => {
                alive.since = Some(Instant::now());
                self.office.desk().expect(worker);
                self.most = self.most.max(self.working());
                Ok(())
            }
        }
    }

    /// Workers that run: not those whose machines have yet to join.
    fn working(&self) -> usize {
        self.alive.values().filter(|alive| alive.since.is_some()).count()
    }

    /// Seconds that the workers which run have run so far.
    fn living(&self) -> f64 {
        self.alive.values().filter_map(|alive| Some(alive.since?.elapsed().as_secs_f64())).sum()
    }

    /// Ends the wait for machines that have yet to join.
    fn call_off(&mut self) {
        let waiting = self.alive.iter().filter(|(_, alive)| alive.since.is_none());
        let waiting: Vec<u32> = waiting.map(|(worker, _)| *worker).collect();
        for worker in waiting {
            self.remove(worker);
        }
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

    /// Takes back what a worker had that has ended, or is to end, for this reason. `words`: its last ones, as far as its
    /// machine told them.
    fn bury(&mut self, worker: u32, why: &str, words: &str) -> Result<(), RunError> {
        let removed = self.remove(worker);
        let words = if words.is_empty() { removed } else { words.to_owned() };
        if self.office.desk().lost(worker, why)? {
            self.barren = 0;
        } else if self.seats.is_none() || !words.is_empty() {
            // A job that somebody cancelled, or a machine that went down, says nothing, and is no fault of the campaign's.
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
        let Some(Alive { since, serve, watch, .. }) = self.alive.remove(&worker) else { return String::new() };
        watch.abort();
        if let Some(seats) = &self.seats {
            seats.remove(worker);
        }
        let words = self.fleet.end(worker);
        serve.abort();
        self.lived += since.map_or(0.0, |since| since.elapsed().as_secs_f64());
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
        let lived = self.lived + self.living();
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
