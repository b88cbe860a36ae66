//! A scenario before it plays: its source, its schedule, the first line of its log, and the page made of the log.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use slipway_engine::facts::Facts;
use slipway_lab::model::Lab;
use slipway_lab::scenario::{Action, Order, Schedule, Traces};
use slipway_measure::play::{Begin, FORMAT, Played};
use slipway_measure::{record, report};

use crate::done::warn_of_hosts_network;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, short};

/// The choice of a scenario.
#[derive(Debug, Clone)]
pub(crate) enum Which {
    /// The scenario of the lab's own file.
    OfLab,
    /// A file's.
    File(String),
}

impl Which {
    /// As an option says it, whose value may be left out.
    #[expect(clippy::unnecessary_wraps, reason = "clap's form of a parser")]
    pub(crate) fn parse(word: &str) -> Result<Self, Infallible> {
        Ok(if word.is_empty() { Self::OfLab } else { Self::File(word.to_owned()) })
    }
}

/// A scenario as it will be played on a lab.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) schedule: Schedule,
    /// The file that says what happens.
    shown: String,
    sha256: String,
}

impl Script {
    /// Plans a scenario for a lab.
    pub(crate) fn plan(lab: &Lab, which: &Which, seed: Option<u64>) -> Result<Self, Failure> {
        let (scenario, shown, sha256) = if let Which::File(file) = which {
            let source = labs::source(Some(file.as_ref()))?;
            (source.scenario(lab)?, file.clone(), source.sha256())
        } else {
            let scenario = lab.scenario.clone().ok_or_else(|| {
                Failure::usage(format!(
                    "find a scenario: the file of lab `{}` has none\nHint: add a `scenario:` to it, or name a scenario's file",
                    lab.name
                ))
            })?;
            // Of what it says, so that it is the same whether the lab's file was read or the lab runs.
            let resolved =
                serde_json::to_vec(&scenario).map_err(|error| Failure::io("hash the scenario")(error.into()))?;
            (scenario, format!("lab {}", lab.name), labs::hex(&Sha256::digest(resolved)))
        };
        let mut traces: Traces = BTreeMap::new();
        for path in scenario.files() {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::usage(format!("read {}, which the scenario names: {error}", path.display()))
            })?;
            traces.insert(path.to_owned(), text);
        }
        let schedule = scenario
            .plan(lab, seed, &traces)
            .map_err(|error| Failure::usage(format!("plan the scenario of {shown}: {error}")))?;
        let short = schedule.events.iter().flat_map(|event| short::of_event(lab, &event.action));
        for warning in short.collect::<BTreeSet<String>>() {
            tracing::warn!("the scenario of {shown}: {warning}");
        }
        let ended = schedule.events.iter().flat_map(|event| match &event.action {
            Action::Order(Order::Kill { nodes, .. } | Order::Freeze { nodes }) => nodes.as_slice(),
            _ => &[],
        });
        let ended: BTreeSet<usize> = ended.copied().collect();
        warn_of_hosts_network(lab, &ended.into_iter().collect::<Vec<_>>());
        Ok(Self { schedule, shown, sha256 })
    }

    /// The first line of its log, but for when it begins and what was checked before.
    pub(crate) fn begin(&self, lab: &Lab) -> Result<Begin, Failure> {
        let written = |what: &'static str| move |error: serde_json::Error| Failure::io(what)(error.into());
        let schedule = serde_json::to_vec(&self.schedule).map_err(written("write the schedule down"))?;
        Ok(Begin {
            format: FORMAT.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lab: lab.name.clone(),
            nodes: names(lab),
            scenario: self.shown.clone(),
            scenario_sha256: self.sha256.clone(),
            schedule_sha256: labs::hex(&Sha256::digest(schedule)),
            seed: self.schedule.seed,
            events: self.schedule.events.len(),
            length: self.schedule.length.0,
            command: std::env::args().collect(),
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

fn names(lab: &Lab) -> Vec<String> {
    lab.nodes.iter().map(|node| node.name.clone()).collect()
}

/// Makes the page that shows what happened when, from the log as it is on disk.
pub(crate) fn draw(folder: &Path) -> Result<(), Failure> {
    let (log, page) = (folder.join("events.jsonl"), folder.join("timeline.html"));
    let text = std::fs::read_to_string(&log).map_err(Failure::io(format!("read {}", log.display())))?;
    let played = Played::read(&text).map_err(|error| Failure::new(Exit::Failed, &error))?;
    std::fs::write(&page, report::timeline(&played)).map_err(Failure::io(format!("write {}", page.display())))
}
