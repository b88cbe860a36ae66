//! The asking program, and the answer.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::wire::{Answer, Reply};

/// The asking program.
#[derive(Clone, Copy)]
pub(super) struct From {
    pub(super) program: u64,
    pub(super) node: u32,
}

/// A reply, the descriptors beside it, and packets for other programs.
pub(super) struct Done {
    /// None where it comes later.
    pub(super) reply: Option<Reply>,
    pub(super) fds: Vec<OwnedFd>,
    pub(super) notes: Vec<(u64, Answer, Vec<OwnedFd>)>,
}

impl Done {
    pub(super) fn with(reply: Reply, fds: Vec<OwnedFd>) -> Self {
        Self { reply: Some(reply), fds, notes: Vec::new() }
    }

    pub(super) fn later() -> Self {
        Self { reply: None, fds: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn refused(errno: Errno) -> Self {
        Self::with(Reply::Refused { errno: errno.raw_os_error() }, Vec::new())
    }
}
