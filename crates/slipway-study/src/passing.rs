//! A lab for one study: up before it, down after it.

use slipway_engine::lab::{self, Passing, Running};
use slipway_engine::rsh::Rsh;
use slipway_lab::model::Lab;
use slipway_machines::up::Made;

use crate::{Event, Events, Machine, Source, StudyError};

/// A lab that is up for a study, on this machine or on several. Dropped, it goes down.
pub(crate) enum Held {
    /// On this machine.
    Here(Passing),
    /// On all of its machines.
    Spread(Made),
}

impl Held {
    /// Takes the lab down.
    ///
    /// # Errors
    /// Everything that could not be taken down.
    pub(crate) fn down(self) -> Result<(), StudyError> {
        match self {
            Self::Here(passing) => Ok(passing.down()?),
            Self::Spread(made) => Ok(made.down()?),
        }
    }
}

/// Brings a lab up for a study. `lab` is what `source` describes. One over several machines comes up on all of them.
pub(crate) fn up(
    machine: &Machine,
    source: &Source,
    lab: &Lab,
    events: &mut Events<'_>,
) -> Result<(Running, Held), StudyError> {
    events(Event::LabStarting { lab: &lab.name });
    let mut progress = |progress| events(Event::LabProgress(progress));
    let up = if lab.machines.is_empty() {
        let up = lab::up_in_passing(machine, lab, &mut progress).map_err(|error| source.refused(error));
        up.map(|(running, passing)| (running, Held::Here(passing)))
    } else {
        let made = Rsh::from_env().map_err(StudyError::from);
        made.and_then(|rsh| {
            let made = slipway_machines::up::make(&rsh, lab, &mut progress)?;
            Ok((Running::open(&machine.labs, &lab.name)?, Held::Spread(made)))
        })
    };
    events(Event::LabDone);
    up
}

/// Brings a lab up, does something in it, and takes it down whatever came of it.
pub(crate) fn in_passing<T>(
    machine: &Machine,
    source: &Source,
    lab: &Lab,
    events: &mut Events<'_>,
    action: impl FnOnce(Running, &mut Events<'_>) -> Result<T, StudyError>,
) -> Result<T, StudyError> {
    let (running, held) = up(machine, source, lab, events)?;
    let outcome = action(running, events);
    let down = held.down();
    // The first failure is the reason of the second.
    let done = outcome?;
    down?;
    Ok(done)
}
