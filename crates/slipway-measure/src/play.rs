//! The log of a played scenario: when each event was due, and when it really took effect.
//!
//! # The file
//! `events.jsonl`: one JSON object a line, each written in one piece as it happens, so that a player that is killed leaves
//! all that it did. Each has a `type`:
//!
//! | `type` | when | holds |
//! | --- | --- | --- |
//! | `begin` | first line, once | [`Begin`]: the scenario, its seed and schedule, the machine |
//! | `begun` | right before an event acts | [`Begun`] |
//! | `event` | when it has acted, or will not | [`Event`] |
//! | `node` | when a node ended although the scenario did not say so | [`NodeNews`] |
//! | `program` | when a program ended that an event had started | [`Program`] |
//! | `clock` | when the scenario's clock stopped or went on | [`Clock`] |
//! | `load` | every second | [`Load`] |
//! | `restored` | when a change was taken back because the playing was over | [`Restored`] |
//! | `clocks` | with several machines: before the first event, every ten seconds, and at the end | [`Clocks`] |
//! | `end` | last line; absent while it plays, and after the player was killed | [`End`] |
//!
//! Times called `at`, `due`, `begun` and `done` are nanoseconds of the scenario's clock, which begins with the scenario
//! and stands still while it is paused.
//!
//! # Versions
//! The format is that of [`crate::record`].

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use slipway_lab::id::{List, NodeId};

use crate::check::CheckedPath;
use crate::stats;

/// The format that this crate writes and reads.
pub const FORMAT: &str = "slipway-play/1";

/// The first line: scenario, machine and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// [`FORMAT`].
    pub format: String,
    /// The version of Slipway.
    pub version: String,
    /// The lab's name.
    pub lab: String,
    /// Names of the lab's nodes, in order.
    pub nodes: List<NodeId, String>,
    /// The file that the scenario is from, or the lab whose own it is.
    pub scenario: String,
    /// SHA-256 of that file, hexadecimal; of a lab's own scenario, that of its resolved form as JSON.
    pub scenario_sha256: String,
    /// SHA-256 of the schedule as JSON, hexadecimal: equal schedules, equal hashes.
    pub schedule_sha256: String,
    /// The seed of the schedule.
    pub seed: u64,
    /// The number of its events.
    pub events: usize,
    /// The end of the scenario, in nanoseconds.
    pub length: u64,
    /// The command line (argv).
    pub command: Vec<String>,
    /// Facts about the machine.
    pub machine: Value,
    /// When the scenario's clock began. RFC 3339 with nanoseconds, UTC.
    pub started: String,
    /// The checks of links before it, where they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckedPath>,
}

/// An event is about to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The event's number in the schedule.
    pub number: usize,
    /// Time on the scenario's clock, in nanoseconds.
    pub at: u64,
}

/// An event that has acted, or will not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The event's number in the schedule, from 0.
    pub number: usize,
    /// The time when it was due.
    pub due: u64,
    /// When it began to act. `None`: it did not.
    pub begun: Option<u64>,
    /// The time when it had acted.
    pub done: Option<u64>,
    /// The time from when it was due until it had taken effect. For events that take time by nature (a graceful kill,
    /// the start of a node or program), until it began.
    pub late: Option<u64>,
    /// The event in words.
    pub what: String,
    /// The nodes that it is about.
    pub nodes: Vec<NodeId>,
    /// A word for what it does, the same for like events.
    pub kind: String,
    /// The event whose change it takes back, where that is what it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restores: Option<usize>,
    /// The machines that carried it out, of a lab over several. The event's own times are then the first `begun`, and the
    /// last `done` and `late`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<OnMachine>,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A machine's part of an event. Times are nanoseconds of the scenario's clock, as that machine has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnMachine {
    /// The machine's name.
    pub machine: String,
    /// When it began to act there. `None`: it did not.
    pub begun: Option<u64>,
    /// The time when it had acted on that machine.
    pub done: Option<u64>,
    /// How late it was there, as [`Event::late`].
    pub late: Option<u64>,
}

