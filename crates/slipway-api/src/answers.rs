//! Bodies of answers. Times are seconds, sizes bytes.

use serde::Serialize;
use serde_json::{Value as Json, json};
use slipway_campaign::model::{Design, Distribution, Pick};
use slipway_coordinator::store::Store as _;
use slipway_study::campaign::ledger::{self, Run};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::shelf::{Id, Item, Look, Start};

/// Counts of points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub(crate) struct Counts {
    pub(crate) points: u64,
    pub(crate) waiting: u64,
    pub(crate) running: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
}

/// Progress of a campaign.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Progress {
    /// new, running, paused, interrupted, cancelled or ended
    pub(crate) state: &'static str,
    /// Whether a coordinator runs it now.
    pub(crate) runs: bool,
    pub(crate) counts: Counts,
    /// Points that end in a second; `null` where nothing is known.
    pub(crate) rate: Option<f64>,
    /// Seconds until the last point ends, at this rate.
    pub(crate) left: Option<f64>,
    /// Workers now.
    pub(crate) workers: u32,
    pub(crate) cost: Cost,
}

/// Time of workers, over all runs of the campaign.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub(crate) struct Cost {
    /// For attempts that gave a result.
    pub(crate) used: f64,
    /// For attempts that failed.
    pub(crate) lost: f64,
    /// Without a program.
    pub(crate) idle: f64,
    /// As many workers as there were at most would have taken this, from begin to end.
    pub(crate) fixed: f64,
    /// Duration of all runs.
    pub(crate) elapsed: f64,
}

/// A campaign in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Summary {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Kind of the design, such as `lhs`.
    pub(crate) design: &'static str,
    #[serde(flatten)]
    pub(crate) progress: Progress,
}

/// A campaign.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Detail {
    #[serde(flatten)]
    pub(crate) summary: Summary,
    pub(crate) seed: u64,
    /// The design's size in its own unit, such as trajectories; `null` where levels or a file give it.
    pub(crate) size: Option<u64>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) outputs: Vec<Output>,
    /// Attempts of a point before it has failed.
    pub(crate) attempts: u32,
    /// Points that failed, by kind of failure.
    #[schema(value_type = Object)]
    pub(crate) failures: Json,
    /// The last start by this server.
    pub(crate) start: Option<Start>,
}

/// A variable.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// Kind of its distribution.
    pub(crate) kind: &'static str,
    /// Whether it has more than one value.
    pub(crate) varies: bool,
    /// Values of a choice, in the file's order; empty for others.
    #[schema(value_type = Vec<Object>)]
    pub(crate) choices: Json,
}

/// A result of each point.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) unit: String,
    /// Whether the output is a time series.
    pub(crate) series: bool,
}

impl Progress {
    pub(crate) fn of(item: &Item, look: &Look) -> Result<Self, ApiError> {
        let counts = look.counts;
        let last = look.runs.last().copied().filter(|_| look.is_running);
        let rate = item.store().rate()?.filter(|_| look.is_running);
        let open = (counts.waiting + counts.running) as f64;
        let left = rate.filter(|rate| *rate > 0.0 && look.word == "running").map(|rate| open / rate);
        let time = ledger::sum(&look.runs);
        let spent = item.store().spent()?;
        Ok(Self {
            state: look.word,
            runs: look.is_running,
            counts: Counts {
                points: counts.points,
                waiting: counts.waiting,
                running: counts.running,
                done: counts.done,
                failed: counts.failed,
            },
            rate,
            left,
            workers: last.map_or(0, |run| run.workers),
            cost: Cost {
                used: spent.used,
                lost: spent.lost,
                idle: time.idle,
                fixed: time.fixed,
                elapsed: look.runs.iter().fold(0.0, |sum, Run { elapsed, .. }| sum + elapsed),
            },
        })
    }
}

impl Summary {
    pub(crate) fn of(id: &Id, item: &Item, look: &Look) -> Result<Self, ApiError> {
        let campaign = &item.study.campaign;
        let progress = Progress::of(item, look)?;
        let (id, name) = (id.as_str().to_owned(), campaign.name.clone());
        Ok(Self { id, name, design: design(&campaign.design), progress })
    }
}

impl Detail {
    pub(crate) fn of(id: &Id, item: &Item, look: Look) -> Result<Self, ApiError> {
        let campaign = &item.study.campaign;
        let summary = Summary::of(id, item, &look)?;
        let failures = item.store().failure_kinds()?;
        let failures = failures.iter().map(|of| Ok((word(json!(of.failure)), json!(of.points))));
        let variables = campaign.variables.iter().map(|variable| Variable {
            name: variable.name.clone(),
            kind: kind(&variable.distribution),
            varies: variable.distribution.varies(),
            choices: match &variable.distribution {
                Distribution::Choices(choices) => choices.iter().map(|(value, _)| json!(value)).collect(),
                _ => json!([]),
            },
        });
        let outputs = campaign.outputs.iter().map(|output| Output {
            name: output.name.clone(),
            unit: output.unit.clone(),
            series: matches!(output.pick, Pick::Series(_) | Pick::SqlSeries(_)),
        });
        Ok(Self {
            summary,
            seed: campaign.seed,
            size: campaign.design.size(),
            variables: variables.collect(),
            outputs: outputs.collect(),
            attempts: campaign.attempts.most,
            failures: Json::Object(failures.collect::<Result<_, ApiError>>()?),
            start: look.start,
        })
    }
}

/// The text of a JSON string.
pub(crate) fn word(value: Json) -> String {
    match value {
        Json::String(word) => word,
        other => other.to_string(),
    }
}

fn design(design: &Design) -> &'static str {
    match design {
        Design::Grid { .. } => "grid",
        Design::Random { .. } => "random",
        Design::Lhs { .. } => "lhs",
        Design::Sobol { .. } => "sobol",
        Design::Halton { .. } => "halton",
        Design::Morris { .. } => "morris",
        Design::Saltelli { .. } => "saltelli",
        Design::Fast { .. } => "fast",
        Design::Oat { .. } => "oat",
        Design::Repeat { .. } => "repeat",
        Design::List { .. } => "list",
        Design::Search(search) => search.method.word(),
    }
}

fn kind(distribution: &Distribution) -> &'static str {
    match distribution {
        Distribution::Fixed(_) => "fixed",
        Distribution::Uniform { .. } => "uniform",
        Distribution::LogUniform { .. } => "loguniform",
        Distribution::Integer { .. } => "integer",
        Distribution::Triangle { .. } => "triangle",
        Distribution::Normal { .. } => "normal",
        Distribution::LogNormal { .. } => "lognormal",
        Distribution::Choices(_) => "choices",
    }
}
