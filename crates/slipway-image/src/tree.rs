//! The folder that an archive is unpacked into, as a layer of an overlay: OCI whiteouts become overlayfs's.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
    chmodat, chownat, fchmod, fchown, fsetxattr, futimens, linkat, mkdirat, mknodat, openat, openat2, statat,
    symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::holes::{self, write_content};
use super::member::{Fault, Kind, Member};

/// Prefix of a whiteout: `.wh.NAME` hides NAME (OCI image specification, `layer.md`).
pub(super) const WHITEOUT: &[u8] = b".wh.";
/// In a directory: hides all that lower layers have in it.
pub(super) const OPAQUE: &[u8] = b".wh..wh..opq";

/// The name of overlayfs's own attribute: root's, or in a user namespace the user's (mount option `userxattr`).
pub(super) fn overlay_xattr(name: &str) -> io::Result<String> {
    let class = if slipway_sys::ns::in_first_user_namespace()? { "trusted" } else { "user" };
    Ok(format!("{class}.overlay.{name}"))
}

/// Attributes that belong to a file's content. The rest are this machine's (`trusted.*`, labels of a security module)
/// or would speak to overlayfs.
pub(super) fn is_kept(xattr: &str) -> bool {
    xattr == "security.capability"
        || xattr == "system.posix_acl_access"
        || xattr == "system.posix_acl_default"
        || (xattr.starts_with("user.") && !xattr.starts_with("user.overlay."))
}

/// Why an entry has no place here.
pub(super) enum Refusal {
    /// In the words of "entry … WHY".
    Why(&'static str),
    /// It may, but this machine did not take it.
    Write(io::Error),
}

/// The reason why an entry was not placed.
pub(super) enum Place {
    Stream(Fault),
    Refusal(Refusal),
}

impl From<Refusal> for Place {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::LOOP | Errno::XDEV => Self::Why("leads through a symbolic link"),
            Errno::NOTDIR => Self::Why("lies below something that is not a directory"),
            _ => Self::Write(errno.into()),
        }
    }
}

impl From<holes::Side> for Place {
    fn from(side: holes::Side) -> Self {
        match side {
            holes::Side::Content(error) => Self::Stream(error.into()),
            holes::Side::File(error) => Refusal::Write(error).into(),
        }
    }
}

impl From<Errno> for Place {
    fn from(errno: Errno) -> Self {
        Self::Refusal(errno.into())
    }
}

/// The folder that is being filled.
pub(super) struct Tree {
    root: OwnedFd,
    /// The directory of the last entry: the next one is most often in it too.
    last: Option<(Vec<u8>, OwnedFd)>,
    /// Directories around the last entry whose modification time is set once the archive has left them.
    open: Vec<(Vec<u8>, Timespec)>,
    opaque: String,
    first_user_namespace: bool,
    /// Entries it may still make, those included that the archive only implies.
    allowance: u64,
}

