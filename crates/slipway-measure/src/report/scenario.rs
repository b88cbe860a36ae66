//! The section of a comparison's page that says what was played beside the jobs.

use super::timeline;
use crate::play::{End, Line};
use crate::record::{Comparison, Measurement};

/// More pictures than these say nothing new.
const MOST_PICTURES: usize = 12;
/// More runs than these are not listed one by one.
const MOST_LISTED: usize = 500;

/// The section.
pub(super) struct Scenario {
    pub(super) words: String,
    /// What a picture is of, and the picture.
    pub(super) pictures: Vec<(String, String)>,
    pub(super) headings: [&'static str; 7],
    pub(super) rows: Vec<[String; 7]>,
}

impl Scenario {
    /// `None` where nothing was played.
    pub(super) fn of(comparison: &Comparison) -> Option<Self> {
        let scenario = comparison.begin.scenario.as_ref()?;
        let played: Vec<&Measurement> = comparison.measurements.iter().filter(|m| !m.played.is_empty()).collect();
        // The last round of each: what went before it went the same way, or the table says otherwise.
        let last = played.iter().map(|m| m.round).max();
        let shown = played.iter().filter(|m| Some(m.round) == last).take(MOST_PICTURES);
        Some(Self {
            words: format!(
                "{}, seed {}: {} events over {:.1} s, from the beginning beside every run, which it ended with; then the lab was put back.",
                scenario.file,
                scenario.seed,
                scenario.events,
                scenario.length as f64 / 1e9
            ),
            pictures: shown
                .map(|m| {
                    let title = format!("{} under {}, round {}", m.job, m.driver, m.round);
                    (title, timeline::picture(&scenario.nodes, &m.played))
                })
                .collect(),
            headings: ["round", "job", "under", "took effect", "failed", "not played", "lateness"],
            rows: played.iter().take(MOST_LISTED).filter_map(|m| row(m)).collect(),
        })
    }
}

fn row(measurement: &Measurement) -> Option<[String; 7]> {
    let summary = measurement.played.iter().find_map(|line| match line {
        Line::End(End { summary, .. }) => Some(summary),
        _ => None,
    })?;
    Some([
        measurement.round.to_string(),
        measurement.job.clone(),
        measurement.driver.clone(),
        summary.done.to_string(),
        summary.failed.to_string(),
        summary.unplayed.to_string(),
        timeline::lateness(summary),
    ])
}
