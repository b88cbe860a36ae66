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
    /// Titles and pictures.
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
        let mut shown: Vec<&&Measurement> = played.iter().filter(|m| Some(m.round) == last).collect();
        // Runs are in the order in which they were drawn; people look for that of the legend.
        let drivers = comparison.drivers();
        shown.sort_by_key(|m| drivers.iter().position(|driver| *driver == m.driver));
        Some(Self {
            words: format!(
                "{}, seed {}: {} events over {:.1} s, from the beginning beside every run, which it ended with; then the lab was put back.",
                scenario.file,
                scenario.seed,
                scenario.events,
                scenario.length as f64 / 1e9
            ),
            pictures: shown
                .into_iter()
                .take(MOST_PICTURES)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_checked_and_played_is_on_the_page_as_text() {
        let records = r#"{"type":"begin","format":"slipway-compare/1","version":"0","lab":"l","lab_sha256":"","drivers":["bridge"],"jobs":[],"repeat":1,"warm_up":0,"seed":1,"command":[],"machine":null,"started":"","checks":[{"under":"<far>","from":"n1","to":"n2","network":"net","mechanism":"wire","packets":10,"checks":[{"what":"delay","asked":0.02,"measured":0.03,"within":[0.02,0.021],"unit":"s","verdict":"off"}],"delays":null}],"scenario":{"file":"<b>.yaml","sha256":"","seed":7,"events":1,"length":1000000000,"nodes":["<n1>"]}}
{"type":"measurement","round":1,"warm_up":false,"driver":"bridge","job":"j","mechanism":"","started":"","seconds":1.0,"samples":[],"played":[{"type":"event","number":0,"due":100,"begun":110,"done":120,"late":20,"what":"cut <n1>","nodes":[0],"kind":"cut","outcome":"failed","reason":"reach <it>"},{"type":"end","at":200,"finished":"","why":"the job has ended","summary":{"done":0,"failed":1,"skipped":0,"unplayed":0,"lateness":null,"alarms":["<late>"]}}]}
"#;
        let comparison = Comparison::read(records).expect("records");
        let html = crate::report::html(&comparison);
        for said in [
            "delay of n1-&#62;n2 (&#60;far&#62;) was not as asked: 20.000 ms asked, 30.000 ms measured",
            "1 check on 1 path: 0 as asked, 1 not, 0 not judged",
            "Round 1, j under bridge: &#60;late&#62;",
            "cut &#60;n1&#62;: failed to reach &#60;it&#62;",
            "&#60;b&#62;.yaml, seed 7",
        ] {
            assert!(html.contains(said), "{said} is not in {html}");
        }
        for markup in ["<far>", "<late>", "<b>.yaml", "<n1>", "<it>"] {
            assert!(!html.contains(markup), "{markup}");
        }
    }
}
