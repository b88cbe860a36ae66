//! Reasons why a study has no result.

use std::io;
use std::path::PathBuf;

use slipway_document::errors::DocumentErrors;
use slipway_document::units::Bytes;
use slipway_engine::job::JobError;
use slipway_engine::lab::{DownError, LabError, UpError};
use slipway_engine::rsh::RshError;
use slipway_engine::scenario::ScenarioError;
use slipway_image::ImageError;
use slipway_lab::plan::PlanError;
use slipway_machines::MachineError;
use slipway_measure::play::PlayError;
use slipway_measure::record::RecordError;
use slipway_verify::VerifyError;

/// The reason why a study has no result. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A lab file cannot be read.
    #[error("read lab file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A lab file or scenario file is wrong.
    #[error("understand the lab file: {0}")]
    File(Box<DocumentErrors>),
    /// This machine cannot make what a lab file asks for; nothing was tried.
    #[error("do as asked by the lab file: {0}")]
    Refused(Box<DocumentErrors>),
    /// The store of images.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A lab did not come up.
    #[error(transparent)]
    Up(Box<UpError>),
    /// The way to other machines.
    #[error(transparent)]
    Rsh(#[from] RshError),
    /// A lab did not do what was asked of it.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A lab did not go down.
    #[error(transparent)]
    Down(#[from] DownError),
    /// A job did not run.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A lab's file has no scenario.
    #[error(
        "find a scenario: the file of lab `{0}` has none\nHint: add a `scenario:` to it, or name a scenario's file"
    )]
    NoScenario(String),
    /// A file that a scenario names cannot be read.
    #[error("read {}, which the scenario names: {source}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A scenario has no schedule.
    #[error("plan the scenario of {scenario}: {source}")]
    Plan {
        /// The scenario's file, or its lab.
        scenario: String,
        /// The error.
        source: PlanError,
    },
    /// A scenario did not play.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Another machine of the lab.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Links were not measured.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A signal came while links were measured, by number.
    #[error("{}", VerifyError::Interrupted)]
    CheckInterrupted(u8),
    /// None of the drivers of a comparison works here.
    #[error("compare: no driver could be brought up; the first: {0}")]
    NoDriver(String),
    /// A signal came while a comparison went on.
    #[error("finish the comparison: interrupted in round {round}\nHint: the measurements until then are in {}", records.display())]
    ComparisonInterrupted {
        /// The round, from 1.
        round: u32,
        /// The file of the measurements.
        records: PathBuf,
        /// The signal, by number.
        signal: u8,
    },
    /// A signal came before a benchmark's first measurement, by number.
    #[error("prepare the benchmark: interrupted")]
    BenchInterrupted(u8),
    /// A measuring program is not on this machine.
    #[error("find {0}: it is not in PATH\nHint: apt-get install {0}")]
    Tool(&'static str),
    /// A disk has too little free space for a benchmark.
    #[error("make files in {}: {needed} are needed and {free} are free, of which nine tenths may be taken\nHint: give a smaller --size", folder.display())]
    Room {
        /// The folder.
        folder: PathBuf,
        /// Bytes of all files.
        needed: Bytes,
        /// Bytes that are free.
        free: Bytes,
    },
    /// The readahead of a disk that others use was to be changed.
    #[error("change the readahead below {}: its disk is not a loop device, and the setting is for all programs that use it\nHint: mount a file on a loop device there, as examples/dtn/disk does", .0.display())]
    Readahead(PathBuf),
    /// The records of a comparison cannot be read again.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// The log of a scenario cannot be read again.
    #[error(transparent)]
    Log(#[from] PlayError),
    /// The folder for results cannot be made, or is there already.
    #[error("make folder {}: {source}", path.display())]
    Output {
        /// The folder.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file or a system call.
    #[error("{doing}: {source}")]
    Io {
        /// The failed action.
        doing: String,
        /// The error.
        source: io::Error,
    },
}

impl StudyError {
    /// For `map_err`: `doing` is a verb with its object, as in "write lab.yaml".
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

impl From<DocumentErrors> for StudyError {
    fn from(errors: DocumentErrors) -> Self {
        Self::File(Box::new(errors))
    }
}

impl From<UpError> for StudyError {
    fn from(error: UpError) -> Self {
        Self::Up(Box::new(error))
    }
}
