//! Trials of settings: one way is measured with the settings as they were and with the new ones, in interleaved rounds.
//!
//! A trial is a comparison with two drivers, [`BEFORE`] and [`AFTER`], so its intervals and verdicts are those of any comparison.
//! The caller changes the settings: this module only says when.

use std::path::PathBuf;

use serde::Serialize;
use slipway_measure::record::Measurement;
use slipway_measure::summary::{Summary, Verdict};
use slipway_sys::signals::Taken;

use super::{Bed, Plan, Ready, Way, begin, blank, measure, prepared};
use crate::rounds;
use crate::{Events, StudyError};

/// The settings as they were.
pub const BEFORE: &str = "before";
/// The settings that are tried.
pub const AFTER: &str = "after";

/// Puts the new settings in place (`true`) or the former ones back (`false`). Its error fits "failed to …".
pub type Switch<'a> = dyn FnMut(bool) -> Result<(), String> + 'a;

/// The verdict on settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A headline figure is better, and none is worse.
    Helps,
    /// A headline figure is worse, and none is better.
    Hurts,
    /// Some are better, others worse.
    Mixed,
    /// No interval of a ratio excludes 1.
    NoDifference,
    /// There are too few rounds to say anything.
    TooFew,
}

/// The result of a trial.
#[derive(Debug, Serialize)]
pub struct Tried {
    /// The figures under [`BEFORE`] and [`AFTER`].
    #[serde(flatten)]
    pub summary: Summary,
    /// The verdict.
    pub outcome: Outcome,
    /// The folder with `records.jsonl`, `summary.json` and `report.html`.
    pub folder: PathBuf,
    /// True where something could not be measured.
    pub failed: bool,
}

/// Measures the subject's first way of its own, with and without the settings. The settings are as the last turn left them: the
/// caller decides what stays.
///
/// # Errors
/// When the subject cannot be prepared, the records cannot be written, or a signal came. A switch or a measurement that fails is
/// recorded, and the trial goes on.
pub fn run(plan: &Plan, switch: &mut Switch<'_>, events: &mut Events<'_>) -> Result<Tried, StudyError> {
    prepared(plan, |ready, bed, interrupt| take(plan, ready, bed, interrupt, switch, events))
}

fn take(
    plan: &Plan,
    ready: &Ready,
    bed: &dyn Bed,
    interrupt: &Taken,
    switch: &mut Switch<'_>,
    events: &mut Events<'_>,
) -> Result<Tried, StudyError> {
    let folder = plan.output.make("tune-try", &ready.name)?;
    let mut begin = begin(plan, ready, bed)?;
    begin.drivers = vec![BEFORE.to_owned(), AFTER.to_owned()];
    // Ratios are to the former settings, not to a limit.
    begin.bench = None;
    // The first way is the limit.
    let own = ready.ways.get(1).unwrap_or(&ready.ways[0]);
    let ways = [BEFORE, AFTER].map(|name| Way { name: name.to_owned(), ..own.clone() });
    let mut one = |at: rounds::Turn| {
        let (way, job) = (&ways[at.way], ready.tasks[at.task]);
        match switch(at.way == 1) {
            Ok(()) => measure(at, way, job, bed, interrupt),
            Err(why) => Ok(Some(Measurement { error: Some(why), ..blank(at, way, job) })),
        }
    };
    let failed = rounds::take(&folder, &begin, (ready.tasks.len(), ways.len()), &mut one, events)?;
    let (_, summary) = rounds::report(&folder)?;
    let outcome = outcome(&summary);
    Ok(Tried { summary, outcome, folder, failed })
}

/// The verdict of the headline figures under [`AFTER`].
fn outcome(summary: &Summary) -> Outcome {
    let headlines = summary.figures.iter().filter(|figure| figure.headline);
    let verdicts: Vec<Verdict> =
        headlines.flat_map(|figure| &figure.rows).filter(|row| row.driver == AFTER).map(|row| row.verdict).collect();
    let has = |verdict| verdicts.contains(&verdict);
    match (has(Verdict::Better), has(Verdict::Worse)) {
        (true, true) => Outcome::Mixed,
        (true, false) => Outcome::Helps,
        (false, true) => Outcome::Hurts,
        (false, false) if has(Verdict::WithinNoise) => Outcome::NoDifference,
        (false, false) => Outcome::TooFew,
    }
}
