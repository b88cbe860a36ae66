//! Whether links were what they were asked to be, as it was measured (`slipway verify`, and `--verify` of the commands that
//! run something).
//!
//! # The records
//! A measured path is one JSON object, a [`CheckedPath`]. `slipway verify --json` prints a list of them; `slipway run
//! --verify` leaves that list as `checks.json` in its folder; `slipway play` and `slipway compare` keep it as `checks` in
//! the first line of their records ([`crate::play::Begin::checks`], [`crate::record::Begin::checks`]), from which their
//! reports are made.
//!
//! ```json
//! {"from": "n1", "to": "n2", "network": "net", "mechanism": "wire", "packets": 1000,
//!  "checks": [{"what": "delay", "asked": 0.02, "measured": 0.02011, "within": [0.019999, 0.0207], "unit": "s", "verdict": "met"}],
//!  "delays": {"median": 0.02011, "p99": 0.02025, "worst": 0.0205}}
//! ```
//!
//! # Versions
//! As in [`crate::record`]: fields may be added.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::markdown as table;

/// From one node to another: what was asked, and what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckedPath {
    /// Under which of the things compared ([`crate::record::Measurement::driver`]). Empty where nothing is compared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub under: String,
    /// The node that sent.
    pub from: String,
    /// The node that received.
    pub to: String,
    /// The gateways between them, in the order of the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
    /// The network between them; with gateways, all on the way.
    pub network: String,
    /// The parts that make the conditions: the sender's egress, and the receiver's ingress where it has any.
    pub mechanism: String,
    /// Numbered packets sent.
    pub packets: u32,
    /// One for each condition, and always loss.
    pub checks: Vec<Check>,
    /// One-way delays of the packets that arrived; `None` where none did.
    pub delays: Option<Spread>,
}

/// One condition of a path: asked, measured, and whether that is it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// `delay`, `jitter`, `loss`, `duplicate`, `reorder`, `rate`. Corrupt packets count as lost: receivers drop them.
    pub what: String,
    /// The asked value as the mechanism in use makes it, in `unit`.
    pub asked: f64,
    /// In `unit`.
    pub measured: f64,
    /// The tolerance: least and most that would still be as asked, in `unit`.
    pub within: (f64, f64),
    /// `s`, `bit/s`, or empty for a share from 0 to 1.
    pub unit: String,
    /// The verdict.
    pub verdict: Verdict,
    /// A note for the reader, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The verdict on a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The condition holds.
    Met,
    /// Not as asked.
    Off,
    /// It could not be measured; the note says why.
    Unknown,
}

/// The distribution of values, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half are no greater.
    pub median: f64,
    /// 99 of 100 are no greater.
    pub p99: f64,
    /// None is greater.
    pub worst: f64,
}

/// Headings for [`rows`].
pub const HEADINGS: [&str; 7] = ["path", "condition", "expected", "measured", "as asked within", "by", "verdict"];

impl CheckedPath {
    /// False where something is not as asked.
    #[must_use]
    pub fn is_as_asked(&self) -> bool {
        self.checks.iter().all(|check| check.verdict != Verdict::Off)
    }

    /// `n1->n2`, and under what.
    fn name(&self) -> String {
        let Self { under, from, to, via, .. } = self;
        let nodes: Vec<&str> = std::iter::once(from).chain(via).chain([to]).map(String::as_str).collect();
        let way = nodes.join("->");
        if under.is_empty() { way } else { format!("{way} ({under})") }
    }
}

impl Check {
    /// A value of this check in a unit that people read.
    fn amount(&self, value: f64) -> String {
        match self.unit.as_str() {
            "s" => format!("{:.3} ms", value * 1e3),
            "bit/s" => format!("{:.3} Mbit/s", value / 1e6),
            _ => format!("{:.3} %", value * 1e2),
        }
    }

    fn tolerance(&self) -> String {
        format!("{} – {}", self.amount(self.within.0), self.amount(self.within.1))
    }

    fn verdict(&self) -> String {
        let word = match self.verdict {
            Verdict::Met => "as asked",
            Verdict::Off => "NOT AS ASKED",
            Verdict::Unknown => "not judged",
        };
        self.note.as_ref().map_or_else(|| word.to_owned(), |note| format!("{word}: {note}"))
    }
}

