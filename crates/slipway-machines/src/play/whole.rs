//! A scenario over several machines as its coordinator's machine keeps it, until its common log is whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slipway_engine::scenario::{Ends, ScenarioError};
use slipway_engine::state::LabDir;
use slipway_lab::model::Lab;
use slipway_lab::scenario::Schedule;
use slipway_measure::play::Begin;

use crate::error::MachineError;

/// The file, below the lab's folder.
const FILE: &str = "scenario/whole.json";

/// A scenario, and the lab over several machines that it is for.
#[derive(Debug)]
pub struct Score<'a> {
    /// The lab.
    pub lab: &'a Lab,
    /// The events, of all machines.
    pub schedule: &'a Schedule,
    /// The first line of the log, but for its time.
    pub begin: Begin,
    /// True: changes stay when it is over.
    pub keep: bool,
    /// The end of the playing.
    pub ends: Ends,
    /// The folder of the log.
    pub folder: &'a Path,
}

/// A scenario of which all parts were told to begin.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Whole {
    schedule: Schedule,
    /// The first line of the common log.
    pub(super) begin: Begin,
    /// The beginning, on this machine's monotonic clock, nanoseconds.
    pub(super) start: u64,
    /// The offset of each machine's clock then, nanoseconds.
    pub(super) zeros: Vec<i64>,
    keep: bool,
    /// The folder of the common log.
    pub(super) folder: PathBuf,
    #[serde(skip)]
    file: PathBuf,
}

impl Whole {
    pub(super) fn of(lab: &LabDir, score: &Score<'_>) -> Self {
        // One that cannot be made absolute is as good as it was.
        let folder = std::path::absolute(score.folder).unwrap_or_else(|_| score.folder.to_owned());
        let (schedule, begin, keep) = (score.schedule.clone(), score.begin.clone(), score.keep);
        Self { schedule, begin, start: 0, zeros: Vec::new(), keep, folder, file: lab.join(FILE) }
    }

    /// The one that was begun on this machine, and is not over.
    pub(super) fn read(lab: &LabDir) -> Result<Self, MachineError> {
        let file = lab.join(FILE);
        match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ScenarioError::NothingLeft {
                lab: lab.name().to_owned(),
                why: "this machine's `slipway play` began none that is not over",
            }
            .into()),
            Err(source) => Err(MachineError::Here { doing: "read the scenario", source }),
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(whole) => Ok(Self { file, ..whole }),
                Err(source) => Err(ScenarioError::Format { path: file, source }.into()),
            },
        }
    }

    /// The same for machines that play already. A job beside it has ended with its coordinator.
    pub(super) fn score<'a>(&'a self, lab: &'a Lab) -> Score<'a> {
        let (schedule, begin) = (&self.schedule, self.begin.clone());
        Score { lab, schedule, begin, keep: self.keep, ends: Ends::WithScenario, folder: &self.folder }
    }

    /// Keeps it: all machines have been told to begin.
    pub(super) fn note(&mut self, (start, zeros): (u64, Vec<i64>), begin: &Begin) -> io::Result<()> {
        (self.start, self.zeros, self.begin) = (start, zeros, begin.clone());
        // Its folder is there once this machine's part is prepared.
        fs::write(&self.file, serde_json::to_vec(self)?)
    }

    /// It is over, or there is a new one.
    pub(super) fn forget(&self) -> io::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
