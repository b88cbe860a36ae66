//! Commands that were carried out. A thread that makes its last command once more has not had the answer: a signal came first, or the
//! router was killed. It has the same answer again. librdmacm itself makes no such command twice.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

/// Most threads whose last command on a channel is remembered.
const MOST: usize = 16;

/// A command that a thread has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(super) tid: i32,
    digest: u64,
}

impl Made {
    pub(crate) fn new(tid: i32, command: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        command.hash(&mut hasher);
        Self { tid, digest: hasher.finish() }
    }
}

/// The last commands of threads, and the number that each was answered with.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done(Vec<(Made, u32)>);

impl Done {
    /// A command was carried out. Gives the thread whose command is forgotten for it, if any.
    pub(super) fn add(&mut self, made: Made, answer: u32) -> Option<i32> {
        self.forget(made);
        let forgotten = (self.0.len() == MOST).then(|| self.0.remove(0).0.tid);
        self.0.push((made, answer));
        forgotten
    }

    /// The threads whose commands are remembered.
    pub(super) fn threads(&self) -> impl Iterator<Item = i32> {
        self.0.iter().map(|(made, _)| made.tid)
    }

    /// The answer of a command that is the last of its thread.
    pub(super) fn answer(&self, made: Made) -> Option<u32> {
        self.0.iter().find(|(last, _)| *last == made).map(|(_, answer)| *answer)
    }

    /// A thread has made another command than the one remembered.
    pub(super) fn forget(&mut self, made: Made) {
        self.0.retain(|(other, _)| other.tid != made.tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_command_of_a_thread_is_answered_once_more() {
        let mut done = Done::default();
        let [one, two, other] = [Made::new(1, b"one"), Made::new(1, b"two"), Made::new(2, b"one")];
        for (made, answer) in [(one, 1), (two, 2), (other, 3)] {
            done.add(made, answer);
        }
        assert_eq!((done.answer(one), done.answer(two)), (None, Some(2)));
        done.forget(one);
        assert_eq!((done.answer(two), done.answer(other)), (None, Some(3)));
        for tid in 0..100 {
            done.add(Made::new(tid, b"all"), 0);
        }
        assert_eq!(done.0.len(), MOST);
        assert_eq!(done.answer(Made::new(99, b"all")), Some(0));
    }
}
