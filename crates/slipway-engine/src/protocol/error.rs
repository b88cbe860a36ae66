//! Errors as data: a stable code for programs, a message and the next step for people.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A request that was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// The kind of failure. Programs decide by it.
    pub code: Code,
    /// One sentence that fits "failed to …".
    pub message: String,
    /// The next step, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Kinds of failure. Their names are part of the protocol and stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The peer speaks another version of the protocol.
    Version,
    /// The peer runs as another user than the server.
    NotPermitted,
    /// The message is not one of the protocol, or comes with the wrong number of descriptors.
    Malformed,
    /// The message is larger than the protocol allows.
    TooLarge,
    /// The peer did not send its whole message in time.
    Timeout,
    /// The lab has no such node.
    UnknownNode,
    /// Nodes could not be started or ended.
    Nodes,
    /// Links could not be changed.
    Links,
    /// The policy could not be changed.
    Policy,
    /// The fast path failed, or the lab has none.
    FastPath,
    /// The log of a node cannot be read.
    Log,
    /// There is no such file or folder.
    NoFile,
    /// Files could not be copied.
    Copy,
}

impl Error {
    /// An error with this account, whose hint may stand behind "Hint: " on a line of its own.
    #[must_use]
    pub fn new(code: Code, account: impl Into<String>) -> Self {
        let account = account.into();
        match account.split_once(HINT) {
            Some((message, hint)) => Self { code, message: message.to_owned(), hint: Some(hint.to_owned()) },
            None => Self { code, message: account, hint: None },
        }
    }

    /// Makes errors with this code.
    pub(crate) fn of<E: std::error::Error>(code: Code) -> impl Fn(E) -> Self {
        move |error| Self::new(code, error.to_string())
    }
}

const HINT: &str = "\nHint: ";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "{HINT}{hint}"))
    }
}

impl std::error::Error for Error {}
