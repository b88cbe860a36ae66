//! Folders that somebody else may change while they are read: nothing in them is followed.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;

/// Deeper than any path that programs can use (`PATH_MAX`), and shallow enough for one descriptor a level.
pub const MAX_DEPTH: usize = 500;

/// A folder being walked.
pub struct Folder {
    /// The folder.
    pub fd: OwnedFd,
    /// The directory's name, for messages.
    pub path: PathBuf,
    /// Names that are left, last first.
    pub names: Vec<CString>,
}

impl Folder {
    /// Lists the folder.
    pub fn read(fd: OwnedFd, path: PathBuf) -> Result<Self, Errno> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(entry.file_name().to_owned());
            }
        }
        // In order, so that the same content gives the same archive.
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Self { fd, path, names })
    }
}

/// Opens what has this name in a folder for reading; a symbolic link there is an error.
pub fn open_in(folder: impl AsFd, name: &CString, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(folder, name, flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}
