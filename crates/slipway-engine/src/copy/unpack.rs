//! From a tar stream to files. The stream is not trusted; the destination's own path is.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, futimens, mkdirat, open,
    openat, openat2, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::{Copied, CopyError};
use crate::image::member::{Fault, Kind, Member, Members, shown};

/// Reads the stream and makes what it holds: in `to` where that is a folder, else as `to`.
pub(super) fn unpack(from: impl Read, to: &Path) -> Result<Copied, CopyError> {
    let mut members = Members::new(from);
    let (mut place, mut copied) = (None::<Place>, Copied::default());
    while let Some(member) = members.next()? {
        let (root, below) = split(&member).map_err(|why| refused(&member, why))?;
        let place = match &mut place {
            Some(place) => place,
            None => place.insert(Place::find(to, root)?),
        };
        let path = place.path(root, &below).map_err(|why| refused(&member, why))?;
        match place.make(&path, &member, &mut members, &mut copied) {
            Ok(()) => {}
            Err(Trouble::Why(why)) => return Err(refused(&member, why)),
            Err(Trouble::Here(error)) => return Err(CopyError::io("write", &to.join(shown(&path)))(error)),
        }
    }
    match place {
        Some(_) => Ok(copied),
        None => Err(CopyError::Stream("it ended before it began".to_owned())),
    }
}

/// Where the stream's first name, and so every name, goes.
struct Place {
    folder: OwnedFd,
    root: Vec<u8>,
    name: Vec<u8>,
}

enum Trouble {
    Why(&'static str),
    Here(io::Error),
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
    fn find(to: &Path, root: &[u8]) -> Result<Self, CopyError> {
        let (folder, name) = if fs::metadata(to).is_ok_and(|found| found.is_dir()) {
            (to, root.to_vec())
        } else {
            if to.as_os_str().as_bytes().ends_with(b"/") {
                return Err(CopyError::refused(
                    to,
                    "there is no such folder\nHint: make it first, or leave the last `/` out",
                ));
            }
            let name = to.file_name().ok_or_else(|| CopyError::refused(to, "there is no such folder"))?;
            let folder = to.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
            (folder, name.as_bytes().to_vec())
        };
        let opened = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Ok(Self { folder: opened.map_err(CopyError::io("open folder", folder))?, root: root.to_vec(), name })
    }

    /// The entry's path beneath the folder.
    fn path(&self, root: &[u8], below: &[&[u8]]) -> Result<Vec<u8>, &'static str> {
        if root != self.root {
            return Err("it lies outside of what was asked for");
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
                let mut file = File::from(openat(&parent, name, flags, Mode::RUSR | Mode::WUSR)?);
                copied.bytes += io::copy(content, &mut file)?;
                fchmod(&file, mode)?;
                futimens(&file, &modified(member.mtime))?;
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
