//! Objects that wait in a worker's folder, for storage that does not take files as they are.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, unlinkat};

use super::{content, file_name};
use crate::beneath;
use crate::digest::Digest;

/// An object in a worker's folder `out`. Its bytes are the worker's: nothing is checked but its kind.
#[derive(Debug)]
pub struct Waiting {
    folder: OwnedFd,
    digest: Digest,
    file: File,
    size: u64,
}

impl Waiting {
    /// Opens an object; `None` where the folder does not have it.
    ///
    /// # Errors
    /// Of the file system, and where the object is no regular file, or empty.
    pub fn open(out: &Path, digest: &Digest) -> io::Result<Option<Self>> {
        let folder = beneath::folder(out)?;
        let file = match beneath::file(&folder, Path::new(&file_name(digest))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let size = file.metadata()?.len();
        if size == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the worker's file is empty"));
        }
        Ok(Some(Self { folder, digest: *digest, file, size }))
    }

    /// Compressed size in bytes, when it was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The compressed bytes.
    ///
    /// # Errors
    /// Where no further descriptor is to be had.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Whether the content is the one that the digest names.
    ///
    /// # Errors
    /// Where the file cannot be read from its beginning again.
    pub fn is_right(&self) -> io::Result<bool> {
        let mut file = self.file.try_clone()?;
        let plain = content::plain(Box::new(file.try_clone()?), &self.digest, u64::MAX);
        let is_right = plain.is_ok_and(|mut plain| io::copy(&mut plain, &mut io::sink()).is_ok());
        file.rewind()?;
        Ok(is_right)
    }

    /// Removes the object from the worker's folder. One that is gone is no error.
    ///
    /// # Errors
    /// Of the file system.
    pub fn remove(self) -> io::Result<()> {
        match unlinkat(&self.folder, file_name(&self.digest), AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            done => Ok(done?),
        }
    }
}
