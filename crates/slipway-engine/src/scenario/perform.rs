//! A scenario played on a running lab, from the first line of its log to the last; and a lab put back as it was.

use std::io;
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;
use slipway_lab::change::{Change, Keys as _, NodeChange};
use slipway_lab::id::NodeId;
use slipway_lab::model::Limits;
use slipway_lab::scenario::Order;
use slipway_measure::play::{self, Begin, End, Line, Summary};

use super::beside::{JobFailure, read_outcome};
use super::folder::{Claim, Folder, Kept, Log, ScenarioError};
use super::player::{Ends, Outcome, Part, Player};
use super::stage::Stage;
use super::words::wall;
use crate::job;
use crate::lab::{LabError, Running, undo};
use crate::state::StateRoot;

/// What is done beside a scenario: a job, or anything that `SIGTERM` ends. It is called in a process of its own, with the
/// lab as that opened it.
pub type Beside<'a, T> = Box<dyn FnOnce(&Running) -> Result<T, JobFailure> + 'a>;

/// What came of it.
#[derive(Debug)]
pub struct Performance<T> {
    /// Of the scenario.
    pub played: Outcome,
    /// Of the job, where there was one.
    pub job: Option<Result<T, JobFailure>>,
    /// The signal that ended it before its time, by number.
    pub signal: Option<u8>,
}

/// Plays a scenario on a running lab. `begin` is the log's first line, but for its time. Each line of the log goes to
/// `show` too.
///
/// The caller must have one thread, and have made `kept.folder`.
///
/// # Errors
/// When it cannot be begun, or its log cannot be written; then what was changed is taken back.
pub fn play<T: Serialize + DeserializeOwned>(
    root: &StateRoot,
    running: Running,
    claim: Claim,
    kept: &Kept,
    begin: Begin,
    beside: Option<Beside<'_, T>>,
    show: &mut dyn FnMut(&Line),
) -> Result<Performance<T>, ScenarioError> {
    let folder = Folder::of(running.dir());
    folder.begin(kept)?;
    let lab = running.lab.clone();
    let mut stage = Stage::open(root, running, claim, kept.limits.clone(), kept.folder.clone())?;
    stage.prepare(&kept.schedule);
    if let Some(job) = beside {
        stage.start_job(job)?;
    }
    let first = Line::Begin(Begin { started: wall(SystemTime::now()), ..begin });
    let mut log = Log::begin(&folder, &kept.folder, &first)?;
    show(&first);
    let part = Part { lab: &lab, schedule: &kept.schedule, ends: kept.ends, keep: kept.keep };
    let alive = stage.alive();
    let mut write = |line: &Line| {
        show(line);
        log.write(line)
    };
    let played = Player::new(part, &mut stage, alive, &mut write).play();
    finish(stage, played)
}

/// Plays one machine's part of a scenario, from a time that a coordinator says once every machine is `ready`: a time of this
/// machine's monotonic clock, nanoseconds. An interrupt ends it early, as ever.
///
/// The caller must have one thread, and have made `kept.folder`.
///
/// # Errors
/// As [`play`](play()), and when `ready` fails; then nothing was changed.
pub fn play_part(
    root: &StateRoot,
    running: Running,
    claim: Claim,
    kept: &Kept,
    begin: Begin,
    ready: impl FnOnce() -> io::Result<u64>,
    show: &mut dyn FnMut(&Line),
) -> Result<Outcome, ScenarioError> {
    let folder = Folder::of(running.dir());
    folder.begin(kept)?;
    let lab = running.lab.clone();
    let mut stage = Stage::open(root, running, claim, kept.limits.clone(), kept.folder.clone())?;
    stage.prepare(&kept.schedule);
    let origin = match ready() {
        Ok(origin) => origin,
        Err(error) => {
            stage.settle();
            return Err(ScenarioError::io("wait for the scenario's beginning")(error));
        }
    };
    // One that goes on after this player keeps to the clock of all.
    folder.begin(&Kept { origin: Some(origin), ..kept.clone() })?;
    let first = Line::Begin(Begin { started: wall(SystemTime::now()), ..begin });
    let mut log = Log::begin(&folder, &kept.folder, &first)?;
    let part = Part { lab: &lab, schedule: &kept.schedule, ends: kept.ends, keep: kept.keep };
    let alive = stage.alive();
    let mut write = |line: &Line| {
        show(line);
        log.write(line)
    };
    let played = Player::new(part, &mut stage, alive, &mut write).beginning_at(origin).play();
    stage.settle();
    played.map_err(ScenarioError::io("play the scenario"))
}

