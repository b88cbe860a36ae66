//! The records of a comparison: all that a report needs, so that it can be made again without running anything.
//!
//! # The file
//! `records.jsonl`: one JSON object a line (JSON Lines), written as things happen, so that a comparison that is killed
//! leaves all that it measured. Each has a `type`:
//!
//! | `type` | when | holds |
//! | --- | --- | --- |
//! | `begin` | first line, once | [`Begin`]: format, what was asked, machine facts |
//! | `measurement` | after each run of a job under a driver, in the order they ran | [`Measurement`] |
//! | `end` | last line, once; absent when the comparison was cut short | [`End`] |
//!
//! # Versions
//! `format` is [`FORMAT`]. Within it fields and line types may be added, and readers pass over those they do not know.
//! A change that an old reader would misunderstand changes the number, and readers refuse a number they do not know.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use slipway_lab::id::{List, NodeId};

use crate::bottleneck::{Counters, Sides};
use crate::check::CheckedPath;
use crate::play;
use crate::probe::Sample;

/// The format of records that this crate writes and reads.
pub const FORMAT: &str = "slipway-compare/1";

/// A whole comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The first record: question, machine and time.
    pub begin: Begin,
    /// In the order they ran.
    pub measurements: Vec<Measurement>,
    /// `None`: the comparison was cut short.
    pub end: Option<End>,
}

/// The question of a comparison, its machine and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// [`FORMAT`].
    pub format: String,
    /// The version of Slipway.
    pub version: String,
    /// The lab's name.
    pub lab: String,
    /// SHA-256 of the lab file's text, hexadecimal.
    pub lab_sha256: String,
    /// Drivers compared, in the order asked.
    pub drivers: Vec<String>,
    /// Jobs measured, in the order asked.
    pub jobs: Vec<Job>,
    /// Counted rounds asked for.
    pub repeat: u32,
    /// Rounds before them that are not counted.
    pub warm_up: u32,
    /// Seed of the comparison: the order of drivers within a round, and the bootstrap of the report.
    pub seed: u64,
    /// The command line that repeats all this (argv).
    pub command: Vec<String>,
    /// Facts about the machine, as the caller gathered them (kernel, processors, …).
    pub machine: Value,
    /// RFC 3339, UTC.
    pub started: String,
    /// The checks of links with conditions, before the measurements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckedPath>,
    /// The scenario that played beside every job. `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<Scenario>,
    /// A benchmark of a disk or a path, and its limit. `None`: a comparison of networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bench: Option<Bench>,
}

/// A benchmark, whose ways stand where a comparison has drivers. The first way is the limit, to which all others are ratios.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bench {
    /// `disk`, `tcp`, `udp` or `transfer`.
    pub kind: String,
    /// The origin of the limit, in words.
    pub limit: String,
    /// Names of both sides.
    pub sides: Sides,
}

/// A scenario that was played beside every job, each time from its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scenario {
    /// The file that it is from.
    pub file: String,
    /// SHA-256 of that file, hexadecimal.
    pub sha256: String,
    /// The seed of its schedule.
    pub seed: u64,
    /// The number of its events.
    pub events: usize,
    /// When it would be over, nanoseconds.
    pub length: u64,
    /// Names of the lab's nodes.
    pub nodes: List<NodeId, String>,
}

/// A job that was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The same as [`Measurement::job`].
    pub name: String,
    /// The programs it started, one command line each, as a person would type them.
    pub commands: Vec<String>,
}

/// One run of one job under one driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// From 1, over warm-up and counted rounds. Measurements of the same round are compared with each other.
    pub round: u32,
    /// True: run to warm caches, not counted.
    pub warm_up: bool,
    /// The driver.
    pub driver: String,
    /// The job's name ([`crate::probe::Probe::name`]).
    pub job: String,
    /// The driver's own words for its parts (`veth + bridge`, `userspace datapath`, …).
    pub mechanism: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// From the start of the job to its end, seconds.
    pub seconds: f64,
    /// The measured values. Empty when it failed.
    pub samples: Vec<Sample>,
    /// The reason of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The events of the scenario beside it: lines of its log (`event`, `node`, `restored`, `end`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub played: Vec<play::Line>,
    /// The kernel's counters while it ran, of a benchmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
}

