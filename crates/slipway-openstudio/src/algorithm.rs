//! Algorithms (`analysis_type`), as designs or as points.

use serde_json::Value as Json;
use slipway_campaign::value::Value;

use crate::distribution::number;
use crate::error::Notes;
use crate::imported::Files;
use crate::points;
use crate::search;
use crate::variable::{MOST, Rows, Variable};

const PATH: &str = "$.analysis.problem.algorithm";

/// The points of an analysis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Chosen {
    /// A design, as the campaign file has it.
    Design(String),
    /// Points one by one.
    Rows(Rows),
}

/// The points that an analysis asks for.
#[expect(clippy::too_many_lines, reason = "one arm for each algorithm")]
pub(crate) fn choose(
    problem: &Json,
    variables: &[Variable],
    seed: u64,
    files: &Files,
    notes: &mut Notes,
) -> Option<Chosen> {
    let kind = problem.get("analysis_type").and_then(Json::as_str).unwrap_or_default();
    let setting = |name: &str| problem.pointer(&format!("/algorithm/{name}")).and_then(number);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a saturating cast of a number from 1")]
    let count = |names: &[&str], usual: u64| {
        let found = names.iter().find_map(|name| setting(name));
        found.map_or(usual, |number| number.clamp(1.0, 1e9) as u64)
    };
    let samples = count(&["number_of_samples"], 100);
    let is =
        |name: &str, word: &str| problem.pointer(&format!("/algorithm/{name}")).and_then(Json::as_str) == Some(word);
    if search::is_one(kind) {
        return search::design(kind, problem, notes).map(Chosen::Design);
    }
    let designed = |design: &str, notes: &mut Notes| with_pivots(design, variables, seed, notes);
    let chosen = match kind {
        // A server makes points first and then runs them; data points that come with the analysis are those.
        "" | "batch_datapoints" | "batch_run" | "batch_run_analyses" => {
            let rows = points::read(&files.data_points, variables, notes);
            if rows.is_empty() && notes.refusals.is_empty() {
                notes.refuse(
                    "$.analysis.problem.analysis_type",
                    "it runs data points, and there are none\nHint: name their files too",
                );
            }
            Chosen::Rows(rows)
        }
        "single_run" => usual(variables, 1),
        "repeat_run" => usual(variables, count(&["number_of_runs", "number_of_samples"], 2)),
        "preflight" => Chosen::Rows(points::preflight(variables, problem)),
        "baseline_perturbation" => {
            notes.change(
                PATH,
                "points.csv has the usual values of all variables, then each variable alone at its other values",
            );
            Chosen::Rows(points::one_at_a_time(variables))
        }
        "diag" => Chosen::Rows(points::diagonal(variables, samples)),
        "doe" if is("experiment_type", "diagonal") => Chosen::Rows(points::diagonal(variables, samples)),
        "doe" => designed(&format!("{{grid: {}}}", count(&["number_of_samples", "levels"], 2)), notes),
        "lhs" if is("sample_method", "individual_variables") && variables.len() > 1 => {
            notes.change(
                PATH,
                "points.csv has a Latin hypercube of each variable alone, the others at their usual values",
            );
            Chosen::Rows(points::individually(variables, samples, seed))
        }
        "lhs" => designed(&format!("{{lhs: {samples}}}"), notes),
        "sobol" => {
            let second = setting("order").is_some_and(|order| order >= 2.0);
            notes.change(
                PATH,
                "Saltelli's matrices; the indices are those of Saltelli 2010 and Jansen 1999, whatever `type` says",
            );
            designed(&format!("{{saltelli: {{samples: {samples}, second_order: {second}}}}}"), notes)
        }
        "morris" => {
            let levels = count(&["levels"], 4);
            let even = levels.clamp(2, 1000).next_multiple_of(2);
            if even != levels {
                notes.change(
                    format!("{PATH}.levels"),
                    format!("{levels} levels become {even}: Morris' grid has an even number"),
                );
            }
            designed(
                &format!("{{morris: {{trajectories: {}, levels: {even}}}}}", count(&["r", "number_of_samples"], 10)),
                notes,
            )
        }
        "fast99" => {
            let harmonics = count(&["M"], 4).min(100);
            let (asked, least) = (count(&["n", "number_of_samples"], 100), 4 * harmonics * harmonics + 1);
            if asked < least {
                notes.change(
                    format!("{PATH}.n"),
                    format!("{asked} points of a curve become {least}, the fewest for {harmonics} harmonics"),
                );
            }
            designed(&format!("{{fast: {{samples: {}, harmonics: {harmonics}}}}}", asked.max(least)), notes)
        }
        other => {
            notes.refuse(
                "$.analysis.problem.analysis_type",
                format!("`{}` is no algorithm of OpenStudio", other.escape_debug()),
            );
            return None;
        }
    };
    if let Chosen::Rows(rows) = &chosen
        && rows.len() > MOST
    {
        notes.refuse(PATH, format!("there would be {} points, and a list has at most {MOST}", rows.len()));
        return None;
    }
    match chosen {
        // A list needs a column, and a design something that varies.
        Chosen::Rows(rows) if variables.is_empty() => {
            let points = rows.len().max(1);
            Some(Chosen::Design(format!("{{repeat: {points}}}")))
        }
        Chosen::Design(_) if variables.is_empty() && kind != "repeat_run" => {
            if kind != "single_run" {
                notes.change(PATH, "no variable varies, so the model runs once");
            }
            Some(Chosen::Design("{repeat: 1}".to_owned()))
        }
        chosen => Some(chosen),
    }
}

/// All variables at their usual values, so many times.
fn usual(variables: &[Variable], times: u64) -> Chosen {
    if variables.is_empty() {
        return Chosen::Design(format!("{{repeat: {times}}}"));
    }
    let row: Vec<Value> = variables.iter().map(|variable| variable.values.usual.clone()).collect();
    Chosen::Rows(vec![row; usize::try_from(times).unwrap_or(usize::MAX).min(MOST + 1)])
}

/// A design of the variables, once for each combination of pivots.
fn with_pivots(design: &str, variables: &[Variable], seed: u64, notes: &mut Notes) -> Chosen {
    let pivots = variables.iter().filter(|variable| variable.pivot).count();
    if pivots == 0 {
        return Chosen::Design(design.to_owned());
    }
    if pivots == variables.len() {
        notes.change(PATH, "all variables are pivots: every combination of their values runs");
        return Chosen::Design("grid".to_owned());
    }
    let rows = points::crossed(design, variables, seed, notes);
    let text =
        format!("points.csv has the {} points: the design is repeated for each combination of pivots", rows.len());
    notes.change(PATH, text);
    Chosen::Rows(rows)
}
