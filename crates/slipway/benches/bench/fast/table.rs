//! The table of a group: a row for each figure, a column for each network, and the ratios that were promised.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use slipway_measure::format;
use slipway_measure::probe::Sample;
use slipway_measure::stats::{Estimate, Pair};

use super::site::Site;
use crate::common::{order, rounds};

/// What came of measuring something once.
pub(super) type Measured = Result<Vec<Sample>, String>;

/// Something to measure, on every site.
pub(super) struct Task<'a> {
    pub(super) name: &'a str,
    pub(super) measure: Box<dyn Fn(&Site<'_>) -> Measured + 'a>,
}

impl<'a> Task<'a> {
    pub(super) fn new(name: &'a str, measure: impl Fn(&Site<'_>) -> Measured + 'a) -> Self {
        Self { name, measure: Box::new(measure) }
    }
}

/// A figure: by site, by round.
struct Row {
    name: String,
    unit: String,
    values: Vec<BTreeMap<u32, f64>>,
}

/// Measures all tasks on all sites, in turn, `wanted` times after a round that is not counted, and prints the table. `ratios` are of
/// the first's to the second's figures, paired by round; one whose sites are not there is left out. What fails is said, and missing.
pub(super) fn table(title: &str, wanted: u32, sites: &[Site<'_>], tasks: &[Task<'_>], ratios: &[[&str; 2]]) {
    let mut rows: Vec<Row> = Vec::new();
    let mut failures = String::new();
    for round in rounds(wanted) {
        for task in tasks {
            for at in order(round, sites.len()) {
                let (site, begun) = (&sites[at], Instant::now());
                let measured = (task.measure)(site);
                let took = begun.elapsed().as_secs_f64();
                let said = match &measured {
                    Ok(samples) => samples
                        .iter()
                        .map(|one| format!("{} {:.4}", one.figure, one.value))
                        .collect::<Vec<_>>()
                        .join("; "),
                    Err(error) => format!("failed: {error}"),
                };
                eprintln!("{title}: round {round}, {}, {}: {took:.2} s: {said}", task.name, site.name);
                match measured {
                    Ok(samples) => {
                        for sample in samples.iter().filter(|_| round > 0) {
                            note(&mut rows, sample, at, round, sites.len());
                        }
                    }
                    Err(error) => {
                        let _ = writeln!(failures, "- round {round}, {}, {}: {error}", task.name, site.name);
                    }
                }
            }
        }
    }
    let at = |name: &str| sites.iter().position(|site| site.name == name);
    let ratios: Vec<(String, usize, usize)> =
        ratios.iter().filter_map(|[one, other]| Some((format!("{one} : {other}"), at(one)?, at(other)?))).collect();
    println!("### {title}\n\n{}", markdown(&rows, sites, &ratios));
    println!("Medians of {} rounds (95 % intervals).\n", rounds(wanted).filter(|&round| round > 0).count());
    if !failures.is_empty() {
        println!("Not counted, for it failed:\n\n{failures}");
    }
}

fn note(rows: &mut Vec<Row>, sample: &Sample, at: usize, round: u32, sites: usize) {
    let known = rows.iter().position(|row| row.name == sample.figure);
    let number = known.unwrap_or_else(|| {
        let values = vec![BTreeMap::new(); sites];
        rows.push(Row { name: sample.figure.clone(), unit: sample.unit.clone(), values });
        rows.len() - 1
    });
    rows[number].values[at].insert(round, sample.value);
}

fn markdown(rows: &[Row], sites: &[Site<'_>], ratios: &[(String, usize, usize)]) -> String {
    let mut text = String::from("| |");
    for name in sites.iter().map(|site| site.name).chain(ratios.iter().map(|(name, ..)| name.as_str())) {
        let _ = write!(text, " {name} |");
    }
    let _ = writeln!(text, "\n| --- |{}", " ---: |".repeat(sites.len() + ratios.len()));
    for row in rows {
        let unit = if row.unit.is_empty() { String::new() } else { format!(" ({})", row.unit) };
        let _ = write!(text, "| {}{unit} |", row.name);
        for values in &row.values {
            let list: Vec<f64> = values.values().copied().collect();
            let _ = write!(text, " {} |", cell(Estimate::of_median(&list, 1), format::number));
        }
        for (_, one, other) in ratios {
            let pairs: Vec<Pair> = row.values[*one]
                .iter()
                .filter_map(|(round, &value)| Some(Pair { value, baseline: *row.values[*other].get(round)? }))
                .collect();
            let _ = write!(text, " {} |", cell(Estimate::of_ratio(&pairs, 1), format::ratio));
        }
        text.push('\n');
    }
    text
}

fn cell(estimate: Option<Estimate>, shown: fn(f64) -> String) -> String {
    estimate.map_or_else(|| "–".to_owned(), |one| format!("{} ({})", shown(one.median), format::interval(&one)))
}
