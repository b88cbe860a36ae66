//! Attributes: read at one end, applied at the other.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::message::Meta;

/// Bytes of one entry's extended attributes, at most; more would not fit its order.
const LARGEST_XATTRS: usize = 256 << 10;

/// True for extended attributes that go along: what users and access control lists wrote, and file capabilities. Those of
/// security modules belong to one machine.
fn travels(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || [&b"system.posix_acl_access"[..], b"system.posix_acl_default", b"security.capability"].contains(&name)
}

/// Attributes of what lies at `path`, where no link is followed.
pub(crate) fn read(path: &Path, found: &Metadata) -> io::Result<Meta> {
    let xattrs = if found.is_symlink() {
        Vec::new()
    } else {
        xattrs(|names| rustix::fs::llistxattr(path, names), |name, value| rustix::fs::lgetxattr(path, name, value))?
    };
    Ok(with(found, xattrs))
}

/// Attributes of an open file.
pub(crate) fn of(file: &File) -> io::Result<Meta> {
    let xattrs =
        xattrs(|names| rustix::fs::flistxattr(file, names), |name, value| rustix::fs::fgetxattr(file, name, value))?;
    Ok(with(&file.metadata()?, xattrs))
}

fn with(found: &Metadata, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Meta {
    Meta {
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        mtime: (found.mtime(), u32::try_from(found.mtime_nsec()).unwrap_or(0)),
        xattrs,
    }
}

/// The extended attributes that go along. `list` and `get` fill a buffer, and say how long the value is.
fn xattrs(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let absent = |error: Errno| matches!(error, Errno::NOTSUP | Errno::NODATA | Errno::PERM | Errno::ACCESS);
    let mut names = vec![0; 1 << 10];
    let length = loop {
        match list(&mut names) {
            Ok(length) => break length,
            Err(Errno::RANGE) if names.len() < LARGEST_XATTRS => names.resize(names.len() * 4, 0),
            Err(error) if absent(error) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
    };
    let mut found = Vec::new();
    let mut total = 0;
    for name in names[..length].split(|&byte| byte == 0).filter(|name| travels(name)) {
        let mut value = vec![0; 64 << 10];
        match get(name, &mut value) {
            Ok(length) => value.truncate(length),
            Err(error) if absent(error) => continue,
            Err(error) => return Err(error.into()),
        }
        total += name.len() + value.len();
        if total > LARGEST_XATTRS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its extended attributes are too long"));
        }
        found.push((name.to_vec(), value));
    }
    found.sort();
    Ok(found)
}

/// Attributes that the kernel gives to a new file in the part folder, when nobody sets them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Birth {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Permission bits that the umask leaves.
    pub(crate) mask: u32,
}

/// Applies attributes. Owners and file capabilities where this process is root. `birth` says what the file has already.
pub(crate) fn apply(file: &File, meta: &Meta, birth: Option<Birth>) -> io::Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    let mut mode = meta.mode & 0o7777;
    let has_owner = birth.is_some_and(|birth| (birth.uid, birth.gid) == (meta.uid, meta.gid));
    if is_root && !has_owner {
        rustix::fs::fchown(file, Some(owner(meta.uid)?), Some(group(meta.gid)?))?;
    }
    if !is_root {
        // The file belongs to another user here, to whom nobody gave these powers.
        mode &= 0o1777;
    }
    if birth.is_none_or(|birth| meta.mode & birth.mask != mode) {
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
    }
    for (name, value) in meta.xattrs.iter().filter(|(name, _)| travels(name)) {
        if !is_root && name.starts_with(b"security.") {
            continue;
        }
        match rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
            Err(Errno::NOTSUP) => tracing::debug!("the file system at the destination has no extended attributes"),
            other => other?,
        }
    }
    rustix::fs::futimens(file, &times(meta))?;
    Ok(())
}

/// Access stays as it is.
pub(crate) fn times(meta: &Meta) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: Timespec { tv_sec: meta.mtime.0, tv_nsec: i64::from(meta.mtime.1.min(999_999_999)) },
    }
}

/// `-1` would mean: leave it.
fn owner(uid: u32) -> io::Result<Uid> {
    if uid == u32::MAX { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(Uid::from_raw(uid)) }
}

fn group(gid: u32) -> io::Result<Gid> {
    if gid == u32::MAX { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(Gid::from_raw(gid)) }
}

/// The differences between two entries' attributes, in words; empty where there are none.
pub(crate) fn differences(here: &Meta, there: &Meta) -> Vec<&'static str> {
    let pairs = [
        (here.mode == there.mode, "mode"),
        (here.mtime == there.mtime, "time"),
        ((here.uid, here.gid) == (there.uid, there.gid) || !rustix::process::geteuid().is_root(), "owner"),
        (here.xattrs == there.xattrs, "extended attributes"),
    ];
    pairs.into_iter().filter(|(same, _)| !same).map(|(_, word)| word).collect()
}
