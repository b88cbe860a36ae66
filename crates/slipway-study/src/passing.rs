//! A lab for one study: up before it, down after it.

use slipway_engine::lab::{self, Running};
use slipway_engine::rsh::Rsh;
use slipway_lab::model::Lab;

use crate::{Event, Events, Machine, Source, StudyError};

/// Brings a lab up, does something in it, and takes it down whatever came of it. `lab` is what `source` describes. One over
/// several machines comes up on all of them.
pub(crate) fn in_passing<T>(
    machine: &Machine,
    source: &Source,
    lab: &Lab,
    events: &mut Events<'_>,
    action: impl FnOnce(Running, &mut Events<'_>) -> Result<T, StudyError>,
) -> Result<T, StudyError> {
    events(Event::LabStarting { lab: &lab.name });
    if !lab.machines.is_empty() {
        let made =
            slipway_machines::up::make(&Rsh::from_env()?, lab, &mut |progress| events(Event::LabProgress(progress)));
        events(Event::LabDone);
        let made = made?;
        let outcome = action(Running::open(&machine.labs, &lab.name)?, events);
        let down = made.down();
        // The first failure is the reason of the second.
        let done = outcome?;
        down?;
        return Ok(done);
    }
    let up = lab::up_in_passing(machine, lab, &mut |progress| events(Event::LabProgress(progress)));
    events(Event::LabDone);
    let (running, passing) = up.map_err(|error| source.refused(error))?;
    let outcome = action(running, events);
    passing.down()?;
    outcome
}
