//! From a tar stream to files. The stream is not trusted, and neither are files that an earlier one made. On this
//! machine no symbolic link is followed, on the way to the destination or below it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, fstatvfs, futimens,
    mkdirat, openat, openat2, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use slipway_document::units::Bytes;

use super::{Copied, CopyError};
use slipway_image::holes::{Side, write_content};
use slipway_image::member::{Fault, Kind, Member, Members, shown};

/// Bytes that an entry takes on a disk besides its content, for the bound on a stream.
const ENTRY: u64 = 4096;
/// Where nothing else is said, so much of what is free may be filled: of ten parts.
const SHARE: u64 = 9;

/// Rules that a stream is held to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules<'a> {
    /// The name that was asked for. Inside a node any: it comes from the caller.
    pub(super) name: Option<&'a OsStr>,
    /// Whether symbolic links on the way to the destination are followed, as they are inside a node.
    pub(super) follow: bool,
    /// Whether bytes and entries of the stream are bounded.
    pub(super) bounded: bool,
    /// Bytes that may come; `None` for a share of what is free at the destination.
    pub(super) most: Option<Bytes>,
}

/// Reads the stream and makes what it holds: in `to` where that is a folder, else as `to`.
pub(super) fn unpack(from: impl Read, to: &Path, rules: Rules<'_>) -> Result<Copied, CopyError> {
    let mut members = Members::new(from);
    let (mut place, mut copied) = (None::<Place>, Copied::default());
    while let Some(member) = members.next()? {
        let (root, below) = split(&member).map_err(|why| refused(&member, why))?;
        if rules.name.is_some_and(|name| name.as_bytes() != root) {
            return Err(refused(&member, NOT_ASKED_FOR));
        }
        let place = match &mut place {
            Some(place) => place,
            None => place.insert(Place::find(to, root, rules)?),
        };
        let path = place.path(root, &below).map_err(|why| refused(&member, why))?;
        place.room.take(&member, members.announced()).map_err(|()| place.room.exceeded(to))?;
        match place.make(&path, &member, &mut members, &mut copied) {
            Ok(()) => {}
            Err(Trouble::Why(why)) => return Err(refused(&member, why)),
            Err(Trouble::Stream(fault)) => return Err(fault.into()),
            Err(Trouble::Here(error)) => return Err(CopyError::io("write", &to.join(shown(&path)))(error)),
        }
        if let Kind::Symlink(target) = &member.kind {
            copied.outward += u64::from(leads_out(&below, target));
        }
    }
    match place {
        Some(_) => Ok(copied),
        None => Err(CopyError::Stream("it ended before it began".to_owned())),
    }
}

const NOT_ASKED_FOR: &str = "it lies outside of what was asked for\nHint: a program of the node wrote this stream, not slipway's agent: distrust the node";

/// Where the stream's first name, and so every name, goes.
struct Place {
    folder: OwnedFd,
    root: Vec<u8>,
    name: Vec<u8>,
    room: Room,
}

/// Bytes and entries that may still come.
struct Room {
    of: Bytes,
    bytes: u64,
    entries: u64,
}

impl Room {
    fn at(folder: &OwnedFd, rules: Rules<'_>) -> io::Result<Self> {
        if !rules.bounded {
            return Ok(Self { of: Bytes(u64::MAX), bytes: u64::MAX, entries: u64::MAX });
        }
        let found = fstatvfs(folder)?;
        let share = |free: u64| free / 10 * SHARE;
        // Some file systems make room for entries as they come.
        let entries = if found.f_files == 0 { u64::MAX } else { share(found.f_favail) };
        let of = rules.most.unwrap_or(Bytes(share(found.f_bavail.saturating_mul(found.f_frsize))));
        Ok(Self { of, bytes: of.0, entries })
    }

    fn take(&mut self, member: &Member, announced: u64) -> Result<(), ()> {
        let content = if member.kind == Kind::File { announced } else { 0 };
        let cost = content.saturating_add(ENTRY);
        self.bytes = self.bytes.checked_sub(cost).ok_or(())?;
        self.entries = self.entries.checked_sub(1).ok_or(())?;
        Ok(())
    }

    fn exceeded(&self, to: &Path) -> CopyError {
        CopyError::TooMuch { path: to.to_owned(), most: self.of }
    }
}

enum Trouble {
    Why(&'static str),
    Stream(Fault),
    Here(io::Error),
}

impl From<Side> for Trouble {
    fn from(side: Side) -> Self {
        match side {
            Side::Content(error) => Self::Stream(error.into()),
            Side::File(error) => Self::Here(error),
        }
    }
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::LOOP => Self::Why(
                "it lies below a symbolic link at the destination\nHint: remove the link, or copy to where it leads",
            ),
            Errno::NOTDIR => Self::Why("it lies below a file at the destination"),
            Errno::ISDIR => Self::Why("there is a folder of its name at the destination"),
            errno => Self::Here(errno.into()),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Here(error)
    }
}

impl From<Fault> for CopyError {
    fn from(fault: Fault) -> Self {
        Self::Stream(match fault {
            Fault::Io(error) => error.to_string(),
            Fault::Malformed(what) => what,
        })
    }
}

