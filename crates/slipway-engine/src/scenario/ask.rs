//! Requests to the anchor that are not waited for: what it does meanwhile delays no event.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::anchor::control::{self, Answer, Deed, Reply, Request, now};

/// A request that had to wait longer than this says for what, nanoseconds.
const WORTH_SAYING: u64 = 1_000_000;

/// A request that was made. Readable once it is answered.
#[derive(Debug)]
pub(super) struct Asked {
    socket: OwnedFd,
    /// When.
    at: u64,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) result: Result<(), String>,
    /// What it had to wait for, where that took long.
    pub(super) waited: Option<String>,
}

impl Asked {
    pub(super) fn ask(control: &Path, request: &Request) -> io::Result<Self> {
        Ok(Self { at: now(), socket: control::begin(control, request)? })
    }

    /// The answer, waited for.
    pub(super) fn answer(&self) -> Answered {
        match control::reply(&self.socket) {
            Ok(Reply { answer, before, .. }) => Answered {
                result: match answer {
                    Answer::Failed(account) => Err(account),
                    Answer::Done => Ok(()),
                },
                waited: before.and_then(|deed| waited(self.at, &deed)),
            },
            Err(error) => Answered { result: Err(format!("hear from the lab's anchor: {error}")), waited: None },
        }
    }
}

/// What to say of a request made at `asked`, before which the anchor did this.
fn waited(asked: u64, before: &Deed) -> Option<String> {
    let waited = before.until.checked_sub(asked).filter(|waited| *waited > WORTH_SAYING)?;
    Some(format!("waited {} ms for the lab's anchor, which was {}", waited / 1_000_000, before.what))
}

impl AsFd for Asked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wait_that_was_one_is_told() {
        let before = Deed { what: "starting nodes".to_owned(), until: 30_000_000 };
        let told = waited(7_000_000, &before);
        assert_eq!(told.as_deref(), Some("waited 23 ms for the lab's anchor, which was starting nodes"));
        assert_eq!((waited(29_500_000, &before), waited(31_000_000, &before)), (None, None));
    }
}