/// The outcome of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It took effect; `note` says where not wholly.
    Done {
        /// A note for the reader, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The event failed.
    Failed {
        /// The reason.
        reason: String,
    },
    /// There was nothing for it to do.
    Skipped {
        /// The reason.
        reason: String,
    },
    /// Its time had not come when the playing ended.
    Unplayed {
        /// The reason of the end.
        reason: String,
    },
}

/// A node's state changed, and it was not the scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeNews {
    /// Time on the scenario's clock, in nanoseconds.
    pub at: u64,
    /// The node's number.
    pub node: NodeId,
    /// The node's name.
    pub name: String,
    /// The change of the node.
    pub change: Change,
}

/// A change of a node that the scenario did not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The node died by itself.
    Died,
    /// Somebody stopped or killed it by hand.
    Stopped,
}

/// A program that an event had started has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Time on the scenario's clock, in nanoseconds.
    pub at: u64,
    /// The event.
    pub number: usize,
    /// The node.
    pub node: String,
    /// The exit code, as a shell gives it.
    pub code: u8,
}

/// The scenario's clock stopped or went on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The scenario's time.
    pub at: u64,
    /// RFC 3339 with nanoseconds, UTC.
    pub wall: String,
    /// True if the clock runs from here on.
    pub goes: bool,
    /// The reason.
    pub why: String,
}

/// How busy the machine was since the line before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Time on the scenario's clock, in nanoseconds.
    pub at: u64,
    /// Share of processor time that was not idle, 0 to 1.
    pub busy: f64,
    /// The machine, of a lab over several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

/// How far a machine's clock has moved from the coordinator's since the scenario began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// Time on the scenario's clock, in nanoseconds.
    pub at: u64,
    /// The machine.
    pub machine: String,
    /// Its clock less the coordinator's, in nanoseconds. Zero when the scenario begins: the coordinator told it the
    /// beginning on its own clock.
    pub offset: i64,
    /// How far the true offset can be from that, in nanoseconds.
    pub uncertainty: u64,
}

/// A change was taken back because the playing was over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Time on the scenario's clock, in nanoseconds.
    pub at: u64,
    /// The event that had made it.
    pub number: usize,
    /// The reason of the failure, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The machine, of a lab over several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

/// The last line: the end of the playing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// When, on the scenario's clock.
    pub at: u64,
    /// RFC 3339 with nanoseconds, UTC.
    pub finished: String,
    /// Why: `the scenario is over`, `the job has ended`, `interrupted`.
    pub why: String,
    /// Counts and lateness of all events.
    pub summary: Summary,
}

/// Any line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// The first.
    Begin(Begin),
    /// See there.
    Begun(Begun),
    /// See there.
    Event(Event),
    /// See there.
    Node(NodeNews),
    /// See there.
    Program(Program),
    /// See there.
    Clock(Clock),
    /// See there.
    Load(Load),
    /// See there.
    Restored(Restored),
    /// See there.
    Clocks(Clocks),
    /// The last.
    End(End),
    /// Of a later version: passed over.
    #[serde(other, skip_serializing)]
    Unknown,
}

impl Line {
    /// The line's time, where it has one.
    #[must_use]
    pub fn at(&self) -> Option<u64> {
        match self {
            Self::Begin(_) | Self::Unknown => None,
            Self::Begun(Begun { at, .. })
            | Self::Node(NodeNews { at, .. })
            | Self::Program(Program { at, .. })
            | Self::Clock(Clock { at, .. })
            | Self::Load(Load { at, .. })
            | Self::Restored(Restored { at, .. })
            | Self::Clocks(Clocks { at, .. })
            | Self::End(End { at, .. }) => Some(*at),
            Self::Event(event) => event.done.or(event.begun),
        }
    }

    /// Writes the line in one piece.
    pub fn write(&self, mut file: impl Write) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        file.write_all(&text)
    }
}

