//! The content of the page, as texts and finished drawings, ready for the template.

use std::collections::BTreeMap;

use askama::Template;
use serde_json::Value;

use super::checks::Checks;
use super::palette::Look;
use super::scenario::Scenario;
use super::{bench, curve, order, strip, words};
use crate::play::{Event, Line, Outcome};
use crate::probe::{Point, Sample};
use crate::record::{Comparison, Measurement};
use crate::stats::{ENOUGH, RESAMPLES, median};
use crate::summary::{FigureSummary, HEADINGS, Row, Summary, Verdict};
use crate::{check, format};

/// The page. Fields named `…svg` and `plot…` are finished elements; all others are text that the template escapes.
#[derive(Template)]
#[template(path = "report.html")]
pub(super) struct Page<'a> {
    records: &'a Comparison,
    summary: &'a Summary,
    when: String,
    counted: usize,
    drivers: Vec<Driver>,
    sentences: Vec<(String, String)>,
    headline: Matrix,
    detail: Matrix,
    headings: [&'static str; 7],
    figures: Vec<Figure>,
    curves: Vec<Curves>,
    errors: Vec<String>,
    warnings: Vec<String>,
    checks: Option<Checks>,
    scenario: Option<Scenario>,
    question: &'static str,
    subject: String,
    machine: Vec<(String, String)>,
    command: String,
    enough: usize,
    resamples: usize,
}

/// A driver in the legend.
struct Driver {
    name: String,
    svg: String,
    mechanism: String,
}

/// Figures × drivers, a median and a verdict in each cell.
struct Matrix {
    rows: Vec<(String, Vec<Cell>)>,
}

struct Cell {
    value: String,
    verdict: String,
    /// Class of the style sheet: how much worse.
    shade: &'static str,
}

/// A figure's own section.
struct Figure {
    name: String,
    job: String,
    better: &'static str,
    unit: String,
    plot_runs: String,
    plot_order: String,
    rows: Vec<[String; 7]>,
}

/// The curves of a job.
struct Curves {
    job: String,
    plot_latency: String,
    plot_throughput: String,
}

/// Holds what a [`Page`] borrows.
pub(super) struct Source<'a> {
    comparison: &'a Comparison,
    summary: Summary,
    looks: Vec<Look>,
}

impl<'a> Source<'a> {
    pub(super) fn new(comparison: &'a Comparison) -> Self {
        let summary = Summary::new(comparison);
        let looks = Look::of_all(&summary.drivers);
        Self { comparison, summary, looks }
    }

