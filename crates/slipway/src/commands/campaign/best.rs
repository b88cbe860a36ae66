//! `slipway campaign best`, and the words for a search's progress.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value as Json;
use slipway_campaign::model::Campaign;
use slipway_campaign::score;
use slipway_coordinator::store::Step;
use slipway_study::campaign::search::{self, Best};

use super::Which;
use super::number::number;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Show the best points by the campaign's objectives
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With one objective, the point with the best value. With several, the Pareto front:
each point that no other beats by all objectives. It works with every design, also
while the campaign runs. Points that break a constraint come last: they are shown
where there are no others.

Examples:
  slipway campaign best
  slipway campaign best --json | jq '.best[].variables'")]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
}

#[derive(Serialize)]
struct Told {
    objectives: Vec<String>,
    best: Vec<Best>,
    /// Batches that a search has learnt from.
    steps: Vec<Step>,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        if study.campaign.objectives.is_empty() {
            return Err(Failure::usage(
                "compare points: the campaign file has no objectives\nHint: add `objectives:` with an output, such as `cost: minimize`, under another `campaign:` name",
            ));
        }
        let told = Told {
            objectives: score::names(&study.campaign),
            best: search::best(&study)?,
            steps: search::steps(&study)?,
        };
        context.answer(&told, |told| text(&study.campaign, told))?;
        Ok(Exit::Success)
    }
}

fn text(campaign: &Campaign, told: &Told) -> String {
    let Some(first) = told.best.first() else { return "no point has a result yet\n".to_owned() };
    let variables: Vec<&str> = campaign.variables.iter().map(|variable| variable.name.as_str()).collect();
    let outputs: Vec<&str> = campaign.outputs.iter().map(|output| output.name.as_str()).collect();
    let cell = |value: &Json| match value {
        Json::Number(value) => number(value.as_f64().unwrap_or_default()),
        Json::String(text) => text.clone(),
        Json::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let row = |best: &Best| {
        let variables = variables.iter().map(|name| cell(&best.variables[*name]));
        let outputs = outputs.iter().map(|name| cell(&best.outputs[*name]));
        std::iter::once(best.point.to_string()).chain(variables).chain(outputs).collect::<Vec<String>>()
    };
    let names = std::iter::once("POINT").chain(variables.iter().copied()).chain(outputs.iter().copied());
    let mut table: Vec<Vec<String>> = vec![names.map(str::to_owned).collect()];
    table.extend(told.best.iter().map(row));
    let mut text = columns(&table);
    if !first.feasible {
        text.push_str("\nno point is within all constraints; these are the nearest\n");
    }
    text
}

/// Rows with aligned columns, as many as the campaign has variables and outputs.
fn columns(rows: &[Vec<String>]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A search's last step, in a line.
pub(super) fn step(campaign: &Campaign, step: &Step) -> Option<String> {
    let search = campaign.search()?;
    let name = if search.first == search.batch { "generation" } else { "batch" };
    let mut text = format!("{name} {} of {}", step.batch + 1, search.batches());
    if let (Some(least), [objective]) = (step.least, &campaign.objectives[..]) {
        let name = &campaign.outputs[objective.output].name;
        let _ = write!(text, ": the best {name} is {}", number(objective.value(least)));
    } else if let Some(least) = step.least {
        let _ = write!(text, ": the least score is {}", number(least));
    } else if let Some(volume) = step.volume {
        let _ = write!(text, ": hypervolume {}", number(volume));
    }
    if step.failed > 0 {
        let _ = write!(text, ", {} failed", view::count(step.failed, "point"));
    }
    Some(text)
}
