//! Running a program over the nodes of a lab, and keeping its output and what was measured of links.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use slipway_document::units::Seconds;
use slipway_engine::job::{self, Outcome};
use slipway_engine::lab::Running;
use slipway_lab::model::{Job, Lab};
use slipway_measure::check::{self as measured, CheckedPath};

use crate::passing::in_passing;
use crate::{Event, Events, Machine, Output, Source, StudyError, check};

/// A job and its circumstances.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The job.
    pub job: Job,
    /// The time to measure links before, about, at most; `None`: they are not measured.
    pub verify: Option<Seconds>,
    /// The folder for the programs' output (`NODE.stdout`, `NODE.stderr`), `checks.json` and `checks.md`.
    pub output: Output,
}

/// A job that has ended.
#[derive(Debug, Serialize)]
pub struct Ran {
    /// The lab's name.
    pub lab: String,
    /// The folder of the output.
    pub folder: PathBuf,
    /// The links that were measured before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckedPath>,
    /// The job's result.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Runs a job on a lab that is up.
///
/// # Errors
/// When the job cannot be started; then nothing of it runs.
pub fn on(running: &Running, plan: &Plan, events: &mut Events<'_>) -> Result<Ran, StudyError> {
    let lab = running.lab.name.clone();
    let checks = check::before(running, plan.verify, events)?;
    let folder = plan.output.make("run", &lab)?;
    keep(&folder, &checks)?;
    let outcome = job::run(running, &plan.job, &folder, &mut |line| events(Event::Line(line)))?;
    Ok(Ran { lab, folder, checks, outcome })
}

/// Runs a job on a lab that is up for as long as the job takes. `lab` is what `source` describes.
///
/// # Errors
/// As [`on`], and where the lab does not come up or go down.
pub fn file(
    machine: &Machine,
    source: &Source,
    lab: &Lab,
    plan: &Plan,
    events: &mut Events<'_>,
) -> Result<Ran, StudyError> {
    in_passing(machine, source, lab, events, |running, events| on(&running, plan, events))
}

/// Leaves what was measured of links in the run's folder: for programs, and for people.
fn keep(folder: &Path, checks: &[CheckedPath]) -> Result<(), StudyError> {
    if checks.is_empty() {
        return Ok(());
    }
    let json =
        serde_json::to_string_pretty(checks).map_err(|error| StudyError::io("write the checks")(error.into()))?;
    for (name, text) in [("checks.json", json + "\n"), ("checks.md", measured::markdown(checks))] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(StudyError::io(format!("write {}", path.display())))?;
    }
    Ok(())
}