    pub(super) fn page(&self) -> Page<'_> {
        let begin = &self.comparison.begin;
        let headline: Vec<&FigureSummary> = self.summary.figures.iter().filter(|figure| figure.headline).collect();
        let sentence = |figure: &&FigureSummary| (figure.name.clone(), words::sentence(figure, &self.summary.baseline));
        Page {
            records: self.comparison,
            summary: &self.summary,
            when: begin.started.replace('T', " ").replace('Z', " UTC"),
            counted: self.counted_rounds(),
            drivers: self.drivers(),
            sentences: headline.iter().map(sentence).collect(),
            headline: self.matrix(true),
            detail: self.matrix(false),
            headings: HEADINGS,
            figures: headline.iter().map(|figure| self.figure(figure)).collect(),
            curves: begin.jobs.iter().filter_map(|job| self.curves(&job.name)).collect(),
            errors: self.errors(),
            warnings: self.warnings(),
            checks: Checks::of(&begin.checks),
            scenario: Scenario::of(self.comparison),
            question: bench::question(begin),
            subject: bench::subject(begin),
            machine: facts(&begin.machine),
            command: begin.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            enough: ENOUGH,
            resamples: RESAMPLES,
        }
    }

    fn counted_rounds(&self) -> usize {
        let counted = self.comparison.measurements.iter().filter(|m| !m.warm_up);
        counted.map(|m| m.round).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Names, looks, and what each driver said it used (all it said, should it have changed its mind).
    fn drivers(&self) -> Vec<Driver> {
        let driver = |(name, look): (&String, &Look)| {
            let mut mechanisms: Vec<&str> = Vec::new();
            for measurement in self.comparison.measurements.iter().filter(|m| m.driver == *name) {
                if !mechanisms.contains(&measurement.mechanism.as_str()) {
                    mechanisms.push(&measurement.mechanism);
                }
            }
            Driver { name: name.clone(), svg: look.swatch(name), mechanism: mechanisms.join("; ") }
        };
        self.summary.drivers.iter().zip(&self.looks).map(driver).collect()
    }

    fn matrix(&self, headline: bool) -> Matrix {
        let rows = self.summary.figures.iter().filter(|figure| figure.headline == headline).map(|figure| {
            let cell = |driver: &String| match figure.rows.iter().find(|row| row.driver == *driver) {
                Some(row) => Cell {
                    value: format::number(row.value.median),
                    verdict: figure.verdict(row, &self.summary.baseline),
                    shade: if headline { shade(row) } else { "" },
                },
                None => Cell { value: "–".into(), verdict: "no value".into(), shade: "" },
            };
            (titled(&figure.name, &figure.unit), self.summary.drivers.iter().map(cell).collect())
        });
        Matrix { rows: rows.collect() }
    }

    fn figure(&self, figure: &FigureSummary) -> Figure {
        let strips: Vec<strip::Strip> = figure.rows.iter().filter_map(|row| self.strip(figure, row)).collect();
        let baseline = figure.rows.iter().find(|row| row.driver == self.summary.baseline);
        let drivers: Vec<(String, Look)> = self.summary.drivers.iter().cloned().zip(self.looks.clone()).collect();
        let height = strip::height(strips.len()).max(220.0);
        Figure {
            name: figure.name.clone(),
            job: figure.job.clone(),
            better: if figure.higher_is_better { "higher is better" } else { "lower is better" },
            unit: figure.unit.clone(),
            plot_runs: strip::draw(&figure.name, &figure.unit, &strips, baseline.map(|row| row.value.median)),
            plot_order: order::draw(&figure.name, &figure.unit, &drivers, &self.runs(figure), height),
            rows: figure.rows.iter().map(|row| figure.cells(row, &self.summary.baseline)).collect(),
        }
    }

    fn strip(&self, figure: &FigureSummary, row: &Row) -> Option<strip::Strip> {
        let driver = self.summary.drivers.iter().position(|name| *name == row.driver)?;
        let counted = self.runs(figure).into_iter().filter(|run| run.driver == driver && run.counted);
        let values = counted.map(|run| run.value).collect();
        Some(strip::Strip { name: row.driver.clone(), look: self.looks[driver], values, estimate: row.value })
    }

    /// All runs of the figure's job that have a value, in order.
    fn runs(&self, figure: &FigureSummary) -> Vec<order::Run> {
        let run = |m: &Measurement| {
            let driver = self.summary.drivers.iter().position(|name| *name == m.driver)?;
            let value = m.samples.iter().find(|sample| sample.figure == figure.name)?.value;
            Some(order::Run { driver, round: m.round, counted: !m.warm_up, value })
        };
        self.comparison.measurements.iter().filter(|m| m.job == figure.job).filter_map(run).collect()
    }

    /// Median over the counted rounds at each message size. `None` for a job without a curve.
    fn curves(&self, job: &str) -> Option<Curves> {
        let mut curves = Vec::new();
        for (driver, look) in self.summary.drivers.iter().zip(&self.looks) {
            let counted =
                self.comparison.measurements.iter().filter(|m| !m.warm_up && m.job == job && m.driver == *driver);
            let points = median_curve(counted.flat_map(|m| &m.samples));
            if !points.is_empty() {
                curves.push((driver, *look, points));
            }
        }
        let drawn = |title: &str, unit: &str, value: fn(&Point) -> f64| {
            let curve = |(name, look, points): &(&String, Look, Vec<Point>)| curve::Curve {
                name: (*name).clone(),
                look: *look,
                points: points.iter().map(|point| (point.bytes as f64, value(point))).collect(),
            };
            curve::draw(title, unit, &curves.iter().map(curve).collect::<Vec<_>>())
        };
        (!curves.is_empty()).then(|| Curves {
            job: job.to_owned(),
            plot_latency: drawn("One-way time", "µs", |point| point.micros),
            plot_throughput: drawn("Throughput", "Mb/s", Point::megabits),
        })
    }

    /// Causes other than the compared ones that may have made a result.
    fn warnings(&self) -> Vec<String> {
        let alarms = self.comparison.measurements.iter().filter(|m| !m.warm_up).flat_map(|m| {
            let end = m.played.iter().find_map(|line| if let Line::End(end) = line { Some(end) } else { None });
            let alarms = end.map_or(&[][..], |end| end.summary.alarms.as_slice());
            alarms.iter().map(move |alarm| format!("Round {}, {} under {}: {alarm}", m.round, m.job, m.driver))
        });
        check::warnings(&self.comparison.begin.checks).into_iter().chain(alarms).collect()
    }

    fn errors(&self) -> Vec<String> {
        let failed = self.comparison.measurements.iter().filter_map(|m| {
            let error = m.error.as_ref()?;
            Some(format!("Round {}, {} under {}: failed to {error}", m.round, m.job, m.driver))
        });
        let events = self.comparison.measurements.iter().flat_map(|m| {
            m.played.iter().filter_map(move |line| match line {
                Line::Event(Event { what, outcome: Outcome::Failed { reason }, .. }) => {
                    Some(format!("Round {}, {} under {}: {what}: failed to {reason}", m.round, m.job, m.driver))
                }
                _ => None,
            })
        });
        failed.chain(events).collect()
    }
}

