//! Benchmarks of a disk, of a path, and of transfers over both, each figure as a ratio to the limit, with the resource that was saturated.
//!
//! A benchmark has ways (a block size, a buffer, a congestion control) where a comparison has drivers. The first way is the limit,
//! so that tables and report give every other as a ratio to it, paired by round.

pub mod disk;
mod hold;
mod local;
pub mod path;
pub mod transfer;
pub mod trial;
mod watch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::Serialize;
use slipway_measure::bottleneck::{Counters, Sides};
use slipway_measure::probe::{Probe, Sample};
use slipway_measure::record::{Begin, Bench, Job, Measurement};
use slipway_measure::summary::Summary;
use slipway_sys::signals::Taken;

use crate::rounds::{self, Interrupted, Stop};
use crate::{Events, Output, StudyError, output};
use hold::Hold;

/// The name of the way that all others are ratios to.
pub const LIMIT: &str = "limit";

/// A benchmark and its repetition.
#[derive(Debug)]
pub struct Plan {
    /// The disk or path.
    pub subject: Subject,
    /// Rounds that count.
    pub repeat: u32,
    /// Rounds before them that do not.
    pub warm_up: u32,
    /// The seed of the order within rounds.
    pub seed: u64,
    /// For each program.
    pub timeout: Duration,
    /// The folder for the records and the report.
    pub output: Output,
    /// The words of the command, for the records.
    pub command: Vec<String>,
}

/// The subject of a benchmark.
#[derive(Debug)]
pub enum Subject {
    /// A folder on a disk.
    Disk(disk::Disk),
    /// Two nodes of a lab, or this machine and another.
    Path(path::Path),
    /// A data set, and the programs that copy it.
    Transfer(transfer::Transfer),
}

/// The result of a benchmark.
#[derive(Debug, Serialize)]
pub struct Done {
    /// The figures, and what was saturated.
    #[serde(flatten)]
    pub summary: Summary,
    /// The origin of the limit, in words.
    pub limit: String,
    /// Ways that the kernel refused or that lack a program, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// The folder with `records.jsonl`, `summary.json` and `report.html`.
    pub folder: PathBuf,
    /// True where something could not be measured.
    pub failed: bool,
}

/// A way that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The way.
    pub way: String,
    /// The reason.
    pub why: String,
}

/// One of the ways of a benchmark.
#[derive(Debug, Clone)]
struct Way {
    name: String,
    /// The parts in use, in words.
    mechanism: String,
    /// The setting that holds while the way is measured.
    hold: Hold,
    /// For each task; `None` where the way has no such task.
    tasks: Vec<Option<Task>>,
}

/// A measurement.
#[derive(Debug, Clone)]
enum Task {
    /// A figure that is known beforehand.
    Known(Sample),
    /// A figure to measure. `loopback` is for a path: within one of its ends.
    Probe { probe: Probe, loopback: bool },
}

/// A benchmark that is ready to be taken.
struct Ready {
    name: String,
    kind: &'static str,
    limit: String,
    sides: Sides,
    /// Names of the tasks.
    tasks: Vec<&'static str>,
    ways: Vec<Way>,
    /// Ways that cannot be taken from here.
    left_out: Vec<Refused>,
}

/// The subject, prepared.
trait Bed {
    /// Measures once.
    fn measure(
        &self,
        probe: &Probe,
        loopback: bool,
        hold: &Hold,
        interrupt: &Taken,
    ) -> Result<(Vec<Sample>, Counters), Stop>;

    /// The command lines of a probe.
    fn commands(&self, probe: &Probe) -> Vec<String>;
}

/// Takes the benchmark. Its files are removed, and settings that it changed are put back, also after a signal.
///
/// # Errors
/// When the disk or path cannot be prepared, the records cannot be written, or a signal came. A measurement that fails is
/// recorded, and the benchmark goes on.
pub fn run(plan: &Plan, events: &mut Events<'_>) -> Result<Done, StudyError> {
    prepared(plan, |ready, bed, interrupt| take(plan, ready, bed, interrupt, events))
}

/// Prepares the subject, and does something with it. Signals are taken meanwhile.
fn prepared<T>(
    plan: &Plan,
    work: impl FnOnce(&Ready, &dyn Bed, &Taken) -> Result<T, StudyError>,
) -> Result<T, StudyError> {
    let interrupt = Taken::new(&[Signal::SIGINT, Signal::SIGTERM]).map_err(StudyError::io("take signals"))?;
    match &plan.subject {
        Subject::Disk(disk) => {
            let (ready, bed) = disk.prepare(plan, &interrupt)?;
            work(&ready, &bed, &interrupt)
        }
        Subject::Path(path) => {
            let (ready, bed) = path.prepare(plan)?;
            work(&ready, &bed, &interrupt)
        }
        Subject::Transfer(transfer) => {
            let (ready, bed) = transfer.prepare(plan, &interrupt)?;
            work(&ready, &bed, &interrupt)
        }
    }
}