/// The end of the comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// RFC 3339, UTC.
    pub finished: String,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Begin(Begin),
    Measurement(Measurement),
    End(End),
    /// Of a later version: passed over.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// The reason why records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A line is not what it should be.
    #[error(
        "read line {line} of the records: {source}. Hint: the file was changed or damaged; run the comparison again"
    )]
    Line {
        /// From 1.
        line: usize,
        /// The fault of the line.
        source: serde_json::Error,
    },
    /// The first line is not the beginning of a comparison.
    #[error(
        "read the records: the first line is not of type “begin”. Hint: give the `records.jsonl` that `slipway compare` wrote"
    )]
    NoBegin,
    /// Made by another version.
    #[error(
        "read records of format “{0}”: this version reads “{FORMAT}”. Hint: use the version of slipway that wrote them"
    )]
    Format(String),
}

impl Comparison {
    /// Reads the text of a `records.jsonl`.
    ///
    /// A last line without a line end was cut by a kill while it was written; it is left out.
    pub fn read(text: &str) -> Result<Self, RecordError> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let first = lines.next().map(|(number, line)| parse(number, line)).transpose()?;
        let Some(Line::Begin(begin)) = first else { return Err(RecordError::NoBegin) };
        if begin.format != FORMAT {
            return Err(RecordError::Format(begin.format));
        }
        let mut comparison = Self { begin, measurements: Vec::new(), end: None };
        for (number, line) in lines {
            match parse(number, line)? {
                Line::Measurement(measurement) => comparison.measurements.push(measurement),
                Line::End(end) => comparison.end = Some(end),
                Line::Begin(_) | Line::Unknown => {}
            }
        }
        Ok(comparison)
    }

    /// Drivers in the order asked, then any others that were measured.
    #[must_use]
    pub fn drivers(&self) -> Vec<&str> {
        let mut drivers: Vec<&str> = Vec::new();
        let measured = self.measurements.iter().map(|measurement| &measurement.driver);
        for driver in self.begin.drivers.iter().chain(measured) {
            if !drivers.contains(&driver.as_str()) {
                drivers.push(driver);
            }
        }
        drivers
    }
}

fn parse(number: usize, line: &str) -> Result<Line, RecordError> {
    serde_json::from_str(line).map_err(|source| RecordError::Line { line: number + 1, source })
}

/// Writes a `records.jsonl` line by line.
#[derive(Debug)]
pub struct Writer<W: Write> {
    file: W,
}

impl<W: Write> Writer<W> {
    /// Writes the first line.
    pub fn begin(file: W, begin: &Begin) -> io::Result<Self> {
        let mut writer = Self { file };
        writer.line(&Line::Begin(begin.clone()))?;
        Ok(writer)
    }

    /// Adds a measurement.
    ///
    /// # Errors
    /// Besides those of the file: a value that is not finite, which JSON cannot say.
    pub fn measurement(&mut self, measurement: &Measurement) -> io::Result<()> {
        let values = measurement.samples.iter().map(|sample| sample.value);
        if !values.chain([measurement.seconds]).all(f64::is_finite) {
            return Err(io::Error::other(
                "record a value that is not finite. Hint: this is a mistake in the probe; please report it",
            ));
        }
        self.line(&Line::Measurement(measurement.clone()))
    }

    /// Writes the last line.
    pub fn end(mut self, end: &End) -> io::Result<()> {
        self.line(&Line::End(end.clone()))
    }

    /// One write for the whole line, so that a kill cuts at most the last one.
    fn line(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        self.file.flush()
    }
}
