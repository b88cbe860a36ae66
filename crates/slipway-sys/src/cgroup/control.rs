//! A folder of a control group file system, by descriptor.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, open, openat, unlinkat};
use rustix::io::Errno;

use super::{CgroupError, failed};

/// The path is for messages only: everything goes through the descriptor.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

impl Folder {
    /// `None` where there is none.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, CgroupError> {
        match open(path, FOLDER, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd, path: path.to_owned() })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed("open", path)(error.into())),
        }
    }

    /// Opens a child; `None` where there is none.
    pub(super) fn child(&self, name: &str) -> Result<Option<Self>, CgroupError> {
        let path = self.path.join(name);
        match openat(&self.fd, name, FOLDER, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed("open", &path)(error.into())),
        }
    }

    /// Makes a child, or opens the one that is there; `None` where this folder itself is gone, or the child was removed
    /// right after it was made.
    pub(super) fn make(&self, name: &str) -> Result<Option<Self>, CgroupError> {
        match mkdirat(&self.fd, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => self.child(name),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed("make", &self.path.join(name))(error.into())),
        }
    }

    /// Names of the child folders.
    pub(super) fn children(&self) -> Result<Vec<String>, CgroupError> {
        let list = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in Dir::read_from(&self.fd)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if entry.file_type() == FileType::Directory && name != "." && name != ".." {
                    names.push(name);
                }
            }
            Ok(names)
        };
        list().map_err(failed("list", &self.path))
    }

    /// Removes an empty child. False where something in it still ends (`EBUSY`).
    pub(super) fn remove(&self, name: &str) -> Result<bool, CgroupError> {
        match unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::BUSY) => Ok(false),
            Err(error) => Err(failed("remove", &self.path.join(name))(error.into())),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.fd, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?.into())
    }

    pub(super) fn write(&self, name: &str, value: &str) -> Result<(), CgroupError> {
        self.try_write(name, value).map_err(failed("write", &self.path.join(name)))
    }

    pub(super) fn try_write(&self, name: &str, value: &str) -> io::Result<()> {
        self.open_file(name, OFlags::WRONLY)?.write_all(value.as_bytes())
    }

    pub(super) fn read(&self, name: &str) -> Result<String, CgroupError> {
        self.try_read(name).map_err(failed("read", &self.path.join(name)))
    }

    pub(super) fn try_read(&self, name: &str) -> io::Result<String> {
        let mut text = String::new();
        self.open_file(name, OFlags::RDONLY)?.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Whether a control file exists, for features that came with later kernels.
    pub(super) fn has(&self, name: &str) -> bool {
        rustix::fs::accessat(&self.fd, name, rustix::fs::Access::EXISTS, AtFlags::empty()).is_ok()
    }
}

/// Refuses names that lead out of the folder.
pub(super) fn check_name(name: &str) -> Result<(), CgroupError> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(CgroupError::BadName(name.to_owned()));
    }
    Ok(())
}
