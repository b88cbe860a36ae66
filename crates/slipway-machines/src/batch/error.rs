//! Failures to find the machines of a batch job.

use std::path::PathBuf;

/// Machines of a batch job, of a list or of a file that cannot be had. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A list of hosts that nobody can read.
    #[error("read the list of machines `{text}`: {reason}")]
    List {
        /// The list, or its beginning.
        text: String,
        /// The fault.
        reason: &'static str,
    },
    /// A line of a host file that nobody can read.
    #[error("read {}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The fault.
        reason: &'static str,
    },
    /// The batch system's variable is not set.
    #[error(
        "find the machines of a {system} job: {variable} is not set\nHint: this is for commands within a job; elsewhere, name them with --machines"
    )]
    NoJob {
        /// The batch system.
        system: &'static str,
        /// The variable of its environment.
        variable: &'static str,
    },
    /// A host file cannot be read.
    #[error("read host file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// No machine is named.
    #[error("find machines: {0} names none")]
    Empty(String),
    /// A name that leads to no address.
    #[error(
        "find the address of machine {host}: {reason}\nHint: add it to /etc/hosts, or write {host}=ADDRESS in --machines"
    )]
    NoAddress {
        /// The machine's name.
        host: String,
        /// The fault.
        reason: String,
    },
    /// Two names lead to one address.
    #[error("tell machines {one} and {other} apart: both have the address {address}\nHint: name each machine once")]
    Twice {
        /// The first.
        one: String,
        /// The second.
        other: String,
        /// Their address.
        address: std::net::Ipv4Addr,
    },
}

impl BatchError {
    /// Of a list, of which an account shows the beginning.
    pub(super) fn list(text: &str, reason: &'static str) -> Self {
        Self::List { text: text.chars().take(80).collect(), reason }
    }
}
