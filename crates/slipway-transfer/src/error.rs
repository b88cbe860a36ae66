//! Errors of a transfer.

use std::io;

/// The reason why a transfer ended before its time. Fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A system call on this machine.
    #[error("{doing}: {source}")]
    Io {
        /// A verb with its object, as in "read /data/a".
        doing: String,
        /// The error.
        source: io::Error,
    },
    /// The connection to the other end.
    #[error("reach the other end: {0}\nHint: run the same command again; the transfer goes on where it was")]
    Lost(io::Error),
    /// TLS, or the proof of the token.
    #[error("prove to the other end who this is: {0}\nHint: both ends take the same token (--token-file)")]
    Identity(String),
    /// The other end says so.
    #[error("transfer at the other end: {0}")]
    Refused(String),
    /// An end inside a node says so.
    #[error("{0}")]
    Inside(String),
    /// Data that arrived, and could not be written.
    #[error("receive data: {0}")]
    Here(String),
    /// The other end breaks the protocol.
    #[error("understand the other end: {0}")]
    Protocol(String),
    /// A token that is too short, or a file without one.
    #[error("use the token in {file}: {why}\nHint: remove the file; `slipway transfer serve` writes a new one")]
    Token {
        /// Path of the file.
        file: String,
        /// The reason.
        why: String,
    },
}

impl TransferError {
    /// For `map_err`: `doing` is a verb with its object.
    pub(crate) fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { doing: doing.into(), source: source.into() }
    }

    /// For `map_err` where a frame could not be read or written.
    pub(crate) fn stream(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Protocol(error.to_string()),
            // A read with a time limit (`SO_RCVTIMEO` in `socket(7)`).
            io::ErrorKind::WouldBlock => Self::Lost(io::ErrorKind::TimedOut.into()),
            _ => Self::Lost(error),
        }
    }
}
