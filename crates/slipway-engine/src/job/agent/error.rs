//! Errors of the launch agent.

use std::io;

use crate::job::service::VARIABLE;

/// As `ssh(1)`: the connection failed, not the command.
const NO_CONNECTION: u8 = 255;

/// A command that the agent did not launch, or not to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentError {
    /// An option of ssh's came without its value.
    #[error("option -{0} lacks its value")]
    NoValue(char),
    /// The command line names no host.
    #[error("usage: agent [OPTIONS] HOST COMMAND... (options are ssh's)")]
    NoHost,
    /// The command line names no command.
    #[error("there is no command for {0}\nHint: this is no login; try `slipway exec {0}`")]
    NoCommand(String),
    /// No job started the agent.
    #[error("{VARIABLE} is not set\nHint: only programs that `slipway run --mpi` starts can launch others")]
    NoJob,
    /// The launch service does not take the connection.
    #[error("reach the job's launch service at {path}: {source}\nHint: its `slipway run` has ended")]
    Unreachable {
        /// The socket, as this node sees it.
        path: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The launch service did not execute the command.
    #[error("{reason}")]
    Refused {
        /// Exit code, as a shell's.
        code: u8,
        /// In the service's words.
        reason: String,
    },
    /// The launch service is gone.
    #[error("the launch service ended before the command")]
    Ended,
    /// A system call.
    #[error("{doing}: {source}")]
    System {
        /// The failed action.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl AgentError {
    pub(super) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }

    /// The exit code: a shell's where the command was not executed, ssh's otherwise.
    pub(super) fn code(&self) -> u8 {
        if let Self::Refused { code, .. } = self { *code } else { NO_CONNECTION }
    }
}
