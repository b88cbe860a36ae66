//! From records to rows: figure × driver, with the ratio to the baseline and a verdict in words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bottleneck::{Bottleneck, Counters};
use crate::check::{self, CheckedPath};
use crate::format;
use crate::markdown;
use crate::probe::Sample;
use crate::record::{Bench, Comparison, Measurement};
use crate::stats::{ENOUGH, Estimate, Pair};

/// The driver that others are compared with, where it took part. Else it is the first driver.
pub const BASELINE: &str = "host";

/// The results of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The driver that others are compared with.
    pub baseline: String,
    /// All drivers, in the order asked.
    pub drivers: Vec<String>,
    /// All figures, in the order first measured.
    pub figures: Vec<FigureSummary>,
    /// The checks of links, before the measurements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckedPath>,
    /// Of a benchmark: the resource that was saturated, for each headline figure under each way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub saturated: Vec<Saturated>,
}

/// The resource that one way of a benchmark saturated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saturated {
    /// The way.
    pub way: String,
    /// The figure's name.
    pub figure: String,
    /// The resource, and the evidence: of the run in the middle.
    #[serde(flatten)]
    pub bottleneck: Bottleneck,
}

/// One figure under all drivers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FigureSummary {
    /// The job that measured it.
    pub job: String,
    /// The figure's name.
    pub name: String,
    /// Unit; empty for a count.
    pub unit: String,
    /// True where a greater value is better.
    pub higher_is_better: bool,
    /// True for what the job is run for; false for what explains it.
    pub headline: bool,
    /// One for each driver that has a value, in the order of drivers.
    pub rows: Vec<Row>,
}

/// One figure under one driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The driver.
    pub driver: String,
    /// Counted values.
    pub n: usize,
    /// Median and 95 % interval, in the figure's unit.
    pub value: Estimate,
    /// Ratio to the baseline, paired by round. `None` for the baseline itself, or where there is no ratio.
    pub ratio: Option<Estimate>,
    /// The ratio in a word.
    pub verdict: Verdict,
}

/// The meaning of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The driver that others are compared with.
    Baseline,
    /// The interval of the ratio contains 1.
    WithinNoise,
    /// The interval of the ratio does not contain 1, on the better side.
    Better,
    /// The interval of the ratio does not contain 1, on the worse side.
    Worse,
    /// Fewer than [`ENOUGH`] rounds with both drivers.
    TooFew,
    /// The baseline has no value, or zero.
    NoRatio,
}

/// Headings for [`FigureSummary::cells`].
pub const HEADINGS: [&str; 7] = ["driver", "n", "median", "95 % interval", "ratio", "95 % interval", "verdict"];

impl Summary {
    /// Summarises the counted measurements.
    #[must_use]
    pub fn new(comparison: &Comparison) -> Self {
        let drivers = comparison.drivers();
        let baseline = drivers.iter().find(|&&driver| driver == BASELINE).or(drivers.first()).copied().unwrap_or("");
        let figures: Vec<FigureSummary> = figures(comparison)
            .into_iter()
            .map(|(job, sample)| {
                let values = |driver: &str| values(comparison, job, &sample.figure, driver);
                let base = values(baseline);
                let row = |driver: &&str| {
                    row(driver, *driver == baseline, &values(driver), &base, sample, comparison.begin.seed)
                };
                FigureSummary {
                    job: job.to_owned(),
                    name: sample.figure.clone(),
                    unit: sample.unit.clone(),
                    higher_is_better: sample.higher_is_better,
                    headline: sample.headline,
                    rows: drivers.iter().filter_map(row).collect(),
                }
            })
            .collect();
        Self {
            baseline: baseline.to_owned(),
            drivers: drivers.into_iter().map(str::to_owned).collect(),
            saturated: comparison
                .begin
                .bench
                .as_ref()
                .map_or_else(Vec::new, |bench| saturated(comparison, bench, &figures)),
            figures,
            checks: comparison.begin.checks.clone(),
        }
    }

    /// The summary as Markdown: a heading and a table for each figure, then the links.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for figure in &self.figures {
            let title =
                if figure.unit.is_empty() { figure.name.clone() } else { format!("{} ({})", figure.name, figure.unit) };
            text.extend(["### ", &markdown::escape(&title), "\n\n"]);
            text += &markdown::row(&HEADINGS.map(str::to_owned));
            text += "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
            for row in &figure.rows {
                text += &markdown::row(&figure.cells(row, &self.baseline));
            }
            text.push('\n');
        }
        if !self.saturated.is_empty() {
            text += "### what was saturated\n\n";
            text += &markdown::row(&["way", "figure", "saturated", "counters"].map(str::to_owned));
            text += "| --- | --- | --- | --- |\n";
            for Saturated { way, figure, bottleneck } in &self.saturated {
                let cells = [way.clone(), figure.clone(), bottleneck.words.clone(), bottleneck.evidence.join("; ")];
                text += &markdown::row(&cells);
            }
            text.push('\n');
        }
        if !self.checks.is_empty() {
            text.extend(["### links, measured beforehand\n\n", &check::markdown(&self.checks)]);
        }
        text
    }
}