/// Describes the measurements of a round.
///
/// # Errors
/// As for finding out what the limit is.
pub fn describe(plan: &Plan) -> Result<Vec<String>, StudyError> {
    let (ways, limit) = match &plan.subject {
        Subject::Disk(disk) => disk.describe(),
        Subject::Path(path) => path.describe()?,
        Subject::Transfer(transfer) => transfer.describe(),
    };
    let each = ways.iter().flat_map(|way| way.tasks.iter().flatten().map(move |task| (way, task)));
    let lines = each.filter_map(|(way, task)| match task {
        Task::Known(_) => None,
        Task::Probe { probe, .. } => Some(format!("  {} under {}", probe.name(), way.name)),
    });
    Ok(lines.chain([format!("  the limit: {limit}")]).collect())
}

fn take(
    plan: &Plan,
    ready: &Ready,
    bed: &dyn Bed,
    interrupt: &Taken,
    events: &mut Events<'_>,
) -> Result<Done, StudyError> {
    let folder = plan.output.make(&format!("bench-{}", ready.kind), &ready.name)?;
    let begin = begin(plan, ready, bed)?;
    let mut refused = ready.left_out.clone();
    let mut broken = false;
    let mut one = |at: rounds::Turn| {
        let way = &ready.ways[at.way];
        // One that the kernel refused is recorded once.
        if refused.iter().any(|one| one.way == way.name) {
            return Ok(None);
        }
        let Some(measurement) = measure(at, way, ready.tasks[at.task], bed, interrupt)? else { return Ok(None) };
        if let (Some(task), Some(why)) = (&way.tasks[at.task], &measurement.error) {
            if is_refused(task, why) {
                refused.push(Refused { way: way.name.clone(), why: why.clone() });
            } else {
                broken = true;
            }
        }
        Ok(Some(measurement))
    };
    rounds::take(&folder, &begin, (ready.tasks.len(), ready.ways.len()), &mut one, events)?;
    let (_, summary) = rounds::report(&folder)?;
    Ok(Done { summary, limit: ready.limit.clone(), refused, folder, failed: broken })
}

/// Measures a way's task once; `None` where it has no such task.
fn measure(
    at: rounds::Turn,
    way: &Way,
    job: &str,
    bed: &dyn Bed,
    interrupt: &Taken,
) -> Result<Option<Measurement>, Interrupted> {
    let Some(task) = &way.tasks[at.task] else { return Ok(None) };
    let mut measurement = blank(at, way, job);
    let started = Instant::now();
    let taken = match task {
        Task::Known(sample) => Ok((vec![sample.clone()], None)),
        Task::Probe { probe, loopback } => {
            bed.measure(probe, *loopback, &way.hold, interrupt).map(|(samples, counters)| (samples, Some(counters)))
        }
    };
    measurement.seconds = started.elapsed().as_secs_f64();
    match taken {
        Ok((samples, counters)) => {
            measurement.samples = samples;
            measurement.samples.extend(counters.iter().flat_map(Counters::samples));
            measurement.counters = counters;
        }
        Err(Stop::Interrupted(signal)) => return Err(Interrupted(signal)),
        Err(Stop::Failed(why)) => measurement.error = Some(why),
    }
    Ok(Some(measurement))
}

/// Whether the kernel keeps a congestion control from the program, in iperf3's words.
fn is_refused(task: &Task, why: &str) -> bool {
    let chosen = matches!(task, Task::Probe { probe: Probe::Stream(stream), .. } if stream.congestion.is_some());
    chosen && (why.contains("TCP_CONGESTION") || why.contains("congestion control"))
}

fn blank(at: rounds::Turn, way: &Way, job: &str) -> Measurement {
    Measurement {
        round: at.round,
        warm_up: at.warm_up,
        driver: way.name.clone(),
        job: job.to_owned(),
        mechanism: way.mechanism.clone(),
        started: output::now(),
        seconds: 0.0,
        samples: Vec::new(),
        error: None,
        played: Vec::new(),
        counters: None,
    }
}

fn begin(plan: &Plan, ready: &Ready, bed: &dyn Bed) -> Result<Begin, StudyError> {
    let jobs = ready.tasks.iter().enumerate().map(|(at, name)| {
        let probes = ready.ways.iter().filter_map(|way| match way.tasks[at].as_ref()? {
            Task::Known(_) => None,
            Task::Probe { probe, .. } => Some(bed.commands(probe)),
        });
        let mut commands: Vec<String> = Vec::new();
        for command in probes.flatten() {
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
        Job { name: (*name).to_owned(), commands }
    });
    Ok(Begin {
        lab: ready.name.clone(),
        drivers: ready.ways.iter().map(|way| way.name.clone()).collect(),
        jobs: jobs.collect(),
        repeat: plan.repeat,
        warm_up: plan.warm_up,
        seed: plan.seed,
        command: plan.command.clone(),
        bench: Some(Bench { kind: ready.kind.to_owned(), limit: ready.limit.clone(), sides: ready.sides.clone() }),
        ..rounds::begin()?
    })
}
