//! Errors of acts.

use std::io;

use serde::{Deserialize, Serialize};

use crate::lab::LabError;
use crate::protocol;

/// Why an act of a scenario could not be done. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// The lab's anchor cannot be reached.
    #[error("ask the lab's anchor: {0}")]
    Ask(io::Error),
    /// The request is none that the protocol carries.
    #[error("ask the lab's anchor: {0}")]
    Unsent(protocol::Error),
    /// The lab's anchor was asked, and did not answer.
    #[error("hear from the lab's anchor: {0}")]
    Hear(io::Error),
    /// The lab's anchor refused.
    #[error(transparent)]
    Refused(#[from] protocol::Error),
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Nodes that the player ends cannot be left unwatched.
    #[error("{0}")]
    Watch(io::Error),
    /// No process could be started.
    #[error("start a process beside the player: {0}")]
    Start(io::Error),
    /// The process ended without a word.
    #[error("its process beside the player was killed")]
    Killed,
    /// The account of a process beside the player.
    #[error(transparent)]
    Beside(#[from] Account),
    /// The folder of a scenario's programs cannot be written.
    #[error("note which process runs the programs: {0}")]
    Note(io::Error),
    /// Programs cannot be ended.
    #[error("end the programs: {0}")]
    End(io::Error),
}

/// An error as another process tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(transparent)]
#[error("{0}")]
pub struct Account(pub String);

impl Account {
    pub(super) fn of(error: &impl std::error::Error) -> Self {
        Self(error.to_string())
    }
}
