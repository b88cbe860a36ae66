//! `slipway campaign results` and `slipway campaign sensitivity`

use std::fmt::Write as _;
use std::io;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use slipway_campaign::sensitivity::{Analysis, Measures};
use slipway_campaign::value::Value;
use slipway_study::campaign::{Study, results};

use super::Which;
use super::number::number;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, unwritten};
use crate::view;

/// Print all results, as CSV
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Columns: the point, its variables, the outputs, then seconds, cpu_seconds,
peak_bytes, worker, attempts and seed. Rows are in the order in which results
came. A time series has no column; `slipway campaign export` writes files.
Campaigns with a baseline have the column `baseline`, which is true for point 0.

Examples:
  slipway campaign results > results.csv
  slipway campaign results --difference      outputs against the baseline's
  slipway campaign results --json study.yaml | jq '.[] | select(.cost > 10)'")]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Print each output as its difference to the baseline's; texts have none
    #[arg(long)]
    difference: bool,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        let columns = results::columns(&study);
        let baseline = if self.difference { Some(baseline(&study)?) } else { None };
        let first = 1 + study.campaign.variables.len();
        let against = |cells: &mut Vec<Option<Value>>| {
            for (cell, baseline) in cells[first..].iter_mut().zip(baseline.iter().flatten()) {
                let number = cell.as_ref().and_then(Value::number);
                *cell = number.zip(*baseline).map(|(number, baseline)| Value::Number(number - baseline));
            }
        };
        if context.global.json {
            let mut rows: Vec<Map<String, Json>> = Vec::new();
            results::rows::<Failure>(&study, &mut |mut cells| {
                against(&mut cells);
                rows.push(columns.iter().cloned().zip(cells.into_iter().map(|cell| json!(cell))).collect());
                Ok(())
            })?;
            context.answer(&rows, |_| String::new())?;
            return Ok(Exit::Success);
        }
        let written = |error: csv::Error| unwritten(&io::Error::from(error));
        let mut out = csv::Writer::from_writer(io::stdout().lock());
        out.write_record(&columns).map_err(written)?;
        results::rows::<Failure>(&study, &mut |mut cells| {
            against(&mut cells);
            let cells = cells.into_iter().map(|cell| cell.map(|cell| cell.to_string()).unwrap_or_default());
            out.write_record(cells).map_err(written)
        })?;
        out.flush().map_err(|error| unwritten(&error))?;
        Ok(Exit::Success)
    }
}

/// Numbers of the baseline's outputs.
fn baseline(study: &Study) -> Result<Vec<Option<f64>>, Failure> {
    if study.campaign.baseline.is_none() {
        return Err(Failure::usage(
            "compare results with the baseline: the campaign has none\nHint: add `baseline: true` or values to the file, under another `campaign:` name",
        ));
    }
    results::baseline(study)?.ok_or_else(|| {
        let why = "compare results with the baseline: it has no result yet\nHint: `slipway campaign status` says why";
        Failure::new(Exit::Failed, &why)
    })
}

/// Show how much each variable matters for the outputs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The design decides what can be told. morris: elementary effects; saltelli and
fast: shares of variance (S1 alone, ST with all interactions); random, lhs, sobol
and halton: regression and rank correlation. Numbers have 95 % intervals.")]
pub(super) struct Sensitivity {
    #[command(flatten)]
    which: Which,
}

#[derive(Serialize)]
struct Told {
    output: String,
    #[serde(flatten)]
    analysis: Option<Analysis>,
    /// The reason why there is none.
    why: Option<String>,
}

impl Sensitivity {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        let mut all = Vec::new();
        for (index, output) in study.campaign.outputs.iter().enumerate() {
            let told = match results::analyse(&study, index)? {
                Ok(analysis) => Told { output: output.name.clone(), analysis: Some(analysis), why: None },
                Err(error) => Told { output: output.name.clone(), analysis: None, why: Some(error.to_string()) },
            };
            all.push(told);
        }
        context.answer(&all, |all| all.iter().map(text).collect::<Vec<_>>().join("\n"))?;
        Ok(Exit::Success)
    }
}

fn text(told: &Told) -> String {
    let Told { output, analysis, why } = told;
    let Some(Analysis { used, measures, .. }) = analysis else {
        return format!("{output}: {}\n", why.as_deref().unwrap_or_default());
    };
    format!("{output}, from {}:\n{}", view::count(*used, "point"), measures_text(measures))
}

fn measures_text(measures: &Measures) -> String {
    // Each kind has figures of its own; all are a number, or one with its interval.
    let value = json!(measures);
    let lists = match &value {
        Json::Object(kinds) => kinds.values().next().cloned().unwrap_or_default(),
        _ => Json::Null,
    };
    match lists {
        Json::Array(rows) => list(&rows),
        Json::Object(parts) => {
            let mut text = String::new();
            for (name, part) in parts {
                match part {
                    Json::Array(rows) if !rows.is_empty() => text.push_str(&list(&rows)),
                    Json::Number(figure) => {
                        let _ = writeln!(text, "{name}: {}", number(figure.as_f64().unwrap_or_default()));
                    }
                    _ => {}
                }
            }
            text
        }
        _ => String::new(),
    }
}

/// A line for each variable.
fn list(rows: &[Json]) -> String {
    let lines = rows.iter().filter_map(Json::as_object).map(|row| {
        let figures = row.iter().filter(|(key, _)| *key != "name").map(|(key, figure)| match figure {
            Json::Object(estimate) => {
                let of = |part: &str| number(estimate.get(part).and_then(Json::as_f64).unwrap_or(f64::NAN));
                format!("{key} {} ({} to {})", of("value"), of("low"), of("high"))
            }
            Json::Number(figure) => format!("{key} {}", number(figure.as_f64().unwrap_or_default())),
            _ => String::new(),
        });
        let figures: Vec<String> = figures.filter(|figure| !figure.is_empty()).collect();
        [row.get("name").and_then(Json::as_str).unwrap_or_default().to_owned(), figures.join("   ")]
    });
    view::table(["VARIABLE", "MEASURES"], lines)
}
