//! `slipway campaign status` and `slipway campaign points`

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use slipway_campaign::model::{Campaign, Place};
use slipway_coordinator::store::{FailureKind, Filter, Point, PointState, State, Store as _};
use slipway_document::text::{printable, printable_json};
use slipway_study::campaign::{Baseline, CampaignError, Standing, results};

use super::{Which, best};
use super::number::number;
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

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        context.answer(&Standing::of(&study)?, |standing| text(&study.campaign, standing))?;
        Ok(Exit::Success)
    }
}

fn text(campaign: &Campaign, standing: &Standing) -> String {
    let counts = &standing.counts;
    let share = |count: u64| format!("{count} ({:.1} %)", 100.0 * count as f64 / counts.points.max(1) as f64);
    let spent = standing.seconds;
    let mut facts = vec![
        ("campaign", standing.campaign.clone()),
        ("state", state(standing).to_owned()),
        ("points", counts.points.to_string()),
        ("done", share(counts.done)),
        ("failed", share(counts.failed)),
        ("running", counts.running.to_string()),
        ("waiting", counts.waiting.to_string()),
    ];
    if let Some(step) = standing.step.and_then(|step| best::step(campaign, &step)) {
        facts.push(("search", step));
    }
    if let Some(Baseline { state, message }) = &standing.baseline {
        let message = message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
        facts.push(("baseline", format!("{}{message}", word_of(state))));
    }
    if let Some(pace) = pace(standing) {
        facts.push(("pace", pace));
    }
    facts.push((
        "workers",
        format!("{:.1} s for results, {:.1} s lost, {:.1} s idle; a fixed number would have taken {:.1} s", spent.used, spent.lost, spent.idle, spent.fixed),
    ));
    if standing.runs {
        let of = if campaign.workers.place == Place::Here { "lab" } else { "jobs" };
        facts.push((of, standing.lab.clone()));
    }
    facts.push(("folder", standing.folder.display().to_string()));
    view::facts(&facts)
}

/// The state in words.
pub(super) fn state(standing: &Standing) -> &'static str {
    match (standing.state, standing.runs, standing.counts.waiting + standing.counts.running) {
        (State::Cancelled, ..) => "cancelled",
        (_, _, 0) => "ended",
        (_, false, _) if standing.is_stopped() => {
            "stopped, since the baseline failed; `slipway campaign retry --point 0`, then `slipway campaign run`"
        }
        (State::Paused, ..) => "paused; `slipway campaign resume` goes on",
        (State::Running, true, _) => "running",
        (State::Running, false, _) => "interrupted; `slipway campaign run` goes on",
    }
}

/// `12.3 points/s, about 2 h left`; `None` before anything can be told.
pub(super) fn pace(standing: &Standing) -> Option<String> {
    let rate = standing.rate?;
    // Slow points are better told by the minute or hour.
    let pace = [(1.0, "s"), (60.0, "min"), (3600.0, "h")];
    let (per, unit) = pace.into_iter().find(|(per, _)| rate * per >= 1.0).unwrap_or((3600.0, "h"));
    let pace = format!("{} points/{unit}", number((rate * per * 100.0).round() / 100.0));
    Some(match standing.left {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a saturating cast of seconds")]
        Some(left) => format!("{pace}, about {} left", view::age(left.ceil() as u64)),
        None => pace,
    })
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

pub(super) fn word<T: DeserializeOwned>(word: &str) -> Result<T, String> {
    serde_json::from_value(word.into()).map_err(|_| "--help lists the words".to_owned())
}

/// List points that workers had, with the reason of failures
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A point is listed once a worker had it. The exit code is 4 where the campaign has
no point as high as --from.

Examples:
  slipway campaign points --state failed
  slipway campaign points --from 1000 --limit 50
  slipway campaign points --failure timeout --json | jq '.[].point'")]
pub(super) struct Points {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    choice: Choice,
    /// The first point to list
    #[arg(long, value_name = "POINT", default_value_t = 0)]
    from: u64,
    /// At most so many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl Points {
    /// Prints page by page: a campaign may have a million points.
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let store = results::store(&self.which.open()?)?;
        let counts = store.counts().map_err(CampaignError::from)?;
        if self.from >= counts.points {
            let range = counts.points.checked_sub(1).map_or_else(String::new, |last| format!(", 0 to {last}"));
            let account = format!("find point {}: the campaign has {} points{range}", self.from, counts.points);
            return Err(Failure::new(Exit::NotFound, &account));
        }
        let filter = Filter { state: self.choice.state, failure: self.choice.failure, points: Vec::new() };
        let (mut from, mut left) = (self.from, self.limit.unwrap_or(u64::MAX));
        let mut table = List { context, begun: false, from, waiting: counts.waiting };
        loop {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(PAGE);
            let page = store.points(&filter, from, most).map_err(CampaignError::from)?;
            left -= page.len() as u64;
            let Some(last) = page.last() else { break };
            from = last.point + 1;
            table.show(&page)?;
        }
        table.end()?;
        Ok(Exit::Success)
    }
}

/// A list that is printed as it comes: rows of a table, or the elements of one JSON array.
struct List<'a> {
    context: &'a Context,
    begun: bool,
    /// The first point that was asked for.
    from: u64,
    /// Points that wait.
    waiting: u64,
}

impl List<'_> {
    fn show(&mut self, page: &[Point]) -> Result<(), Failure> {
        let first = !std::mem::replace(&mut self.begun, true);
        if self.context.global.json {
            let mut text = String::new();
            for (index, point) in page.iter().enumerate() {
                text.push_str(if first && index == 0 { "[\n  " } else { ",\n  " });
                text.push_str(&json!(point).to_string());
            }
            return self.context.print(&printable_json(&text));
        }
        if first {
            self.context.print("POINT     STATE    ATTEMPTS  WORKER  FAILURE      MESSAGE\n")?;
        }
        let lines = page.iter().map(|point| {
            let failure = point.failure.map_or_else(|| "-".to_owned(), word_of);
            // --json and `logs` have all of it.
            let reason = if point.message.is_some() { point.reason() } else { "-".to_owned() };
            let Point { point: number, attempts, worker, state, .. } = point;
            format!("{number:<8}  {:<7}  {attempts:<8}  {worker:<6}  {failure:<11}  {reason}\n", word_of(*state))
        });
        self.context.print(&printable(&lines.collect::<String>()))
    }

    fn end(self) -> Result<(), Failure> {
        match (self.context.global.json, self.begun) {
            (true, true) => self.context.print("\n]\n"),
            (true, false) => self.context.print("[]\n"),
            (false, true) => Ok(()),
            (false, false) => {
                if !self.context.global.quiet {
                    let from = if self.from > 0 { format!(" from {} on", self.from) } else { String::new() };
                    let waiting = view::count(self.waiting, "point");
                    eprintln!("no point{from} that a worker had is among these; {waiting} of the campaign wait");
                }
                Ok(())
            }
        }
    }
}

pub(super) fn word_of(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