impl FigureSummary {
    /// The cells of a row under [`HEADINGS`]. Values are in [`Self::unit`].
    #[must_use]
    pub fn cells(&self, row: &Row, baseline: &str) -> [String; 7] {
        let ratio = |shown: fn(&Estimate) -> String| row.ratio.as_ref().map_or("–".to_owned(), shown);
        [
            row.driver.clone(),
            row.n.to_string(),
            format::number(row.value.median),
            format::interval(&row.value),
            ratio(|ratio| format::ratio(ratio.median)),
            ratio(format::interval),
            self.verdict(row, baseline),
        ]
    }

    /// The verdict in words: `= host within noise`, `1.80× slower`, `3.1 % faster`.
    #[must_use]
    pub fn verdict(&self, row: &Row, baseline: &str) -> String {
        let Some(ratio) = row.ratio.map(|ratio| ratio.median) else {
            return match row.verdict {
                Verdict::Baseline => "baseline".to_owned(),
                _ => "no ratio".to_owned(),
            };
        };
        match row.verdict {
            Verdict::WithinNoise => format!("= {baseline} within noise"),
            Verdict::TooFew => format!("{}? too few rounds (n < {ENOUGH})", self.difference(ratio)),
            _ => self.difference(ratio),
        }
    }

    /// `1.80× slower`; below a quarter, in percent of the baseline.
    #[must_use]
    pub fn difference(&self, ratio: f64) -> String {
        let better = (ratio > 1.0) == self.higher_is_better;
        let word = match (self.is_speed(), better) {
            (true, true) => "faster",
            (true, false) => "slower",
            (false, true) => "better",
            (false, false) => "worse",
        };
        let factor = ratio.max(1.0 / ratio);
        if factor <= 1.0 {
            "no different".to_owned()
        } else if factor < 1.25 {
            format!("{} {word}", format::percent((ratio - 1.0).abs()))
        } else {
            format!("{} {word}", format::ratio(factor))
        }
    }

    /// Times and rates are "faster" or "slower", anything else "better" or "worse".
    fn is_speed(&self) -> bool {
        self.unit.ends_with("/s") || ["s", "ms", "µs", "us", "ns", "min", "h"].contains(&self.unit.as_str())
    }
}

/// The resource that each way saturated.
fn saturated(comparison: &Comparison, bench: &Bench, figures: &[FigureSummary]) -> Vec<Saturated> {
    let mut found = Vec::new();
    for figure in figures.iter().filter(|figure| figure.headline) {
        for row in &figure.rows {
            let Some(counters) = middle(comparison, figure, row) else { continue };
            let of_limit = row.ratio.map(|ratio| ratio.median);
            found.push(Saturated {
                way: row.driver.clone(),
                figure: figure.name.clone(),
                bottleneck: counters.bottleneck(of_limit, &bench.sides),
            });
        }
    }
    found
}

/// Counters of the run with the median value, or the one below it.
fn middle<'a>(comparison: &'a Comparison, figure: &FigureSummary, row: &Row) -> Option<&'a Counters> {
    let value =
        |m: &Measurement| m.samples.iter().find(|sample| sample.figure == figure.name).map(|sample| sample.value);
    let of_row = |m: &&Measurement| !m.warm_up && m.job == figure.job && m.driver == row.driver;
    let mut runs: Vec<(f64, &Counters)> =
        comparison.measurements.iter().filter(of_row).filter_map(|m| Some((value(m)?, m.counters.as_ref()?))).collect();
    runs.sort_by(|one, other| one.0.total_cmp(&other.0));
    runs.get(runs.len().checked_sub(1)? / 2).map(|(_, counters)| *counters)
}

/// The first sample of each figure, in the order first measured.
fn figures(comparison: &Comparison) -> Vec<(&str, &Sample)> {
    let mut figures: Vec<(&str, &Sample)> = Vec::new();
    for measurement in &comparison.measurements {
        for sample in &measurement.samples {
            if !figures.iter().any(|(job, known)| *job == measurement.job && known.figure == sample.figure) {
                figures.push((&measurement.job, sample));
            }
        }
    }
    figures
}

/// Counted values of a figure by round.
fn values(comparison: &Comparison, job: &str, figure: &str, driver: &str) -> BTreeMap<u32, f64> {
    let counted = comparison.measurements.iter().filter(|m| !m.warm_up && m.job == job && m.driver == driver);
    counted.filter_map(|m| Some((m.round, m.samples.iter().find(|sample| sample.figure == figure)?.value))).collect()
}

fn row(
    driver: &str,
    is_baseline: bool,
    values: &BTreeMap<u32, f64>,
    base: &BTreeMap<u32, f64>,
    sample: &Sample,
    seed: u64,
) -> Option<Row> {
    let list: Vec<f64> = values.values().copied().collect();
    let value = Estimate::of_median(&list, seed)?;
    let pairs: Vec<Pair> =
        values.iter().filter_map(|(round, &value)| Some(Pair { value, baseline: *base.get(round)? })).collect();
    let ratio = if is_baseline { None } else { Estimate::of_ratio(&pairs, seed) };
    let verdict = match ratio {
        _ if is_baseline => Verdict::Baseline,
        None => Verdict::NoRatio,
        Some(_) if pairs.len() < ENOUGH => Verdict::TooFew,
        Some(ratio) if ratio.contains(1.0) => Verdict::WithinNoise,
        Some(ratio) if (ratio.median > 1.0) == sample.higher_is_better => Verdict::Better,
        Some(_) => Verdict::Worse,
    };
    Some(Row { driver: driver.to_owned(), n: list.len(), value, ratio, verdict })
}