/// Goes on with a scenario whose player was killed. A job beside it ended with its player. A machine's part keeps to the clock
/// of all parts: events that were due meanwhile come at once, and late.
///
/// # Errors
/// As [`play()`], and where there is nothing to go on with.
pub fn play_on(
    root: &StateRoot,
    running: Running,
    claim: Claim,
    show: &mut dyn FnMut(&Line),
) -> Result<Performance<job::Outcome>, ScenarioError> {
    let folder = Folder::of(running.dir());
    let (kept, earlier) = folder.interrupted()?;
    let lab = running.lab.clone();
    let mut log = Log::go_on(&folder, &kept.folder)?;
    let mut stage = Stage::open(root, running, claim, kept.limits, kept.folder)?;
    stage.prepare(&kept.schedule);
    for event in earlier.events().filter(|event| matches!(event.outcome, play::Outcome::Done { .. })) {
        if let Some(event) = kept.schedule.events.get(event.number) {
            stage.remember(event.number, &event.action);
        }
    }
    let part = Part { lab: &lab, schedule: &kept.schedule, ends: Ends::WithScenario, keep: kept.keep };
    let alive = stage.alive();
    let mut write = |line: &Line| {
        show(line);
        log.write(line)
    };
    let played = Player::new(part, &mut stage, alive, &mut write).play_on(&earlier.lines, kept.origin);
    finish(stage, played)
}

fn finish<T: DeserializeOwned>(mut stage: Stage, played: io::Result<Outcome>) -> Result<Performance<T>, ScenarioError> {
    stage.settle();
    let job = stage.end_job()?.map(read_outcome);
    let played = played.map_err(ScenarioError::io("play the scenario"))?;
    Ok(Performance { played, job, signal: stage.signal() })
}

/// What was put back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Nodes whose limits had been changed.
    pub limits: Vec<NodeId>,
    /// Nodes that were frozen.
    pub thawed: Vec<NodeId>,
    /// Nodes that were stopped or dead, where they were to be started.
    pub started: Vec<NodeId>,
    /// True where a scenario had been interrupted, and now is over.
    pub scenario: bool,
}

/// Puts a lab back to what its file says: conditions, cuts, partitions, limits; frozen nodes go on. With `nodes`, those that
/// are stopped or dead are started.
///
/// # Errors
/// When a scenario is being played, or something cannot be put back; what could be is.
#[tracing::instrument(level = "info", skip_all, err(level = "debug"))]
pub fn restore(running: &Running, nodes: bool) -> Result<Restored, ScenarioError> {
    let folder = Folder::of(running.dir());
    let _claim = folder.claim()?;
    let mut restored = Restored::default();
    for event in folder.programs() {
        if let Some(process) = folder.program(event) {
            process.signal(rustix::process::Signal::TERM).map_err(ScenarioError::io("end a scenario's programs"))?;
        }
    }
    let links = running.restore_links();
    for ((node, model), now) in running.lab.nodes.enumerate().zip(running.all_limits()?) {
        if let Some(change) = back(&now, &model.limits) {
            running.set_node(&[node], &change)?;
            restored.limits.push(node);
        }
    }
    let rows = running.rows()?;
    let in_state = |states: &[&str]| {
        let here = running.lab.nodes_here().into_iter().zip(&rows);
        here.filter(|(_, row)| states.contains(&row.status.as_str())).map(|(node, _)| node).collect::<Vec<NodeId>>()
    };
    restored.thawed = in_state(&["frozen"]);
    running.give(Order::Thaw { nodes: restored.thawed.clone() })?;
    if nodes {
        restored.started = in_state(&["stopped", "dead"]);
        running.give(Order::Start { nodes: restored.started.clone() })?;
    }
    links?;
    if let Ok((kept, earlier)) = folder.interrupted() {
        let summary = Summary::of(earlier.lines.iter(), Vec::new());
        let (at, why) = (earlier.position(), "put back after its player was killed".to_owned());
        let end = Line::End(End { at, finished: wall(SystemTime::now()), why, summary });
        let mut log = Log::go_on(&folder, &kept.folder)?;
        log.write(&end).map_err(ScenarioError::io("end the scenario's log"))?;
        restored.scenario = true;
    }
    Ok(restored)
}

/// The change that makes `now` what the file says; `None` where it is.
fn back(now: &Limits, file: &Limits) -> Option<NodeChange> {
    if now == file {
        return None;
    }
    let fixed = |key: &str| Limits::FIXED.iter().any(|(fixed, _)| *fixed == key);
    let (had, wanted) = (now.words(), file.words());
    let differs = |key: &&&str| {
        let of = |words: &[(&str, String)]| words.iter().find(|(name, _)| name == *key).map(|(_, value)| value.clone());
        of(&had) != of(&wanted)
    };
    let clear = Limits::NAMES.iter().filter(|key| !fixed(key)).filter(differs).map(|&key| key.to_owned()).collect();
    Some(undo(&Change { set: Limits::default(), clear }, file))
}

impl From<crate::state::StateError> for ScenarioError {
    fn from(error: crate::state::StateError) -> Self {
        Self::Lab(LabError::State(error))
    }
}