/// A scenario as it was played.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// The first line: the scenario that was played.
    pub begin: Begin,
    /// Everything after the first line, in order.
    pub lines: Vec<Line>,
}

/// The reason why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// A line is not what it should be.
    #[error("read line {line} of the scenario's log: {source}\nHint: the file was changed or damaged")]
    Line {
        /// From 1.
        line: usize,
        /// The fault of the line.
        source: serde_json::Error,
    },
    /// The first line is not the beginning of a log of this format.
    #[error(
        "read the scenario's log: its first line is not the beginning of one in format {FORMAT}\nHint: give the `events.jsonl` that this version of `slipway play` wrote"
    )]
    NoBegin,
}

impl Played {
    /// Reads the text of an `events.jsonl`. A last line without a line end was cut by a kill while it was written; it is
    /// left out.
    pub fn read(text: &str) -> Result<Self, PlayError> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = Vec::new();
        for (number, line) in whole.lines().enumerate() {
            lines.push(serde_json::from_str(line).map_err(|source| PlayError::Line { line: number + 1, source })?);
        }
        let mut lines = lines.into_iter();
        match lines.next() {
            Some(Line::Begin(begin)) if begin.format == FORMAT => Ok(Self { begin, lines: lines.collect() }),
            _ => Err(PlayError::NoBegin),
        }
    }

    /// The end; `None` while it plays, and after the player was killed. Lines after an end come from a later
    /// continuation.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        match self.lines.last() {
            Some(Line::End(end)) => Some(end),
            _ => None,
        }
    }

    /// Events that have acted or will not, in the order in which that became known.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.lines.iter().filter_map(|line| if let Line::Event(event) = line { Some(event) } else { None })
    }

    /// Events that were about to act when the player was killed.
    #[must_use]
    pub fn unfinished(&self) -> Vec<usize> {
        let begun =
            self.lines.iter().filter_map(|line| if let Line::Begun(begun) = line { Some(begun.number) } else { None });
        begun.filter(|number| !self.events().any(|event| event.number == *number)).collect()
    }

    /// The scenario's clock as far as the log knows it.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.lines.iter().filter_map(Line::at).max().unwrap_or(0)
    }
}

/// Counts and lateness of a whole playing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Events that took effect.
    pub done: usize,
    /// Events that were tried in vain.
    pub failed: usize,
    /// Events that had nothing to do.
    pub skipped: usize,
    /// Events whose time had not come.
    pub unplayed: usize,
    /// How late events were. `None` where none took effect.
    pub lateness: Option<Lateness>,
    /// Warnings to read before you trust the result.
    pub alarms: Vec<String>,
}

/// How late events were, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    /// Half of them were no later.
    pub p50: u64,
    /// 90 % of them were no later.
    pub p90: u64,
    /// 99 % of them were no later.
    pub p99: u64,
    /// None was later.
    pub max: u64,
}

/// Above this, events are late: what an idle machine keeps with 1,000 events a minute, nanoseconds at the 99th percentile.
pub const LATE: u64 = 5_000_000;

/// A machine that is busier than this for a second has no time to spare. Share of its processors' time.
pub const SATURATED: f64 = 0.95;

