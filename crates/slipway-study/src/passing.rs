//! A lab for one study: up before it, down after it.

use slipway_engine::lab::{self, Running};
use slipway_lab::model::Lab;

use crate::{Event, Events, Machine, Source, StudyError};

/// Brings a lab up, does something in it, and takes it down whatever came of it. `lab` is what `source` describes.
pub(crate) fn in_passing<T>(
    machine: &Machine,
    source: &Source,
    lab: &Lab,
    events: &mut Events<'_>,
    action: impl FnOnce(Running, &mut Events<'_>) -> Result<T, StudyError>,
) -> Result<T, StudyError> {
    events(Event::LabStarting { lab: &lab.name });
    let up = lab::up_in_passing(machine, lab, &mut |progress| events(Event::LabProgress(progress)));
    events(Event::LabDone);
    let (running, passing) = up.map_err(|error| source.refused(error))?;
    let outcome = action(running, events);
    passing.down()?;
    outcome
}
