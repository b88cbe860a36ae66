//! Errors of programs in nodes.

use std::io;

/// Why a program does not run in a node.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The node has ended.
    #[error("enter node `{0}`: it no longer runs\nHint: `slipway ps` shows its state")]
    Gone(String),
    /// The node is frozen, and so would the program be, before its first step.
    #[error("execute a program in node `{0}`: it is frozen\nHint: `slipway thaw` lets it go on")]
    Frozen(String),
    /// The program is not in the node.
    #[error("find program `{program}` in node `{node}`{detail}")]
    NotFound {
        /// The program, as the caller names it.
        program: String,
        /// The node's name.
        node: String,
        /// The folders that were searched, as the end of the message.
        detail: String,
    },
    /// The program may not or cannot be executed.
    #[error("execute `{program}` in node `{node}`: {detail}")]
    NotExecutable {
        /// The program, as the caller names it.
        program: String,
        /// The node's name.
        node: String,
        /// The kernel's reason.
        detail: String,
    },
    /// Something before the exec failed.
    #[error("{doing} for a program in node `{node}`: {detail}")]
    Start {
        /// The step that failed, as a verb with its object.
        doing: String,
        /// The node's name.
        node: String,
        /// The reason.
        detail: String,
    },
}

impl ExecError {
    /// The exit code that a shell gives: 127 for a program that is not there, and 126 for one that cannot be executed. Where
    /// no program was reached, it is 125, as container engines have it.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Gone(_) | Self::Frozen(_) | Self::Start { .. } => 125,
        }
    }

    pub(super) fn start(node: &str, doing: &str) -> impl FnOnce(io::Error) -> Self {
        let (doing, node) = (doing.to_owned(), node.to_owned());
        move |error| Self::Start { doing, node, detail: error.to_string() }
    }
}
