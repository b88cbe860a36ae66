//! A scenario before it plays: its source, its schedule, and the first line of its log.

use std::collections::BTreeMap;

use slipway_engine::facts::Facts;
use slipway_lab::id::{List, NodeId};
use slipway_lab::model::Lab;
use slipway_lab::scenario::{Schedule, Traces};
use slipway_measure::play::{Begin, FORMAT};
use slipway_measure::record;

use crate::source::sha256;
use crate::{Source, StudyError};

/// The choice of a scenario.
#[derive(Debug, Clone)]
pub enum Which {
    /// The scenario of the lab's own file.
    OfLab,
    /// A file's, by its path.
    File(String),
}

/// A scenario as it will be played on a lab.
#[derive(Debug, Clone)]
pub struct Script {
    /// The events in time.
    pub schedule: Schedule,
    /// The scenario's file, or its lab.
    pub shown: String,
    sha256: String,
}

impl Script {
    /// Plans a scenario for a lab; with `seed`, instead of the scenario's own.
    ///
    /// # Errors
    /// When there is no scenario, or it is wrong for this lab, or a file that it names cannot be read.
    pub fn plan(lab: &Lab, which: &Which, seed: Option<u64>) -> Result<Self, StudyError> {
        let (scenario, shown, sha256) = if let Which::File(file) = which {
            let source = Source::read(file.as_ref())?;
            (source.scenario(lab)?, file.clone(), source.sha256())
        } else {
            let scenario = lab.scenario.clone().ok_or_else(|| StudyError::NoScenario(lab.name.clone()))?;
            // Of the resolved scenario, so that it is the same whether the lab's file was read or the lab runs.
            let resolved = serde_json::to_vec(&scenario).map_err(written("hash the scenario"))?;
            (scenario, format!("lab {}", lab.name), sha256(resolved))
        };
        let mut traces: Traces = BTreeMap::new();
        for path in scenario.files() {
            let unreadable = |source| StudyError::Trace { path: path.to_owned(), source };
            traces.insert(path.to_owned(), std::fs::read_to_string(path).map_err(unreadable)?);
        }
        let schedule =
            scenario.plan(lab, seed, &traces).map_err(|source| StudyError::Plan { scenario: shown.clone(), source })?;
        Ok(Self { schedule, shown, sha256 })
    }

    /// The first line of its log, but for its time and the links that were measured before. `command` is the words of the
    /// command that plays.
    pub(crate) fn begin(&self, lab: &Lab, command: &[String]) -> Result<Begin, StudyError> {
        let schedule = serde_json::to_vec(&self.schedule).map_err(written("write the schedule down"))?;
        Ok(Begin {
            format: FORMAT.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lab: lab.name.clone(),
            nodes: names(lab),
            scenario: self.shown.clone(),
            scenario_sha256: self.sha256.clone(),
            schedule_sha256: sha256(schedule),
            seed: self.schedule.seed,
            events: self.schedule.events.len(),
            length: self.schedule.length.0,
            command: command.to_vec(),
            machine: serde_json::to_value(Facts::gather()).map_err(written("record the machine"))?,
            started: String::new(),
            checks: Vec::new(),
        })
    }

    /// The scenario's entry in the records of a comparison.
    pub(crate) fn record(&self, lab: &Lab) -> record::Scenario {
        record::Scenario {
            file: self.shown.clone(),
            sha256: self.sha256.clone(),
            seed: self.schedule.seed,
            events: self.schedule.events.len(),
            length: self.schedule.length.0,
            nodes: names(lab),
        }
    }
}

fn written(doing: &'static str) -> impl FnOnce(serde_json::Error) -> StudyError {
    move |error| StudyError::io(doing)(error.into())
}

fn names(lab: &Lab) -> List<NodeId, String> {
    lab.nodes.iter().map(|node| node.name.clone()).collect()
}
