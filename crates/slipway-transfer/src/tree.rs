//! The destination: everything is opened beneath it, and no symbolic link is followed (`RESOLVE_BENEATH` and
//! `RESOLVE_NO_SYMLINKS` of `openat2(2)`). So a link that a peer made, or found, leads nowhere.

mod unnamed;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::TransferError;
use crate::message::Meta;
use crate::meta::{self, Birth};
use crate::path::{PART, Relative};

/// Parents that are kept open, at most.
const PARENTS: usize = 512;
/// How long a destination may be held by another transfer: a dead connection's is held until the kernel notices.
const PATIENCE: Duration = Duration::from_secs(90);
/// Directories within each other, at most, that a listing enters.
const DEEPEST: usize = 512;

/// A directory that a session writes below.
pub(crate) struct Tree {
    root: OwnedFd,
    /// The folder of incomplete files; `None` where nothing is to be written.
    part: Option<OwnedFd>,
    /// No earlier transfer left incomplete files.
    is_first: bool,
    birth: Option<Birth>,
    parents: Mutex<HashMap<Vec<u8>, Arc<OwnedFd>>>,
    /// Directories that were made, or found empty, by this session.
    fresh: Mutex<HashSet<Vec<u8>>>,
}

/// Opens beneath `folder`.
pub(crate) fn beneath(folder: BorrowedFd<'_>, path: &OsStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(folder, path.as_bytes(), flags | OFlags::CLOEXEC, mode, resolve) {
            // A rename elsewhere met the look-up (`openat2(2)`).
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

impl Tree {
    /// Opens the destination `path`, as one in `root` where that is given. It is made where it is missing, unless nothing
    /// is to be written.
    pub(crate) fn open(root: Option<&Path>, path: &[u8], write: bool) -> Result<Self, TransferError> {
        let shown = String::from_utf8_lossy(path).into_owned();
        let failed = TransferError::io(format!("open the destination {shown}"));
        let root = Self::root(root, path, write).map_err(failed)?;
        let part = if write { Some(Self::lock(&root, &shown)?) } else { None };
        let is_first = part.as_ref().is_some_and(is_empty);
        let birth = part.as_ref().and_then(unnamed::birth);
        let fresh = if is_empty(&root) { HashSet::from([Vec::new()]) } else { HashSet::new() };
        Ok(Self { root, part, is_first, birth, parents: Mutex::default(), fresh: Mutex::new(fresh) })
    }

    fn root(root: Option<&Path>, path: &[u8], write: bool) -> io::Result<OwnedFd> {
        let open = |path: &Path| rustix::fs::open(path, DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let Some(root) = root else {
            let path = Path::new(OsStr::from_bytes(if path.is_empty() { b"." } else { path }));
            if write {
                std::fs::create_dir_all(path)?;
            }
            return Ok(open(path)?);
        };
        let mut folder = open(root)?;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
            let name = Relative::try_from(name.to_vec())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            if write {
                made(rustix::fs::mkdirat(&folder, name.as_os(), Mode::from_raw_mode(0o777)))?;
            }
            folder = beneath(folder.as_fd(), name.as_os(), DIRECTORY, Mode::empty())?;
        }
        Ok(folder)
    }

    /// Makes the folder of incomplete files, and holds it against other transfers.
    fn lock(root: &OwnedFd, shown: &str) -> Result<OwnedFd, TransferError> {
        let doing = || format!("make {PART} in the destination {shown}");
        let began = Instant::now();
        loop {
            made(rustix::fs::mkdirat(root, PART, Mode::from_raw_mode(0o700))).map_err(TransferError::io(doing()))?;
            let part = beneath(root.as_fd(), OsStr::new(PART), DIRECTORY, Mode::empty());
            let part = part.map_err(TransferError::io(doing()))?;
            match rustix::fs::flock(&part, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    // Another transfer may have ended, and removed the folder, before it was held.
                    let same = |a: rustix::fs::Stat, b: rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
                    let named = rustix::fs::statat(root, PART, AtFlags::SYMLINK_NOFOLLOW);
                    let held = rustix::fs::fstat(&part).map_err(TransferError::io(doing()))?;
                    if named.is_ok_and(|named| same(named, held)) {
                        return Ok(part);
                    }
                }
                Err(Errno::WOULDBLOCK) if began.elapsed() < PATIENCE => sleep(Duration::from_millis(50)),
                Err(Errno::WOULDBLOCK) => {
                    return Err(TransferError::Refused(format!(
                        "another transfer writes to {shown}\nHint: wait for its end"
                    )));
                }
                Err(error) => return Err(TransferError::io(doing())(error)),
            }
        }
    }

    /// The folder that holds `path`, open, and the name in it.
    fn parent<'a>(&self, path: &'a Relative) -> io::Result<(Arc<OwnedFd>, &'a OsStr)> {
        let (folder, name) = path.split();
        let mut parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = parents.get(folder.as_bytes()) {
            return Ok((found.clone(), name));
        }
        let folder_or_root = if folder.is_empty() { OsStr::new(".") } else { folder };
        let opened = Arc::new(beneath(self.root.as_fd(), folder_or_root, DIRECTORY, Mode::empty())?);
        if parents.len() >= PARENTS {
            parents.clear();
        }
        parents.insert(folder.as_bytes().to_vec(), opened.clone());
        Ok((opened, name))
    }

    fn part(&self) -> io::Result<&OwnedFd> {
        self.part.as_ref().ok_or_else(|| io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn fresh(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True where nothing of `path` was here when the session began, as far as is known without a look at the disk.
    pub(crate) fn is_new(&self, path: &Relative) -> bool {
        self.is_first && self.fresh().contains(path.split().0.as_bytes())
    }

    /// Makes a directory, which its owner may fill until it has its attributes.
    pub(crate) fn directory(&self, path: &Relative) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let make = || rustix::fs::mkdirat(&*parent, name, Mode::from_raw_mode(0o700));
        match make() {
            Err(Errno::EXIST) => {}
            other => {
                other?;
                self.fresh().insert(path.as_bytes().to_vec());
                return Ok(());
            }
        }
        let found = rustix::fs::statat(&*parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            rustix::fs::unlinkat(&*parent, name, AtFlags::empty())?;
            make()?;
        } else if found.st_mode & 0o700 != 0o700 {
            let folder = beneath(parent.as_fd(), name, DIRECTORY, Mode::empty())?;
            rustix::fs::fchmod(folder, Mode::from_raw_mode(found.st_mode & 0o7777 | 0o700))?;
        }
        Ok(())
    }

    /// Gives a directory, or a file that is there, its attributes.
    pub(crate) fn set(&self, path: &Relative, meta: &Meta) -> io::Result<()> {
        meta::apply(&self.old(path)?, meta, None)
    }

    /// Makes a symbolic link, in the place of what is there.
    pub(crate) fn symlink(&self, path: &Relative, target: &[u8], meta: &Meta) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let part = self.part()?;
        let temporary = path.part_name();
        absent(rustix::fs::unlinkat(part, &temporary, AtFlags::empty()))?;
        rustix::fs::symlinkat(target, part, &temporary)?;
        if rustix::process::geteuid().is_root() && meta.uid != u32::MAX && meta.gid != u32::MAX {
            let (uid, gid) = (rustix::fs::Uid::from_raw(meta.uid), rustix::fs::Gid::from_raw(meta.gid));
            rustix::fs::chownat(part, &temporary, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        rustix::fs::utimensat(part, &temporary, &meta::times(meta), AtFlags::SYMLINK_NOFOLLOW)?;
        self.place(&temporary, &parent, name)
    }

    /// Gives the file at `to` another name, in the place of what is there.
    pub(crate) fn hardlink(&self, path: &Relative, to: &Relative) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let (from, from_name) = self.parent(to)?;
        let identity = |folder: &OwnedFd, name: &OsStr| {
            rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map(|found| (found.st_dev, found.st_ino))
        };
        // A rename between two names of one file would do nothing (`rename(2)`).
        let wanted = identity(&from, from_name)?;
        if identity(&parent, name) == Ok(wanted) {
            return Ok(());
        }
        let part = self.part()?;
        let temporary = path.part_name();
        absent(rustix::fs::unlinkat(part, &temporary, AtFlags::empty()))?;
        rustix::fs::linkat(&*from, from_name, part, &temporary, AtFlags::empty())?;
        self.place(&temporary, &parent, name)
    }

    /// Opens a file or directory that is there, to read. Nothing else: a FIFO would keep its opener waiting.
    pub(crate) fn old(&self, path: &Relative) -> io::Result<File> {
        let (parent, name) = self.parent(path)?;
        let opened = beneath(parent.as_fd(), name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
        Ok(File::from(opened))
    }

    /// The status of the entry at `path`, and the target where that is a symbolic link.
    pub(crate) fn look(&self, path: &Relative) -> io::Result<Option<(rustix::fs::Stat, Option<Vec<u8>>)>> {
        let (parent, name) = match self.parent(path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            other => other?,
        };
        let found = match rustix::fs::statat(&*parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let target = (FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
            .then(|| rustix::fs::readlinkat(&*parent, name, Vec::new()))
            .transpose()?;
        Ok(Some((found, target.map(std::ffi::CString::into_bytes))))
    }

    /// The incomplete file of `path`, if any is left from before.
    pub(crate) fn left_part(&self, path: &Relative) -> io::Result<Option<File>> {
        let opened = beneath(
            self.part()?.as_fd(),
            OsStr::new(&path.part_name()),
            OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY,
            Mode::empty(),
        );
        match opened {
            Err(Errno::NOENT | Errno::LOOP) => Ok(None),
            other => Ok(Some(File::from(other?))),
        }
    }

    /// An empty incomplete file of `path`.
    pub(crate) fn fresh_part(&self, path: &Relative) -> io::Result<File> {
        let part = self.part()?;
        let name = path.part_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let make = || beneath(part.as_fd(), OsStr::new(&name), flags, Mode::from_raw_mode(0o600));
        let opened = match make() {
            // Never what a hard link may share.
            Err(Errno::EXIST) => {
                absent(rustix::fs::unlinkat(part, &name, AtFlags::empty()))?;
                make()
            }
            other => other,
        };
        Ok(File::from(opened?))
    }

    /// Forgets the incomplete file of `path`.
    pub(crate) fn forget(&self, path: &Relative) -> io::Result<()> {
        Ok(absent(rustix::fs::unlinkat(self.part()?, path.part_name(), AtFlags::empty()))?)
    }

    /// Puts the complete file of `path` in its place, in one step.
    pub(crate) fn finish(&self, path: &Relative) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        self.place(&path.part_name(), &parent, name)
    }

    fn place(&self, temporary: &str, parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
        match rustix::fs::renameat(self.part()?, temporary, parent, name) {
            Err(Errno::ISDIR) => Err(io::Error::other("a directory is in its place")),
            other => across(other),
        }
    }

    /// Has the file system write everything to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }

    /// Removes the folder of incomplete files with what is in it.
    pub(crate) fn clean(&self) -> io::Result<()> {
        let part = self.part()?;
        for entry in Dir::read_from(part)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                absent(rustix::fs::unlinkat(part, entry.file_name(), AtFlags::empty()))?;
            }
        }
        Ok(absent(rustix::fs::unlinkat(&self.root, PART, AtFlags::REMOVEDIR))?)
    }

    /// Every path below the directory `folder`, without those whose names no transfer takes.
    pub(crate) fn list(&self, folder: &Relative, each: &mut dyn FnMut(Relative)) -> io::Result<()> {
        let mut open = vec![(folder.clone(), 0)];
        while let Some((folder, depth)) = open.pop() {
            let opened = self.old(&folder)?;
            for entry in Dir::read_from(&opened)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                let path = Relative::try_from([folder.as_bytes(), name].join(&b'/'));
                let Ok(path) = path else { continue };
                if entry.file_type() == FileType::Directory && depth < DEEPEST {
                    open.push((path.clone(), depth + 1));
                }
                each(path);
            }
        }
        Ok(())
    }
}

/// True where a directory holds nothing, incomplete files aside.
fn is_empty(folder: &OwnedFd) -> bool {
    let names = [&b"."[..], b"..", PART.as_bytes()];
    Dir::read_from(folder).is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| names.contains(&entry.file_name().to_bytes())))
    })
}

/// Explains why a file cannot be moved into its place.
fn across(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::XDEV) => {
            Err(io::Error::other("the destination spans file systems here; transfer to this directory itself"))
        }
        other => Ok(other?),
    }
}

fn made(result: Result<(), Errno>) -> Result<(), Errno> {
    if result == Err(Errno::EXIST) { Ok(()) } else { result }
}

fn absent(result: Result<(), Errno>) -> Result<(), Errno> {
    if result == Err(Errno::NOENT) { Ok(()) } else { result }
}
