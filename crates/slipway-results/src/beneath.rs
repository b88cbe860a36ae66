//! Files in a folder that somebody else wrote.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

/// Paths stay in the folder and follow no symbolic link: `openat2(2)`.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Opens a folder that the caller trusts to be one.
pub(crate) fn folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a folder in another one.
pub(crate) fn folder_in(folder: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(folder, path, flags, Mode::empty(), INSIDE).map_err(why)
}

/// Opens a regular file for reading. Opening a FIFO does not wait for its writer.
pub(crate) fn file(folder: impl AsFd, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    regular(openat2(folder, path, flags, Mode::empty(), INSIDE).map_err(why)?)
}

/// A descriptor of a regular file, as one. Others are refused by their kind.
pub(crate) fn regular(fd: OwnedFd) -> io::Result<File> {
    let kind = FileType::from_raw_mode(fstat(&fd)?.st_mode);
    if kind == FileType::RegularFile {
        return Ok(File::from(fd));
    }
    Err(io::Error::other(format!("it is {}, not a regular file", kind_name(kind))))
}

/// The name of a file's kind, with its article.
pub(crate) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}

fn why(errno: Errno) -> io::Error {
    match errno {
        Errno::LOOP => io::Error::other("a symbolic link leads to it"),
        Errno::XDEV => io::Error::other("its path leads out of the folder"),
        // open(2): a socket, or a device without a driver.
        Errno::NXIO => io::Error::other("it is a socket or a device, not a regular file"),
        errno => errno.into(),
    }
}