impl Tree {
    /// `allowance`: entries it may make.
    pub(super) fn new(into: &Path, allowance: u64) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self {
            root: openat(CWD, into, flags, Mode::empty())?,
            last: None,
            open: Vec::new(),
            opaque: overlay_xattr("opaque")?,
            first_user_namespace: slipway_sys::ns::in_first_user_namespace()?,
            allowance,
        })
    }

    /// Makes what the member says, with its content.
    pub(super) fn place(&mut self, member: &Member, content: &mut impl Read) -> Result<(), Place> {
        self.spend()?;
        let path = clean(&member.path)?;
        self.leave(&path)?;
        let Some((parent, name)) = split(&path) else {
            if member.kind != Kind::Directory {
                return Err(Refusal::Why("would replace the root directory").into());
            }
            let root = self.root.try_clone().map_err(Refusal::Write)?;
            self.own_directory(&root, &path, member)?;
            return Ok(());
        };
        self.enter(parent)?;
        let dir = self.last.as_ref().map_or(&self.root, |(_, fd)| fd);
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            return Ok(self.whiteout(dir, name, hidden)?);
        }
        match &member.kind {
            Kind::File => {
                make_way(dir, name)?;
                let file = create(dir, name)?;
                write_content(content, &file, member.runs.as_ref())?;
                self.own(&file, member)?;
                futimens(&file, &times(member.mtime))?;
            }
            Kind::Directory => {
                let made = self.directory(name)?;
                self.own_directory(&made, &path, member)?;
                self.last = Some((path, made));
            }
            Kind::Symlink(target) => {
                make_way(dir, name)?;
                symlinkat(target.as_slice(), dir, name)?;
                self.own_unopened(dir, name, member)?;
            }
            Kind::HardLink(target) => self.hard_link(dir, name, target)?,
            Kind::Fifo => {
                make_way(dir, name)?;
                mknodat(dir, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
                self.own_unopened(dir, name, member)?;
                chmodat(dir, name, mode(member), AtFlags::empty())?;
            }
            Kind::Device => {
                return Err(Refusal::Why(
                    "is a device\nHint: a node's /dev is made anew; leave devices out of the archive (`tar --exclude='./dev/*'`)",
                )
                .into());
            }
        }
        Ok(())
    }

    fn spend(&mut self) -> Result<(), Refusal> {
        self.allowance = self.allowance.checked_sub(1).ok_or(Refusal::Why(
            "is one too many\nHint: if so many are right, raise the limit, as in SLIPWAY_IMAGE_MAX=100GiB",
        ))?;
        Ok(())
    }

    /// Makes the last directory the one at `path`, making what is missing on the way.
    fn enter(&mut self, path: &[u8]) -> Result<(), Refusal> {
        if self.last.as_ref().is_some_and(|(at, _)| at == path) {
            return Ok(());
        }
        self.last = None;
        if path.is_empty() {
            return Ok(());
        }
        let fd = match beneath(&self.root, path) {
            // Missing, or a whiteout of this layer stands where its own directory goes.
            Err(Errno::NOENT | Errno::NOTDIR) => {
                let mut fd = self.root.try_clone().map_err(Refusal::Write)?;
                for name in path.split(|byte| *byte == b'/') {
                    self.spend()?;
                    fd = subdirectory(&fd, name, &self.opaque)?;
                }
                fd
            }
            found => found?,
        };
        self.last = Some((path.to_vec(), fd));
        Ok(())
    }

    /// The directory `name` in the last one, made unless it is there.
    fn directory(&self, name: &[u8]) -> Result<OwnedFd, Refusal> {
        let dir = self.last.as_ref().map_or(&self.root, |(_, fd)| fd);
        match kind(dir, name)? {
            None | Some((FileType::Directory | FileType::CharacterDevice, _)) => {}
            Some(_) => unlinkat(dir, name, AtFlags::empty())?,
        }
        subdirectory(dir, name, &self.opaque)
    }

    fn whiteout(&self, dir: &OwnedFd, name: &[u8], hidden: &[u8]) -> Result<(), Refusal> {
        if name == OPAQUE {
            return Ok(set_opaque(dir, &self.opaque)?);
        }
        if hidden.starts_with(WHITEOUT) {
            // AUFS's own files, which the specification reserves.
            return Ok(());
        }
        if hidden.is_empty() || hidden == b"." || hidden == b".." {
            return Err(Refusal::Why("hides nothing that can be named"));
        }
        match kind(dir, hidden)? {
            None => Ok(mknodat(dir, hidden, FileType::CharacterDevice, Mode::empty(), 0)?),
            // The layer hides what is below and puts its own in the same place.
            Some((FileType::Directory, _)) => Ok(set_opaque(&beneath(dir, hidden)?, &self.opaque)?),
            Some(_) => Ok(()),
        }
    }

    fn hard_link(&self, dir: &OwnedFd, name: &[u8], target: &[u8]) -> Result<(), Refusal> {
        const LEAVES: &str = "is a hard link to something outside of the archive\nHint: make the archive from within the root (`tar -C ROOT -c .`)";
        if target.starts_with(b"/") {
            return Err(Refusal::Why(LEAVES));
        }
        let target = clean(target).map_err(|_| Refusal::Why(LEAVES))?;
        let Some((parent, last)) = split(&target) else {
            return Err(Refusal::Why("is a hard link to the root directory"));
        };
        let from = if parent.is_empty() {
            self.root.try_clone().map_err(Refusal::Write)?
        } else {
            beneath(&self.root, parent)?
        };
        let Some((_, inode)) = kind(&from, last)? else {
            return Err(Refusal::Why("is a hard link to an entry that did not come before it"));
        };
        if kind(dir, name)?.is_some_and(|(_, there)| there == inode) {
            return Ok(());
        }
        make_way(dir, name)?;
        Ok(linkat(&from, last, dir, name, AtFlags::empty())?)
    }

    /// Owner, mode and attributes of a directory; its time follows when the archive leaves it.
    fn own_directory(&mut self, fd: &OwnedFd, path: &[u8], member: &Member) -> Result<(), Refusal> {
        self.own(fd, member)?;
        self.open.push((path.to_vec(), member.mtime));
        Ok(())
    }

    /// In this order: a change of owner takes set-user-id bits and capabilities away.
    fn own(&self, fd: impl AsFd, member: &Member) -> Result<(), Refusal> {
        let (uid, gid) = owner(member);
        self.unmapped(fchown(&fd, uid, gid))?;
        fchmod(&fd, mode(member))?;
        for (name, value) in &member.xattrs {
            if is_kept(name) {
                fsetxattr(&fd, name.as_str(), value, XattrFlags::empty())?;
            }
        }
        Ok(())
    }

    fn own_unopened(&self, dir: &OwnedFd, name: &[u8], member: &Member) -> Result<(), Refusal> {
        let (uid, gid) = owner(member);
        self.unmapped(chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
        let times = times(member.mtime);
        Ok(utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// In a user namespace most owners do not exist; their files are its root's then.
    fn unmapped(&self, changed: Result<(), Errno>) -> Result<(), Errno> {
        match changed {
            Err(Errno::INVAL) if !self.first_user_namespace => Ok(()),
            other => other,
        }
    }

    /// Sets the times of directories that `path` is not in.
    fn leave(&mut self, path: &[u8]) -> Result<(), Refusal> {
        while let Some((dir, mtime)) = self.open.last() {
            let inside = dir.is_empty() || path.strip_prefix(dir.as_slice()).is_some_and(|rest| rest.starts_with(b"/"));
            if inside {
                break;
            }
            self.stamp(dir, *mtime)?;
            self.open.pop();
        }
        Ok(())
    }

    fn stamp(&self, dir: &[u8], mtime: Timespec) -> Result<(), Errno> {
        if dir.is_empty() {
            return futimens(&self.root, &times(mtime));
        }
        utimensat(&self.root, dir, &times(mtime), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Sets the times of what is still open.
    pub(super) fn finish(self) -> io::Result<()> {
        for (dir, mtime) in self.open.iter().rev() {
            self.stamp(dir, *mtime)?;
        }
        Ok(())
    }
}

/// A name beneath the root, as tar reads it: without `.` and needless slashes, and never upwards.
fn clean(path: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut cleaned = Vec::with_capacity(path.len());
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err(Refusal::Why("leads upwards with `..`")),
            _ if part.contains(&0) => return Err(Refusal::Why("has a NUL in its name")),
            _ => {}
        }
        if !cleaned.is_empty() {
            cleaned.push(b'/');
        }
        cleaned.extend_from_slice(part);
    }
    Ok(cleaned)
}

/// Parent and last part; `None` for the root.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => Some((&path[..slash], &path[slash + 1..])),
        None => Some((b"", path)),
    }
}

