//! A file on its way out.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::found::Found;
use super::origin::Origin;
use crate::path::Relative;

/// Figures that tell one state of a file from another: device, inode, size, times of content and status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp([i128; 5]);

impl Stamp {
    pub(super) fn of(found: &Metadata) -> Self {
        let time = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self([
            found.dev().into(),
            found.ino().into(),
            found.size().into(),
            time(found.mtime(), found.mtime_nsec()),
            time(found.ctime(), found.ctime_nsec()),
        ])
    }
}

/// A file on its way out.
pub(super) struct Outgoing {
    pub(super) id: u64,
    pub(super) path: Relative,
    /// The file's path in its origin.
    source: PathBuf,
    origin: Origin,
    pub(super) size: u64,
    /// The file system may know holes in it.
    pub(super) sparse: bool,
    stamp: Stamp,
    file: Mutex<Option<Arc<File>>>,
    /// Segments that are not done.
    pub(super) left: AtomicUsize,
    /// The receiver said all that it has of it.
    pub(super) answered: AtomicBool,
    /// Bytes that the receiver keeps for it, about.
    pub(super) weight: usize,
    /// It changed, or could not be read.
    pub(super) spoilt: AtomicBool,
    found: Mutex<Found>,
}

impl Outgoing {
    pub(super) fn new(
        id: u64,
        path: Relative,
        (origin, source): (Origin, PathBuf),
        found: &Metadata,
        weight: usize,
    ) -> Self {
        Self {
            id,
            path,
            source,
            origin,
            size: found.size(),
            sparse: found.blocks().saturating_mul(512) < found.size(),
            stamp: Stamp::of(found),
            file: Mutex::default(),
            left: AtomicUsize::new(0),
            answered: AtomicBool::new(false),
            weight,
            spoilt: AtomicBool::new(false),
            found: Mutex::default(),
        }
    }

    /// The receiver's blocks of the file.
    pub(super) fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file, open. An error of kind `InvalidData` where it is not as it was listed.
    pub(super) fn open(&self) -> io::Result<Arc<File>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let opened = Arc::new(self.open_unseen()?);
        self.unchanged(&opened)?;
        Ok(file.insert(opened).clone())
    }

    /// The file, open, which may be another by now.
    pub(super) fn open_unseen(&self) -> io::Result<File> {
        self.origin.file(&self.source)
    }

    /// Fails with `InvalidData` where the file is not as it was listed.
    pub(super) fn unchanged(&self, file: &File) -> io::Result<()> {
        if Stamp::of(&file.metadata()?) == self.stamp { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Closes the file.
    pub(super) fn close(&self) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
