//! Errors of an agent and of its clients.

use std::io;

/// Why a command did not reach a machine, or an agent does not serve. Fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A file of keys, or a system call.
    #[error("{doing}: {source}")]
    Io {
        /// A verb with its object.
        doing: String,
        /// The error.
        source: io::Error,
    },
    /// A file that is not as it should be.
    #[error("use {file}: {why}")]
    File {
        /// Its path, with the line where there is one.
        file: String,
        /// The fault, and how to mend it.
        why: String,
    },
    /// The file of machines does not name this one.
    #[error(
        "find the machine `{name}` in {file}\nHint: add a line with its name, its address, and what `slipway agent key` prints there"
    )]
    Unknown {
        /// The machine.
        name: String,
        /// The file.
        file: String,
    },
    /// No connection, or one that ended before the command did.
    #[error(
        "reach the agent of `{name}`: {reason}\nHint: `slipway agent serve` listens there, and each side's file of machines has the other's key"
    )]
    Unreachable {
        /// The machine.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The key is none.
    #[error("make a key: {0}")]
    Key(#[from] rustls::Error),
}

impl AgentError {
    /// For `map_err`: `doing` is a verb with its object.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing: doing.into(), source }
    }
}
