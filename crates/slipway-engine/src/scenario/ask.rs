//! Requests to the anchor that are not waited for: what it does meanwhile delays no event.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::anchor::control::{self, Answer, Request};

/// A request that was made. Readable once it is answered.
#[derive(Debug)]
pub(super) struct Asked(OwnedFd);

impl Asked {
    pub(super) fn ask(control: &Path, request: &Request) -> io::Result<Self> {
        Ok(Self(control::begin(control, request)?))
    }

    /// The answer, waited for.
    pub(super) fn answer(&self) -> Result<(), String> {
        match control::answer(&self.0) {
            Ok(Answer::Failed(account)) => Err(account),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("hear from the lab's anchor: {error}")),
        }
    }
}

impl AsFd for Asked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
