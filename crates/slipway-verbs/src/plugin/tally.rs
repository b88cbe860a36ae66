//! Counts of an end of a connection, in a page that only this program and the broker have.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::memory::{Atomic, Mapping};
use super::operation::Operation;
use crate::layout::{COUNTS, SIZED, count};

/// Maps the page of counts; `None` where the file is not what a broker sends, and nothing is counted then.
pub(super) fn page(file: &OwnedFd) -> Option<Arc<Mapping>> {
    let length = usize::try_from(rustix::fs::fstat(file).ok()?.st_size).ok()?;
    let is_sealed = rustix::fs::fcntl_get_seals(file).ok()?.contains(SIZED);
    if !is_sealed || length == 0 || !length.is_multiple_of(COUNTS) {
        return None;
    }
    Mapping::new(file, length, true).ok().map(Arc::new)
}

/// The counts of one end of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally(Option<(Arc<Mapping>, usize)>);

impl Tally {
    /// The slot of this number; one outside of the page counts nothing.
    pub(super) fn new(page: Option<&Arc<Mapping>>, slot: u32) -> Self {
        let at = usize::try_from(slot).ok().and_then(|slot| slot.checked_mul(COUNTS));
        let within = |page: &&Arc<Mapping>| at.is_some_and(|at| page.piece(at, COUNTS).is_some());
        Self(page.filter(within).cloned().zip(at))
    }

    /// Counts an operation that this end asked for.
    pub(super) fn asked(&self, operation: Operation, bytes: usize) {
        let word = match operation {
            Operation::Send => count::SENDS,
            Operation::Write => count::WRITES,
            Operation::Read => count::READS,
            Operation::Atomic(Atomic::Add(_) | Atomic::Swap { .. }) => count::ATOMICS,
        };
        self.add(word, bytes);
    }

    /// Counts a message that this end received.
    pub(super) fn received(&self, bytes: usize) {
        self.add(count::RECEIVES, bytes);
    }

    /// The device's lock is held, so nobody else adds meanwhile.
    fn add(&self, word: usize, bytes: usize) {
        let Some((page, at)) = &self.0 else { return };
        for (word, more) in [(word, 1), (word + 8, bytes as u64)] {
            let word = page.word64(at + word);
            word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
    }
}
