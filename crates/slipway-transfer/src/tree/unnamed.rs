//! Files that have no name until they are whole (`O_TMPFILE` of `open(2)`). They cost no entry in the part folder, and a
//! crash leaves nothing of them. So they suit small files, which come in one piece.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{Tree, absent, across};
use crate::message::Meta;
use crate::meta::Birth;
use crate::path::Relative;

/// Owner and mode of new files, by a try with one. `None` where the file system has no files without a name. `None` also where
/// new files get access control lists.
pub(super) fn birth(part: &OwnedFd) -> Option<Birth> {
    let file = open(part, 0o777).ok()?;
    match rustix::fs::fgetxattr(&file, "system.posix_acl_access", &mut [0_u8; 1024]) {
        Err(Errno::NODATA | Errno::NOTSUP) => {}
        _ => return None,
    }
    let found = rustix::fs::fstat(&file).ok()?;
    Some(Birth { uid: found.st_uid, gid: found.st_gid, mask: found.st_mode & 0o777 })
}

fn open(part: &OwnedFd, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    rustix::fs::openat(part, c".", flags, Mode::from_raw_mode(mode))
}

impl Tree {
    /// A file without a name, whose permission bits are those of `meta` as far as the umask lets them. `None` where it
    /// must have a name.
    pub(crate) fn unnamed(&self, meta: &Meta) -> io::Result<Option<(File, Birth)>> {
        let Some(birth) = self.birth else { return Ok(None) };
        Ok(Some((File::from(open(self.part()?, meta.mode & 0o777)?), birth)))
    }

    /// Puts a file without a name in its place, in one step.
    pub(crate) fn name(&self, file: &File, path: &Relative) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let link = |folder: &OwnedFd, name: &std::ffi::OsStr| match rustix::fs::linkat(
            file,
            c"",
            folder,
            name,
            AtFlags::EMPTY_PATH,
        ) {
            // Before Linux 6.10 this takes a capability (`open(2)`).
            Err(Errno::NOENT) => {
                let file = format!("/proc/self/fd/{}", file.as_raw_fd());
                rustix::fs::linkat(rustix::fs::CWD, file, folder, name, AtFlags::SYMLINK_FOLLOW)
            }
            other => other,
        };
        match link(&parent, name) {
            Err(Errno::EXIST) => {
                let part = self.part()?;
                let temporary = path.part_name();
                absent(rustix::fs::unlinkat(part, &temporary, AtFlags::empty()))?;
                link(part, temporary.as_ref())?;
                self.place(&temporary, &parent, name)
            }
            other => across(other),
        }
    }
}