/// The median time at each message size. A size of nothing or a time of nothing has no throughput, and no place.
fn median_curve<'a>(samples: impl Iterator<Item = &'a Sample>) -> Vec<Point> {
    let mut times: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for point in samples.flat_map(|sample| &sample.curve).filter(|point| point.bytes > 0 && point.micros > 0.0) {
        times.entry(point.bytes).or_default().push(point.micros);
    }
    times.into_iter().filter_map(|(bytes, times)| Some(Point { bytes, micros: median(&times)? })).collect()
}

/// The style sheet's class for how much worse a driver is.
fn shade(row: &Row) -> &'static str {
    let factor = row.ratio.map_or(1.0, |ratio| ratio.median.max(1.0 / ratio.median));
    match row.verdict {
        Verdict::Better => "better",
        Verdict::Worse if factor < 1.25 => "worse1",
        Verdict::Worse if factor < 2.0 => "worse2",
        Verdict::Worse => "worse3",
        _ => "",
    }
}

/// `TCP throughput, Gb/s`.
fn titled(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") }
}

/// Facts as a flat list: `cpu.model` → `…`.
fn facts(machine: &Value) -> Vec<(String, String)> {
    let mut list = Vec::new();
    flatten("", machine, &mut list);
    list
}

/// The depth is that of the JSON text, which `serde_json` limits to 128.
fn flatten(name: &str, value: &Value, list: &mut Vec<(String, String)>) {
    let below = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| flatten(&below(key), value, list)),
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            items.iter().enumerate().for_each(|(i, item)| flatten(&below(&(i + 1).to_string()), item, list));
        }
        Value::Array(items) => list.push((name.to_owned(), items.iter().map(plain).collect::<Vec<_>>().join(", "))),
        Value::Null => {}
        value => list.push((name.to_owned(), plain(value))),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A word as a POSIX shell wants it.
fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@%+".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_flattened() {
        let machine =
            serde_json::json!({"cpu": {"model": "X", "flags": ["a", "b"]}, "nics": [{"mtu": 1500}], "none": null});
        let facts = facts(&machine);
        let shown: Vec<(&str, &str)> = facts.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(shown, [("cpu.flags", "a, b"), ("cpu.model", "X"), ("nics.1.mtu", "1500")]);
    }

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        assert_eq!(["a=b", "it's", ""].map(quoted), ["a=b", r"'it'\''s'", "''"]);
    }
}
