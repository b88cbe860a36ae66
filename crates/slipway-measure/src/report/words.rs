//! A figure in one sentence.

use crate::format;
use crate::summary::{FigureSummary, Row, Verdict};

/// `Against host’s 17.2 Gb/s, vxlan is 2.12× slower (8.10 Gb/s); bridge and macvlan are equal within noise.`
pub(super) fn sentence(figure: &FigureSummary, baseline: &str) -> String {
    let with = |verdicts: &[Verdict]| -> Vec<&Row> {
        let mut rows: Vec<&Row> = figure.rows.iter().filter(|row| verdicts.contains(&row.verdict)).collect();
        // The greatest difference first.
        rows.sort_by(|a, b| distance(b).total_cmp(&distance(a)));
        rows
    };
    let told = |row: &Row| {
        let difference = row.ratio.map_or_else(String::new, |ratio| figure.difference(ratio.median));
        format!("{} is {difference} ({})", row.driver, format::quantity(row.value.median, &figure.unit))
    };
    let names = |rows: &[&Row]| list(&rows.iter().map(|row| row.driver.clone()).collect::<Vec<_>>());
    let is = |rows: &[&Row]| if rows.len() == 1 { "is" } else { "are" };

    let mut clauses = Vec::new();
    let different = with(&[Verdict::Worse, Verdict::Better]);
    if !different.is_empty() {
        clauses.push(list(&different.into_iter().map(told).collect::<Vec<_>>()));
    }
    let equal = with(&[Verdict::WithinNoise]);
    if !equal.is_empty() {
        clauses.push(format!("{} {} equal within noise", names(&equal), is(&equal)));
    }
    let unsure = with(&[Verdict::TooFew]);
    if !unsure.is_empty() {
        let told: Vec<String> = unsure.into_iter().map(told).collect();
        clauses.push(format!("{}, from too few rounds to be sure", list(&told)));
    }
    let Some(base) = figure.rows.iter().find(|row| row.driver == baseline) else {
        return format!("{baseline} has no value, so there is nothing to compare with.");
    };
    let base = format::quantity(base.value.median, &figure.unit);
    if clauses.is_empty() {
        return format!("{baseline}: {base}.");
    }
    format!("Against {baseline}’s {base}, {}.", clauses.join("; "))
}

/// How far a ratio is from 1, whichever way.
fn distance(row: &Row) -> f64 {
    row.ratio.map_or(0.0, |ratio| ratio.median.ln().abs())
}

/// `a`, `a and b`, `a, b and c`.
fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