impl Lateness {
    /// `None` of nothing. Percentiles by nearest rank: each is a lateness that occurred.
    #[must_use]
    pub fn of(mut late: Vec<u64>) -> Option<Self> {
        late.sort_unstable();
        let rank = |percent: usize| late.get((late.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        Some(Self { p50: rank(50)?, p90: rank(90)?, p99: rank(99)?, max: *late.last()? })
    }
}

impl Summary {
    /// Of what was played so far, with alarms of what cannot be seen in the log (`more`).
    #[must_use]
    pub fn of<'a>(lines: impl Iterator<Item = &'a Line> + Clone, more: Vec<String>) -> Self {
        let events = lines.clone().filter_map(|line| if let Line::Event(event) = line { Some(event) } else { None });
        let count = |which: fn(&Outcome) -> bool| events.clone().filter(|event| which(&event.outcome)).count();
        let lateness = Lateness::of(events.clone().filter_map(|event| event.late).collect());
        let loads: Vec<f64> =
            lines.filter_map(|line| if let Line::Load(load) = line { Some(load.busy) } else { None }).collect();
        let mut alarms = more;
        if let Some(late) = lateness.filter(|late| late.p99 > LATE) {
            alarms.push(format!(
                "events were late: one in a hundred by {:.1} ms or more, at most {:.1} ms",
                milliseconds(late.p99),
                milliseconds(late.max)
            ));
        }
        let saturated = loads.iter().filter(|&&busy| busy > SATURATED).count();
        if saturated > 0 {
            let median = stats::median(&loads).unwrap_or(0.0);
            alarms.push(format!(
                "the machine's processors had no time to spare in {saturated} of {} seconds (median {:.0} % busy): conditions may have been made of the shortage",
                loads.len(),
                median * 100.0
            ));
        }
        Self {
            done: count(|outcome| matches!(outcome, Outcome::Done { .. })),
            failed: count(|outcome| matches!(outcome, Outcome::Failed { .. })),
            skipped: count(|outcome| matches!(outcome, Outcome::Skipped { .. })),
            unplayed: count(|outcome| matches!(outcome, Outcome::Unplayed { .. })),
            lateness,
            alarms,
        }
    }
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin() -> Line {
        Line::Begin(Begin {
            format: FORMAT.to_owned(),
            version: "0.1.0".to_owned(),
            lab: "demo".to_owned(),
            nodes: vec!["n1".to_owned()].into(),
            scenario: "s.yaml".to_owned(),
            scenario_sha256: String::new(),
            schedule_sha256: String::new(),
            seed: 7,
            events: 2,
            length: 10,
            command: Vec::new(),
            machine: Value::Null,
            started: "2026-11-21T12:00:00.000000000Z".to_owned(),
            checks: Vec::new(),
        })
    }

    fn event(number: usize, late: u64) -> Line {
        Line::Event(Event {
            number,
            due: 5,
            begun: Some(5),
            done: Some(5 + late),
            late: Some(late),
            what: "cut n1:eth0".to_owned(),
            nodes: vec![NodeId(0)],
            kind: "cut".to_owned(),
            restores: None,
            machines: Vec::new(),
            outcome: Outcome::Done { note: None },
        })
    }

    #[test]
    fn a_log_that_was_cut_short_is_read_up_to_there() {
        let mut text = Vec::new();
        for line in
            [begin(), Line::Begun(Begun { number: 0, at: 5 }), event(0, 3), Line::Begun(Begun { number: 1, at: 9 })]
        {
            line.write(&mut text).expect("a vector takes all");
        }
        text.extend_from_slice(b"{\"type\":\"event\",\"num");
        let played = Played::read(std::str::from_utf8(&text).expect("UTF-8")).expect("readable");
        assert_eq!((played.unfinished(), played.position(), played.end()), (vec![1], 9, None));
        assert_eq!(played.events().count(), 1);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let late = Lateness::of((1..=200).collect()).expect("some");
        assert_eq!(late, Lateness { p50: 100, p90: 180, p99: 198, max: 200 });
        assert_eq!(Lateness::of(Vec::new()), None);
    }

    #[test]
    fn a_machine_that_could_not_keep_up_raises_alarms() {
        let calm = Summary::of([event(0, 3), Line::Load(Load { at: 1, busy: 0.5, machine: None })].iter(), Vec::new());
        assert_eq!((calm.done, calm.alarms.len()), (1, 0));
        let late =
            Summary::of([event(0, LATE + 1), Line::Load(Load { at: 1, busy: 0.99, machine: None })].iter(), Vec::new());
        assert_eq!(late.alarms.len(), 2, "{late:?}");
    }
}
