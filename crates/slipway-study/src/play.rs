//! Playing a scenario on a lab, beside a job or alone, and keeping its log and the page made of it.

use std::path::{Path, PathBuf};

use slipway_document::units::Seconds;
use slipway_engine::job;
use slipway_engine::lab::Running;
use slipway_engine::scenario::{self, Beside, Ends, Folder, JobFailure, Kept, Performance};
use slipway_engine::state::StateRoot;
use slipway_lab::model::{Job, Lab};
use slipway_machines::play::{self as machines, Score};
use slipway_machines::rsh::Rsh;
use slipway_measure::check::CheckedPath;
use slipway_measure::play::{Begin, Played};
use slipway_measure::report;

use crate::passing::in_passing;
use crate::script::Script;
use crate::{Event, Events, Machine, Output, Source, StudyError, check};

/// A scenario and its circumstances.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The scenario, planned for the lab.
    pub script: Script,
    /// The job beside it.
    pub job: Option<Job>,
    /// The end of the playing.
    pub ends: Ends,
    /// True: the scenario's conditions stay at its end.
    pub keep: bool,
    /// The time to measure links before, about, at most; `None`: they are not measured.
    pub verify: Option<Seconds>,
    /// The folder for the log, its page and the programs' output.
    pub output: Output,
    /// The words of the command that plays, for the log.
    pub command: Vec<String>,
}

/// A playing that has ended.
#[derive(Debug)]
pub struct Done {
    /// The lab's name.
    pub lab: String,
    /// The folder of the log.
    pub folder: PathBuf,
    /// The links that were measured before.
    pub checks: Vec<CheckedPath>,
    /// The scenario's result.
    pub played: scenario::Outcome,
    /// The job's result.
    pub job: Option<Result<job::Outcome, JobFailure>>,
    /// The signal that ended the playing early, by number.
    pub signal: Option<u8>,
}

/// A sink for the lines that programs beside a scenario print.
///
/// It is called in the job's own process, a child of the caller's: the player keeps its times, however much a program prints. So
/// it can write to a descriptor, and cannot change the caller's memory. The study's folder has the output too.
pub type Lines<'s> = dyn FnMut(job::Line<'_>) + 's;

/// Plays on a lab that is up.
///
/// # Errors
/// When the scenario cannot be begun; then nothing of it goes on. That a job did not start stands in [`Done::job`].
pub fn on(
    labs: &StateRoot,
    running: Running,
    plan: &Plan,
    lines: &mut Lines<'_>,
    events: &mut Events<'_>,
) -> Result<Done, StudyError> {
    let lab = running.lab.name.clone();
    if running.lab.is_spread() {
        return over_machines(labs, &running, plan, lines, events);
    }
    let claim = Folder::of(running.dir()).claim()?;
    let limits = running.all_limits()?;
    let checks = check::before(&running, plan.verify, events)?;
    let folder = plan.output.make("play", &lab)?;
    let absolute = std::path::absolute(&folder).map_err(StudyError::io("find the current folder"))?;
    let kept = Kept {
        schedule: plan.script.schedule.clone(),
        ends: plan.ends,
        keep: plan.keep,
        limits,
        folder: absolute,
        origin: None,
    };
    let begin = Begin { checks: checks.clone(), ..plan.script.begin(&running.lab, &plan.command)? };
    let beside = beside(plan, &folder, lines);
    let performed =
        scenario::play(labs, running, claim, &kept, begin, beside, &mut |line| events(Event::Played(line)))?;
    done(lab, folder, checks, performed)
}

/// The job beside the scenario.
fn beside<'a>(plan: &'a Plan, output: &'a Path, lines: &'a mut Lines<'_>) -> Option<Beside<'a, job::Outcome>> {
    let job = plan.job.as_ref()?;
    Some(Box::new(move |lab: &Running| Ok(job::run(lab, job, output, lines)?)))
}

/// Plays on a lab over several machines, each of which plays its own part. The job is of this machine.
fn over_machines(
    labs: &StateRoot,
    running: &Running,
    plan: &Plan,
    lines: &mut Lines<'_>,
    events: &mut Events<'_>,
) -> Result<Done, StudyError> {
    let lab = &running.lab;
    let checks = check::before(running, plan.verify, events)?;
    let rsh = Rsh::from_env()?;
    let folder = plan.output.make("play", &lab.name)?;
    let begin = Begin { checks: checks.clone(), ..plan.script.begin(lab, &plan.command)? };
    let schedule = &plan.script.schedule;
    let score = Score { lab, schedule, begin, keep: plan.keep, ends: plan.ends, folder: &folder };
    let beside = beside(plan, &folder, lines);
    let performed = machines::play(&rsh, labs, score, beside, &mut |line| events(Event::Played(line)))?;
    done(lab.name.clone(), folder, checks, performed)
}

/// Plays on a lab that is up for as long as the playing takes. `lab` is what `source` describes.
///
/// # Errors
/// As [`on`], and where the lab does not come up or go down.
pub fn file(
    machine: &Machine,
    source: &Source,
    lab: &Lab,
    plan: &Plan,
    lines: &mut Lines<'_>,
    events: &mut Events<'_>,
) -> Result<Done, StudyError> {
    in_passing(machine, source, lab, events, |running, events| on(&machine.labs, running, plan, lines, events))
}

/// Plays the rest of a scenario whose player was killed. Over several machines, the parts play on by themselves, and this
/// gathers their logs.
///
/// # Errors
/// When there is none, or it cannot go on.
pub fn resume(labs: &StateRoot, running: Running, events: &mut Events<'_>) -> Result<Done, StudyError> {
    let lab = running.lab.name.clone();
    if running.lab.is_spread() {
        let rsh = Rsh::from_env()?;
        let (folder, performed) = machines::resume(&rsh, &running, &mut |line| events(Event::Played(line)))?;
        return done(lab, folder, Vec::new(), performed);
    }
    let scenario = Folder::of(running.dir());
    let claim = scenario.claim()?;
    let (kept, _) = scenario.interrupted()?;
    let performed = scenario::play_on(labs, running, claim, &mut |line| events(Event::Played(line)))?;
    done(lab, kept.folder, Vec::new(), performed)
}

fn done(
    lab: String,
    folder: PathBuf,
    checks: Vec<CheckedPath>,
    performed: Performance<job::Outcome>,
) -> Result<Done, StudyError> {
    let Performance { played, job, signal } = performed;
    draw(&folder)?;
    Ok(Done { lab, folder, checks, played, job, signal })
}

/// Makes the page `timeline.html`, which shows when events took effect, from the log `events.jsonl` in a folder.
///
/// # Errors
/// When the log cannot be read, or the page cannot be written.
pub fn draw(folder: &Path) -> Result<(), StudyError> {
    let (log, page) = (folder.join("events.jsonl"), folder.join("timeline.html"));
    let text = std::fs::read_to_string(&log).map_err(StudyError::io(format!("read {}", log.display())))?;
    let played = Played::read(&text)?;
    std::fs::write(&page, report::timeline(&played)).map_err(StudyError::io(format!("write {}", page.display())))
}