impl Place {
    fn find(to: &Path, root: &[u8], rules: Rules<'_>) -> Result<Self, CopyError> {
        let resolve = if rules.follow { ResolveFlags::empty() } else { ResolveFlags::NO_SYMLINKS };
        let folder = |path: &Path| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat2(CWD, path, flags, Mode::empty(), resolve)
        };
        let (folder, name) = match folder(to) {
            Ok(folder) => (folder, root.to_vec()),
            // A last part that is a link is replaced, as a file is; where it leads to a folder nobody knows which is meant.
            Err(Errno::LOOP) if !std::fs::metadata(to).is_ok_and(|found| !found.is_dir()) => return Err(linked(to)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                if to.as_os_str().as_bytes().ends_with(b"/") {
                    return Err(CopyError::refused(
                        to,
                        "there is no such folder\nHint: make it first, or leave the last `/` out",
                    ));
                }
                let name = to.file_name().ok_or_else(|| CopyError::refused(to, "there is no such folder"))?;
                let around = to.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
                let opened = folder(around).map_err(|errno| match errno {
                    Errno::LOOP => linked(around),
                    errno => CopyError::io("open folder", around)(errno),
                })?;
                (opened, name.as_bytes().to_vec())
            }
            Err(errno) => return Err(CopyError::io("open folder", to)(errno)),
        };
        let measured = Room::at(&folder, rules).map_err(CopyError::io("look for room at", to))?;
        Ok(Self { folder, root: root.to_vec(), name, room: measured })
    }

    /// The entry's path beneath the folder.
    fn path(&self, root: &[u8], below: &[&[u8]]) -> Result<Vec<u8>, &'static str> {
        if root != self.root {
            return Err(NOT_ASKED_FOR);
        }
        Ok([&[self.name.as_slice()], below].concat().join(&b'/'))
    }

    fn make(&self, path: &[u8], member: &Member, content: &mut impl Read, copied: &mut Copied) -> Result<(), Trouble> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (self.beneath(&path[..slash])?, &path[slash + 1..]),
            None => (self.folder.try_clone()?, path),
        };
        let mode = Mode::from_raw_mode(member.mode & 0o777);
        match &member.kind {
            Kind::Directory => match mkdirat(&parent, name, mode) {
                Ok(()) => fchmod(self.beneath(path)?, mode)?,
                Err(Errno::EXIST) => {
                    self.beneath(path)?;
                }
                Err(errno) => return Err(errno.into()),
            },
            Kind::File => {
                clear(&parent, name)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = File::from(openat(&parent, name, flags, Mode::RUSR | Mode::WUSR)?);
                let written = fill(&file, content, member, mode);
                if written.is_err() {
                    // Half a file would pass for a whole one. It may be gone already.
                    let _ = unlinkat(&parent, name, AtFlags::empty());
                }
                copied.bytes += written?;
            }
            Kind::Symlink(target) => {
                clear(&parent, name)?;
                symlinkat(target.as_slice(), &parent, name)?;
            }
            Kind::Fifo => {
                copied.skipped += 1;
                return Ok(());
            }
            Kind::HardLink(_) | Kind::Device => return Err(Trouble::Why("it is of a kind that is never copied")),
        }
        copied.entries += 1;
        Ok(())
    }

    /// A folder within what is being made; no link leads to it.
    fn beneath(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        openat2(
            &self.folder,
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        )
    }
}

fn fill(file: &File, content: &mut impl Read, member: &Member, mode: Mode) -> Result<u64, Trouble> {
    let written = write_content(content, file, member.runs.as_ref())?;
    fchmod(file, mode)?;
    futimens(file, &modified(member.mtime))?;
    Ok(written)
}

/// A link on the way to the destination: it may be one that an earlier copy brought.
fn linked(to: &Path) -> CopyError {
    let whole = std::fs::canonicalize(to).or_else(|error| match (to.parent(), to.file_name()) {
        (Some(around), Some(name)) => Ok(std::fs::canonicalize(around)?.join(name)),
        _ => Err(error),
    });
    let hint = match whole {
        Ok(whole) => format!("if that is where it is to go, write {}", shown(whole.as_os_str().as_bytes())),
        Err(_) => "remove the link".to_owned(),
    };
    CopyError::Linked { path: to.to_owned(), hint }
}

/// Whether a link in a tree leads out of it, or might.
fn leads_out(below: &[&[u8]], target: &[u8]) -> bool {
    let mut depth = below.len().saturating_sub(1);
    if below.is_empty() || target.starts_with(b"/") {
        return true;
    }
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(up) => depth = up,
                None => return true,
            },
            _ => depth += 1,
        }
    }
    false
}

/// Removes what a new file or link replaces. A link is replaced, not followed.
fn clear(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => Err(Errno::ISDIR),
        Ok(_) => unlinkat(parent, name, AtFlags::empty()),
        Err(errno) => Err(errno),
    }
}

/// The first part of an entry's name, and the others.
fn split(member: &Member) -> Result<(&[u8], Vec<&[u8]>), &'static str> {
    let path = member.path.strip_suffix(b"/").unwrap_or(&member.path);
    let mut parts = path.split(|byte| *byte == b'/');
    let plain = |part: &&[u8]| !matches!(*part, b"" | b"." | b"..") && !part.contains(&0);
    match parts.next().filter(plain) {
        Some(root) => {
            let below: Vec<&[u8]> = parts.collect();
            if below.iter().all(plain) { Ok((root, below)) } else { Err("its name leads elsewhere") }
        }
        None => Err("its name leads elsewhere"),
    }
}

fn modified(mtime: Timespec) -> Timestamps {
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: mtime }
}

fn refused(member: &Member, why: &'static str) -> CopyError {
    CopyError::refused(Path::new(&shown(&member.path)), why)
}