/// Opens a directory that no symbolic link leads to.
fn beneath(dir: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    openat2(
        dir,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
    )
}

/// The directory `name`, made where there is none; one that takes a whiteout's place hides what is below.
fn subdirectory(dir: &OwnedFd, name: &[u8], opaque: &str) -> Result<OwnedFd, Refusal> {
    let hides = matches!(kind(dir, name)?, Some((FileType::CharacterDevice, _)));
    if hides {
        unlinkat(dir, name, AtFlags::empty())?;
    }
    match mkdirat(dir, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let made = beneath(dir, name)?;
    if hides {
        set_opaque(&made, opaque)?;
    }
    Ok(made)
}

fn set_opaque(dir: &OwnedFd, xattr: &str) -> Result<(), Errno> {
    fsetxattr(dir, xattr, b"y", XattrFlags::empty())
}

/// The type of the entry there, and its inode number.
fn kind(dir: &OwnedFd, name: &[u8]) -> Result<Option<(FileType, u64)>, Errno> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some((FileType::from_raw_mode(found.st_mode), found.st_ino))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A later entry replaces an earlier one, but never a directory.
fn make_way(dir: &OwnedFd, name: &[u8]) -> Result<(), Refusal> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => Err(Refusal::Why("would replace a directory of the same name")),
        Err(error) => Err(error.into()),
    }
}

fn create(dir: &OwnedFd, name: &[u8]) -> Result<File, Refusal> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(openat(dir, name, flags, Mode::from_raw_mode(0o600))?.into())
}

fn owner(member: &Member) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(member.uid)), Some(Gid::from_raw(member.gid)))
}

fn mode(member: &Member) -> Mode {
    Mode::from_raw_mode(member.mode & 0o7777)
}

fn times(mtime: Timespec) -> Timestamps {
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: mtime }
}
