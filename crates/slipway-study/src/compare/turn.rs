//! One turn of a comparison: a job on a lab that is held under a setting, with the scenario beside it where there is one.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use slipway_document::units::Seconds;
use slipway_engine::exec::Launcher;
use slipway_engine::job::{self, Ended, Stream};
use slipway_engine::lab::Running;
use slipway_engine::probe::{Between, ProbeError};
use slipway_engine::rsh::Rsh;
use slipway_engine::scenario::{self, Beside, Ends, Folder, JobFailure, Kept, Performance};
use slipway_lab::id::NodeId;
use slipway_machines::ask;
use slipway_machines::play::{self as machines, Score};
use slipway_measure::play::{Begin, Line};
use slipway_measure::probe::{Output, Probe, Sample};
use slipway_sys::signals::Taken;

use super::{Plan, Site, Task, Way};
use crate::Machine;
use crate::rounds::Stop;
use crate::script::Script;

/// Parts that stay the same from turn to turn.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) machine: &'a Machine,
    pub(super) plan: &'a Plan,
    /// The comparison's.
    pub(super) folder: &'a Path,
    pub(super) launcher: &'a Launcher,
    pub(super) interrupt: &'a Taken,
}

fn failed(error: impl Display) -> Stop {
    Stop::failed(error)
}

impl Turn<'_> {
    /// Takes the turn; `number` tells it from the others. The log of the scenario, where there is one, goes into
    /// `played`.
    pub(super) fn take(
        &self,
        number: usize,
        way: &Way<'_>,
        site: &Site,
        task: &Task,
        played: &mut Vec<Line>,
    ) -> Result<Vec<Sample>, Stop> {
        let name = &site.lab.as_ref().map_err(failed)?.lab.name;
        // As it is now: a scenario's turn starts nodes again.
        let lab = Running::open(&self.machine.labs, name).map_err(failed)?;
        let client = way.client.node;
        let held = way.setting.hold(&lab, || match &site.script {
            None => self.measure(client, task, &lab),
            Some((script, begin)) => {
                let folder = self.folder.join("scenario").join(number.to_string());
                let beside = |lab: &Running| self.measure(client, task, lab);
                self.play(name, (script, begin), &folder, beside, played)
            }
        });
        held.map_err(failed)?
    }

    fn measure(&self, client: NodeId, task: &Task, lab: &Running) -> Result<Vec<Sample>, Stop> {
        let Task::Probe(probe) = task else {
            return job(lab, task.probe(), self.plan.timeout, &self.folder.join("output"));
        };
        let server = self.plan.server(&lab.lab, client);
        let between = Between { lab, server, client, timeout: self.plan.timeout, interrupt: self.interrupt };
        between.measure(self.launcher, probe).map_err(|error| match error {
            ProbeError::Interrupted => Stop::came(self.interrupt),
            error => failed(error),
        })
    }

    /// Measures while the scenario plays from its beginning. Then the lab is as its file says again, dead nodes too.
    fn play(
        &self,
        name: &str,
        (script, begin): (&Script, &Begin),
        folder: &Path,
        measure: impl FnOnce(&Running) -> Result<Vec<Sample>, Stop>,
        played: &mut Vec<Line>,
    ) -> Result<Vec<Sample>, Stop> {
        let root = &self.machine.labs;
        let running = Running::open(root, name).map_err(failed)?;
        std::fs::create_dir_all(folder).map_err(failed)?;
        let beside: Beside<'_, Vec<Sample>> = Box::new(|lab| {
            measure(lab).map_err(|stop| match stop {
                Stop::Interrupted(signal) => {
                    JobFailure { account: "measure: interrupted".to_owned(), code: signal.saturating_add(128) }
                }
                Stop::Failed(account) => JobFailure { account, code: 125 },
            })
        });
        let mut note = |line: &Line| {
            if matches!(line, Line::Event(_) | Line::Node(_) | Line::Restored(_) | Line::End(_)) {
                played.push(line.clone());
            }
        };
        let performed = if running.lab.is_spread() {
            self.play_over_machines(&running, (script, begin), folder, beside, &mut note)
        } else {
            self.play_here(running, (script, begin), folder, beside, &mut note)
        };
        scenario::restore(&Running::open(root, name).map_err(failed)?, true).map_err(failed)?;
        let performed = performed?;
        if let Some(signal) = performed.signal {
            return Err(Stop::Interrupted(signal));
        }
        performed
            .job
            .map_or_else(|| Err(failed("measure: nothing ran")), |job| job.map_err(|job| Stop::Failed(job.account)))
    }
}

impl Turn<'_> {
    fn play_here(
        &self,
        running: Running,
        (script, begin): (&Script, &Begin),
        folder: &Path,
        beside: Beside<'_, Vec<Sample>>,
        note: &mut dyn FnMut(&Line),
    ) -> Result<Performance<Vec<Sample>>, Stop> {
        let claim = Folder::of(running.dir()).claim().map_err(failed)?;
        let kept = Kept {
            schedule: script.schedule.clone(),
            ends: Ends::WithJob,
            keep: false,
            limits: running.all_limits().map_err(failed)?,
            folder: std::path::absolute(folder).map_err(failed)?,
            origin: None,
        };
        let root = &self.machine.labs;
        scenario::play(root, running, claim, &kept, begin.clone(), Some(beside), note).map_err(failed)
    }

    /// The other machines' parts are as the file says afterwards.
    fn play_over_machines(
        &self,
        running: &Running,
        (script, begin): (&Script, &Begin),
        folder: &Path,
        beside: Beside<'_, Vec<Sample>>,
        note: &mut dyn FnMut(&Line),
    ) -> Result<Performance<Vec<Sample>>, Stop> {
        let (rsh, lab) = (Rsh::from_env().map_err(failed)?, &running.lab);
        let (schedule, begin) = (&script.schedule, begin.clone());
        let score = Score { lab, schedule, begin, keep: false, ends: Ends::WithJob, folder };
        let performed = machines::play(&rsh, &self.machine.labs, score, Some(beside), note);
        let others = ask::others(&lab.machines, lab.part.machine);
        ask::restore(&rsh, &others, &lab.name).map_err(failed)?;
        performed.map_err(failed)
    }
}

/// Runs the lab's own job; its figure is in what the first node printed. `folder` keeps the last run's output.
fn job(lab: &Running, probe: &Probe, timeout: Duration, folder: &Path) -> Result<Vec<Sample>, Stop> {
    let Some(mut job) = lab.lab.job.clone() else { return Err(failed("find the lab's job")) };
    job.timeout = job.timeout.or(Some(Seconds(timeout.as_secs_f64())));
    let mut said = [Vec::new(), Vec::new()];
    let outcome = job::run(lab, &job, folder, &mut |line| {
        let into = &mut said[usize::from(line.stream == Stream::Stderr)];
        into.extend_from_slice(line.bytes);
        into.push(b'\n');
    })
    .map_err(failed)?;
    if let Ended::Signal(signal) = outcome.ended {
        return Err(Stop::Interrupted(signal));
    }
    let [stdout, stderr] = said;
    let wall = Duration::from_secs_f64(outcome.seconds);
    probe.read(&[Output { stdout, stderr, code: i32::from(outcome.code), wall }]).map_err(failed)
}
