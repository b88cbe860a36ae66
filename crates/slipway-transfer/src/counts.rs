//! Counts of files and their bytes, which both ends keep alike.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::report::{Bottleneck, Progress};

/// Counts of files and their bytes.
#[derive(Default)]
pub(crate) struct Counts {
    /// Bytes of files that were announced.
    pub(crate) bytes: AtomicU64,
    /// Bytes of files that are dealt with: moved, there already, or the same.
    pub(crate) done: AtomicU64,
    /// Files that were announced.
    pub(crate) files: AtomicU64,
    /// Files at the destination, and those that will not be.
    pub(crate) settled: AtomicU64,
}

/// The figure now.
pub(crate) fn get(figure: &AtomicU64) -> u64 {
    figure.load(Ordering::Relaxed)
}

impl Counts {
    /// A file of `size` bytes was announced.
    pub(crate) fn announce(&self, size: u64) {
        self.bytes.fetch_add(size, Ordering::Relaxed);
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of a file are dealt with.
    pub(crate) fn done(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Files are settled.
    pub(crate) fn settle(&self, files: usize) {
        self.settled.fetch_add(files as u64, Ordering::Relaxed);
    }

    /// Bytes and files that are done.
    pub(crate) fn work(&self) -> (u64, u64) {
        (get(&self.done), get(&self.settled))
    }

    /// How far a transfer is that began then.
    pub(crate) fn progress(&self, began: Instant, streams: u32, limit: Bottleneck) -> Progress {
        let done = get(&self.done);
        Progress {
            done,
            total: get(&self.bytes),
            files: get(&self.settled),
            files_total: get(&self.files),
            rate: done as f64 / began.elapsed().as_secs_f64().max(1e-9),
            streams,
            limit,
        }
    }
}
