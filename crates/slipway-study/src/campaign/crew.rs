//! Workers, here or elsewhere, and the coordinator that runs with them.

use slipway_campaign::model::{Campaign, Slurm};
use slipway_coordinator::far::Gate;
use slipway_coordinator::{Fleet, Folder, Progress, Run, Summary};
use slipway_energyplus::idf::Idf;
use slipway_engine::lab::Passing;
use slipway_python::Environment;
use slipway_sys::signals::{ENDING, Taken};

use super::ledger::Ledger;
use super::nodes::Nodes;
use super::slurm::Jobs;
use super::{CampaignError, trial};
use crate::{Event, Events, Machine, StudyError};

/// The parts that workers are made of, besides the run.
#[derive(Clone, Copy)]
pub(super) struct Crew<'a> {
    pub(super) machine: &'a Machine,
    pub(super) campaign: &'a Campaign,
    pub(super) folder: &'a Folder,
    pub(super) environment: Option<&'a Environment>,
    pub(super) points: u64,
}

impl<'a> Crew<'a> {
    /// Brings so many nodes up, and has EnergyPlus look at the models at the `ends` of the design in one of them.
    fn nodes(self, most: u32, ends: Vec<Idf>, events: &mut Events<'_>) -> Result<(Nodes<'a>, Passing), CampaignError> {
        let Self { machine, campaign, folder, environment, points } = self;
        let (nodes, passing) = Nodes::up(machine, campaign, folder, environment, most, events)?;
        match trial::run(&nodes, campaign, ends, points, folder) {
            Ok(()) => Ok((nodes, passing)),
            Err(error) => {
                passing.down().map_err(StudyError::from)?;
                Err(error)
            }
        }
    }

    /// Runs with workers on this machine.
    pub(super) fn here(self, run: Run<'_>, ends: Vec<Idf>, events: &mut Events<'_>) -> Result<Summary, CampaignError> {
        let (mut nodes, passing) = self.nodes(run.size.most, ends, events)?;
        let outcome = carry_out(run, &mut nodes, events);
        passing.down().map_err(StudyError::from)?;
        outcome
    }

    /// Runs with workers that are jobs of Slurm.
    pub(super) fn on_slurm(
        self,
        settings: &Slurm,
        run: Run<'_>,
        ends: Vec<Idf>,
        events: &mut Events<'_>,
    ) -> Result<Summary, CampaignError> {
        let Self { campaign, folder, points, .. } = self;
        if trial::is_wanted(campaign, points, folder) {
            let (_, passing) = self.nodes(1, ends, events)?;
            passing.down().map_err(StudyError::from)?;
        }
        let gate = Gate::open(settings.listen)?;
        gate.invitation().write(&folder.invitation())?;
        let jobs = Jobs::new(folder, campaign, settings);
        let mut jobs = jobs.map_err(StudyError::io("cancel the jobs that an earlier run left"))?;
        carry_out(Run { gate: Some(gate), ..run }, &mut jobs, events)
    }
}

/// Runs the coordinator, with signals for its end.
fn carry_out(run: Run<'_>, fleet: &mut dyn Fleet, events: &mut Events<'_>) -> Result<Summary, CampaignError> {
    let signals = Taken::new(&ENDING);
    let signals = signals.map_err(StudyError::io("take signals"))?;
    let mut ledger = Ledger::new(run.folder);
    let mut progress = |progress: Progress| {
        ledger.note(&progress);
        events(Event::Points(progress));
    };
    let summary = slipway_coordinator::run(run, fleet, &signals, &mut progress)?;
    ledger.close(&summary);
    Ok(summary)
}
