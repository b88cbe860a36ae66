//! Designs that search.

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};

use super::MOST;
use crate::file::{Bayesian, Evolution};
use crate::model::{Constraint, Design, Method, Objective, Search};
use crate::score;

/// Largest batch: its points and results are one message.
const LARGEST: u64 = 10_000;
/// First points of a Bayesian search where the file gives none.
const INITIAL: u64 = 10;

pub(super) fn generations(method: Method, written: &Spanned<Evolution>, report: &mut Report) -> Design {
    let Evolution { population, generations, failed } = written.value;
    let points = population.checked_mul(generations).filter(|points| (1..=MOST).contains(points));
    if !(2..=LARGEST).contains(&population) {
        report.add(written.at, format!("a population of {population}"), format!("write 2 to {LARGEST}"));
    } else if points.is_none() {
        report.add(written.at, format!("{generations} generations"), format!("write 1 to {}", MOST / population));
    }
    Design::Search(Search { method, first: population, batch: population, points: points.unwrap_or(1), failed })
}

pub(super) fn bayesian(written: &Spanned<Bayesian>, report: &mut Report) -> Design {
    let Bayesian { points, initial, at_once, failed } = written.value;
    let (first, batch) = (initial.unwrap_or(INITIAL.min(points)), at_once.unwrap_or(1));
    // Each choice inverts a matrix with a row for each point.
    if !(1..=LARGEST).contains(&points) {
        report.add(written.at, format!("a Bayesian search of {points} points"), format!("write 1 to {LARGEST}"));
    } else if !(1..=points).contains(&first) {
        report.add(written.at, format!("{first} first points of {points}"), format!("write 1 to {points}"));
    } else if !(1..=points).contains(&batch) {
        report.add(written.at, format!("{batch} points at once of {points}"), format!("write 1 to {points}"));
    }
    Design::Search(Search { method: Method::Bayesian, first, batch: batch.max(1), points, failed })
}

/// Whether the method fits objectives and constraints.
pub(super) fn check(
    search: &Search,
    objectives: &[Objective],
    constraints: &[Constraint],
    at: Span,
    report: &mut Report,
) {
    let word = search.method.word();
    let count = score::count(objectives);
    if count == 0 && report.is_empty() {
        let help = "add `objectives:` with an output, such as `cost: minimize`";
        report.add(at, format!("`{word}` has nothing to search for"), help);
    } else if count > 1 && !search.method.takes_several() {
        let help = "give all of them one `group`, or take the design `nsga2`";
        report.add(at, format!("`{word}` takes one objective, and there are {count}"), help);
    }
    if search.method == Method::Bayesian && !constraints.is_empty() {
        report.add(at, "`bayesian` takes no constraints", "make them objectives, or take the design `nsga2`");
    }
}
