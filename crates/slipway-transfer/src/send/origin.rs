//! Where a sender's files lie: anywhere on this machine, or beneath a directory that no link leads out of.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::path::Relative;
use crate::tree::beneath;

/// Folder of a sender's files.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// Paths as this process sees them.
    Here,
    /// Beneath this directory, whose clients choose paths, and may have made links there.
    Beneath(Arc<OwnedFd>),
}

/// A directory, open while its entries are looked at.
pub(super) struct Folder {
    /// The way to its entries.
    pub(super) way: PathBuf,
    _open: Option<OwnedFd>,
}

impl Origin {
    /// A source as its user wrote it: its path in this origin.
    pub(super) fn source(&self, source: &Path) -> io::Result<PathBuf> {
        if matches!(self, Self::Here) {
            return Ok(source.to_owned());
        }
        let names = source.as_os_str().as_bytes().split(|&byte| byte == b'/');
        let names: Vec<&[u8]> = names.filter(|name| !name.is_empty() && *name != b".").collect();
        let path = names.join(&b'/');
        if !path.is_empty() {
            Relative::try_from(path.clone()).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        }
        Ok(PathBuf::from(std::ffi::OsStr::from_bytes(&path)))
    }

    /// Opens a directory.
    pub(super) fn folder(&self, path: &Path) -> io::Result<Folder> {
        let Self::Beneath(root) = self else { return Ok(Folder { way: path.to_owned(), _open: None }) };
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let open = beneath(root.as_fd(), path.as_os_str(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        // The way leads through the open directory (`proc_pid_fd(5)`), whatever takes its name meanwhile.
        Ok(Folder { way: format!("/proc/self/fd/{}", open.as_raw_fd()).into(), _open: Some(open) })
    }

    /// Opens a file, and follows no link to it.
    pub(super) fn file(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(File::from(match self {
            Self::Here => rustix::fs::open(path, flags, Mode::empty())?,
            Self::Beneath(root) => beneath(root.as_fd(), path.as_os_str(), flags, Mode::empty())?,
        }))
    }
}
