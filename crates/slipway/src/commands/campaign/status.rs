//! `slipway campaign status` and `slipway campaign points`

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use slipway_coordinator::Folder;
use slipway_coordinator::store::{Counts, FailureKind, Filter, Point, PointState, Spent, State, Store as _};
use slipway_study::campaign::{CampaignError, results};

use super::Which;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Points that are read at once.
const PAGE: usize = 1000;

/// Show how far a campaign is
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
}

#[derive(Serialize)]
struct Status {
    campaign: String,
    folder: PathBuf,
    state: State,
    /// Whether a coordinator runs it now, or its lab still goes down.
    runs: bool,
    #[serde(flatten)]
    counts: Counts,
    seconds: Spent,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        let store = results::store(&study)?;
        let stored = |error| Failure::from(CampaignError::from(error));
        let folder = Folder::open(study.folder()).map_err(CampaignError::from)?;
        let status = Status {
            campaign: study.campaign.name.clone(),
            folder: study.folder().to_owned(),
            state: store.state().map_err(stored)?,
            runs: folder.is_running().map_err(CampaignError::from)?,
            counts: store.counts().map_err(stored)?,
            seconds: store.spent().map_err(stored)?,
        };
        context.answer(&status, text)?;
        Ok(Exit::Success)
    }
}

fn text(status: &Status) -> String {
    let counts = &status.counts;
    let share = |count: u64| format!("{count} ({:.1} %)", 100.0 * count as f64 / counts.points.max(1) as f64);
    let state = match (status.state, status.runs, counts.waiting + counts.running) {
        (State::Cancelled, ..) => "cancelled",
        (_, _, 0) => "ended",
        (State::Paused, ..) => "paused; `slipway campaign resume` goes on",
        (State::Running, true, _) => "running",
        (State::Running, false, _) => "interrupted; `slipway campaign run` goes on",
    };
    view::facts(&[
        ("campaign", status.campaign.clone()),
        ("state", state.to_owned()),
        ("points", counts.points.to_string()),
        ("done", share(counts.done)),
        ("failed", share(counts.failed)),
        ("running", counts.running.to_string()),
        ("waiting", counts.waiting.to_string()),
        ("time", format!("{:.1} s of points, {:.1} s of failed attempts", status.seconds.used, status.seconds.lost)),
        ("folder", status.folder.display().to_string()),
    ])
}

/// Points of a campaign, by state and failure.
#[derive(Debug, clap::Args)]
pub(super) struct Choice {
    /// In this state: waiting, running, done or failed
    #[arg(long, value_name = "STATE", value_parser = word::<PointState>)]
    state: Option<PointState>,
    /// Whose last attempt failed so: fatal, timeout, lost-worker, storage or output
    #[arg(long, value_name = "KIND", value_parser = word::<FailureKind>)]
    pub(super) failure: Option<FailureKind>,
}

fn word<T: DeserializeOwned>(word: &str) -> Result<T, String> {
    serde_json::from_value(word.into()).map_err(|_| "--help lists the words".to_owned())
}

/// List points that workers had, with the reason of failures
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  slipway campaign points --state failed
  slipway campaign points --failure timeout --json | jq '.[].point'")]
pub(super) struct Points {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    choice: Choice,
}

impl Points {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let store = results::store(&self.which.open()?)?;
        let filter = Filter { state: self.choice.state, failure: self.choice.failure, points: Vec::new() };
        let mut points: Vec<Point> = Vec::new();
        loop {
            let from = points.last().map_or(0, |point| point.point + 1);
            let page = store.points(&filter, from, PAGE).map_err(CampaignError::from)?;
            if page.is_empty() {
                break;
            }
            points.extend(page);
        }
        context.answer(&points, |points| {
            let rows = points.iter().map(|point| {
                let failure = point.failure.map_or_else(|| "-".to_owned(), word_of);
                // The first line tells most; --json and `logs` have the rest.
                let message = point.message.as_deref().and_then(|message| message.lines().next()).unwrap_or("-");
                let (number, attempts) = (point.point.to_string(), point.attempts.to_string());
                [number, word_of(point.state), attempts, point.worker.to_string(), failure, message.to_owned()]
            });
            view::table(["POINT", "STATE", "ATTEMPTS", "WORKER", "FAILURE", "MESSAGE"], rows)
        })?;
        Ok(Exit::Success)
    }
}

fn word_of(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
