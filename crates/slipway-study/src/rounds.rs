//! Interleaved rounds of measurements, their records, and the report.
//!
//! In each round every way takes every task once, in an order drawn from the seed: a slow minute of the machine affects all
//! alike. Each measurement is recorded at once.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use nix::sys::signal::Signal;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use slipway_engine::facts::Facts;
use slipway_measure::record::{Begin, Comparison, End, FORMAT, Measurement, Writer};
use slipway_measure::report;
use slipway_measure::summary::Summary;
use slipway_sys::signals::Taken;

use crate::check::number;
use crate::{Event, Events, StudyError, output};

/// One turn in a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    /// From 1, the warm-up included.
    pub(crate) round: u32,
    /// Not counted.
    pub(crate) warm_up: bool,
    /// From 1, over all rounds.
    pub(crate) number: usize,
    /// Index of the task.
    pub(crate) task: usize,
    /// Index of the way.
    pub(crate) way: usize,
}

/// The number of a signal that came meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interrupted(pub(crate) u8);

/// The reason why there is no measurement.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A signal, by number.
    Interrupted(u8),
    /// A step that failed, and why.
    Failed(String),
}

impl Stop {
    /// The signal that came.
    pub(crate) fn came(interrupt: &Taken) -> Self {
        Self::Interrupted(number(interrupt.take().ok().flatten().unwrap_or(Signal::SIGINT)))
    }

    /// A step that failed.
    pub(crate) fn failed(error: impl Display) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The first record of rounds by this version on this machine, now. The caller adds its question.
///
/// # Errors
/// When the machine's facts cannot be recorded.
pub(crate) fn begin() -> Result<Begin, StudyError> {
    let machine =
        serde_json::to_value(Facts::gather()).map_err(|error| StudyError::io("record the machine")(error.into()))?;
    Ok(Begin {
        format: FORMAT.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lab: String::new(),
        lab_sha256: String::new(),
        drivers: Vec::new(),
        jobs: Vec::new(),
        repeat: 0,
        warm_up: 0,
        seed: 0,
        command: Vec::new(),
        machine,
        started: output::now(),
        checks: Vec::new(),
        scenario: None,
        bench: None,
    })
}

/// Takes all turns, with repetition and seed as `begin` has them, and writes `records.jsonl` into `folder`. `take` gives `None`
/// for a turn that is left out. True where a measurement failed.
///
/// # Errors
/// When the records cannot be written, or a signal came.
pub(crate) fn take(
    folder: &Path,
    begin: &Begin,
    (tasks, ways): (usize, usize),
    take: &mut dyn FnMut(Turn) -> Result<Option<Measurement>, Interrupted>,
    events: &mut Events<'_>,
) -> Result<bool, StudyError> {
    let records = folder.join("records.jsonl");
    let written = || StudyError::io(format!("write {}", records.display()));
    let file = File::create(&records).map_err(written())?;
    let mut writer = Writer::begin(file, begin).map_err(written())?;
    let mut order: Vec<usize> = (0..ways).collect();
    let mut draw = ChaCha8Rng::seed_from_u64(begin.seed);
    let rounds = begin.warm_up.saturating_add(begin.repeat);
    let mut failed = false;
    let mut number = 0;
    for round in 1..=rounds {
        for task in 0..tasks {
            order.shuffle(&mut draw);
            for &way in &order {
                let turn = Turn { round, warm_up: round <= begin.warm_up, number: number + 1, task, way };
                let measurement = match take(turn) {
                    Ok(Some(measurement)) => measurement,
                    Ok(None) => continue,
                    Err(Interrupted(signal)) => {
                        return Err(StudyError::ComparisonInterrupted { round, records, signal });
                    }
                };
                number += 1;
                failed |= measurement.error.is_some();
                events(Event::Measured { rounds, measurement: &measurement });
                writer.measurement(&measurement).map_err(written())?;
            }
        }
    }
    writer.end(&End { finished: output::now() }).map_err(written())?;
    Ok(failed)
}

/// Makes `summary.json` and `report.html` from the records as they are on disk: they can be made again from these.
///
/// # Errors
/// When a file cannot be read or written.
pub(crate) fn report(folder: &Path) -> Result<(Comparison, Summary), StudyError> {
    let records = folder.join("records.jsonl");
    let text = fs::read_to_string(&records).map_err(StudyError::io(format!("read {}", records.display())))?;
    let comparison = Comparison::read(&text)?;
    let summary = Summary::new(&comparison);
    let json =
        serde_json::to_string_pretty(&summary).map_err(|error| StudyError::io("write the summary")(error.into()))?;
    for (name, text) in [("summary.json", json), ("report.html", report::html(&comparison))] {
        let path = folder.join(name);
        File::create(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(StudyError::io(format!("write {}", path.display())))?;
    }
    Ok((comparison, summary))
}