/// The cells of every check under [`HEADINGS`].
pub fn rows(paths: &[CheckedPath]) -> impl Iterator<Item = [String; 7]> {
    let all = paths.iter().flat_map(|path| path.checks.iter().map(move |check| (path, check)));
    all.map(|(path, check)| {
        [
            path.name(),
            check.what.clone(),
            check.amount(check.asked),
            check.amount(check.measured),
            check.tolerance(),
            path.mechanism.clone(),
            check.verdict(),
        ]
    })
}

/// A sentence for every check that is not as asked.
#[must_use]
pub fn warnings(paths: &[CheckedPath]) -> Vec<String> {
    let all = paths.iter().flat_map(|path| path.checks.iter().map(move |check| (path, check)));
    let off = all.filter(|(_, check)| check.verdict == Verdict::Off);
    off.map(|(path, check)| {
        format!(
            "{} of {} was not as asked: {} asked, {} measured; {} would do",
            check.what,
            path.name(),
            check.amount(check.asked),
            check.amount(check.measured),
            check.tolerance()
        )
    })
    .collect()
}

/// All checks as a table in Markdown, and their count.
#[must_use]
pub fn markdown(paths: &[CheckedPath]) -> String {
    let mut text = table::row(&HEADINGS.map(str::to_owned));
    text += "| --- | --- | ---: | ---: | ---: | --- | --- |\n";
    text.extend(rows(paths).map(|cells| table::row(&cells)));
    format!("{text}\n{}\n", Tally::of(paths))
}

/// How many checks came out how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Paths measured.
    pub paths: usize,
    /// The number of checks that met their condition.
    pub met: usize,
    /// Not as asked.
    pub off: usize,
    /// Not known.
    pub unknown: usize,
}

impl Tally {
    /// Counts.
    #[must_use]
    pub fn of(paths: &[CheckedPath]) -> Self {
        let count = |verdict: Verdict| {
            paths.iter().flat_map(|path| &path.checks).filter(|check| check.verdict == verdict).count()
        };
        let (met, off, unknown) = (count(Verdict::Met), count(Verdict::Off), count(Verdict::Unknown));
        Self { paths: paths.len(), met, off, unknown }
    }
}

impl fmt::Display for Tally {
    /// `12 checks on 4 paths: 11 as asked, 1 not, 0 not judged`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { paths, met, off, unknown } = self;
        let all = met + off + unknown;
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        write!(
            f,
            "{all} check{} on {paths} path{}: {met} as asked, {off} not, {unknown} not judged",
            plural(all),
            plural(*paths)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(under: &str, verdict: Verdict) -> CheckedPath {
        let check = Check {
            what: "delay".to_owned(),
            asked: 0.02,
            measured: 0.025,
            within: (0.02, 0.0207),
            unit: "s".to_owned(),
            verdict,
            note: None,
        };
        CheckedPath {
            under: under.to_owned(),
            from: "n1".to_owned(),
            to: "n2".to_owned(),
            via: Vec::new(),
            network: "net".to_owned(),
            mechanism: "wire".to_owned(),
            packets: 1000,
            checks: vec![check],
            delays: None,
        }
    }

    #[test]
    fn only_what_is_off_is_warned_of() {
        let paths = [path("", Verdict::Met), path("bridge, far", Verdict::Off), path("", Verdict::Unknown)];
        let warnings = warnings(&paths);
        assert_eq!(
            warnings,
            [
                "delay of n1->n2 (bridge, far) was not as asked: 20.000 ms asked, 25.000 ms measured; 20.000 ms – 20.700 ms would do"
            ]
        );
        assert_eq!(Tally::of(&paths).to_string(), "3 checks on 3 paths: 1 as asked, 1 not, 1 not judged");
        assert_eq!(paths.map(|path| path.is_as_asked()), [true, false, true]);
    }

    #[test]
    fn a_table_has_a_row_for_each_check() {
        let text = markdown(&[path("a|b", Verdict::Off)]);
        assert_eq!(
            text.lines().nth(2),
            Some(r"| n1->n2 (a\|b) | delay | 20.000 ms | 25.000 ms | 20.000 ms – 20.700 ms | wire | NOT AS ASKED |")
        );
    }

    #[test]
    fn what_is_written_is_read() {
        let written = serde_json::to_string(&path("far", Verdict::Met)).expect("plain data");
        assert_eq!(serde_json::from_str::<CheckedPath>(&written).expect("readable"), path("far", Verdict::Met));
        assert!(!serde_json::to_string(&path("", Verdict::Met)).expect("plain data").contains("under"));
    }
}
