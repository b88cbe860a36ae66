//! Storage in a folder, of this machine or of a shared file system: `ab/abcdef….zst`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, Mode, RenameFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fstat, fsync, futimens, linkat,
    mkdirat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use slipway_image::walk::Folder;

use super::{Object, ObjectError, Storage, content, file_name};
use crate::beneath;
use crate::digest::Digest;

/// Digits of the digest that name an object's subfolder.
const DRAWER: usize = 2;
/// Sets the time of modification alone.
const NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
};

/// Storage in a folder.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    folder: OwnedFd,
}

impl Directory {
    /// Opens the folder, which is made if it is not there. It must be in one file system with workers' folders.
    pub fn open(path: &Path) -> Result<Self, ObjectError> {
        fs::create_dir_all(path).map_err(ObjectError::io("make", path))?;
        let folder = beneath::folder(path).map_err(ObjectError::io("open", path))?;
        Ok(Self { path: path.to_owned(), folder })
    }

    fn path_of(&self, digest: &Digest) -> PathBuf {
        let name = file_name(digest);
        self.path.join(&name[..DRAWER]).join(name)
    }

    /// Opens an object's subfolder, which is made if it is not there.
    fn drawer(&self, name: &str) -> io::Result<OwnedFd> {
        match mkdirat(&self.folder, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => fsync(&self.folder)?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        beneath::folder_in(&self.folder, Path::new(name))
    }

    /// Moves one object to its place and returns the bytes by which storage grew.
    fn adopt_one(&self, out: &OwnedFd, drawer: &OwnedFd, digest: &Digest) -> Result<u64, ObjectError> {
        let name = file_name(digest);
        let place = self.path_of(digest);
        let failed = |source: io::Error| ObjectError::Io { doing: "adopt", path: place.clone(), source };
        let file = match beneath::file(out, Path::new(&name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = beneath::file(drawer, Path::new(&name)).map_err(|_| ObjectError::Missing(*digest))?;
                futimens(file, &NOW).map_err(|errno| failed(errno.into()))?;
                return Ok(0);
            }
            file => file.map_err(failed)?,
        };
        if fstat(&file).map_err(|errno| failed(errno.into()))?.st_size == 0 {
            let source = io::Error::new(io::ErrorKind::InvalidData, "the worker's file is empty");
            return Err(ObjectError::Content { digest: *digest, source });
        }
        futimens(&file, &NOW).map_err(|errno| failed(errno.into()))?;
        let grew = match move_new(out, drawer, &name) {
            Ok(()) => fstat(&file).map_err(|errno| failed(errno.into()))?.st_size.cast_unsigned(),
            Err(Errno::EXIST) => return self.adopt_again(out, drawer, digest, &file),
            Err(errno) => return Err(failed(errno.into())),
        };
        same_file(drawer, &name, &file).map_err(failed)?;
        Ok(grew)
    }

    /// Drops an object that storage has. Equal content is compressed to equal bytes, so a different size means that one
    /// of the two is not what its name says. Storage then keeps its own only if that is right.
    fn adopt_again(&self, out: &OwnedFd, drawer: &OwnedFd, digest: &Digest, file: &File) -> Result<u64, ObjectError> {
        let name = file_name(digest);
        let place = self.path_of(digest);
        let failed = |errno: Errno| ObjectError::Io { doing: "adopt", path: place.clone(), source: errno.into() };
        let old = beneath::file(drawer, Path::new(&name)).map_err(ObjectError::io("open", &place))?;
        let size = |file: &File| fstat(file).map(|found| found.st_size).map_err(failed);
        if size(&old)? != size(file)? && content::verify(self, digest).is_err() {
            renameat(out, &name, drawer, &name).map_err(failed)?;
            same_file(drawer, &name, file).map_err(ObjectError::io("adopt", &place))?;
            return Ok(0);
        }
        futimens(old, &NOW).map_err(failed)?;
        unlinkat(out, &name, AtFlags::empty()).map_err(failed)?;
        Ok(0)
    }
}

/// Moves a file where no other of its name is. File systems of a network know no such rename (`EINVAL` of rename(2)): a
/// link replaces nothing either.
fn move_new(from: &OwnedFd, to: &OwnedFd, name: &str) -> Result<(), Errno> {
    match renameat_with(from, name, to, name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => link_new(from, to, name),
        other => other,
    }
}

/// The same by a link. A crash between both steps leaves a second name, which the next call drops.
fn link_new(from: &OwnedFd, to: &OwnedFd, name: &str) -> Result<(), Errno> {
    linkat(from, name, to, name, AtFlags::empty())?;
    unlinkat(from, name, AtFlags::empty())
}

impl Storage for Directory {
    fn adopt(&self, out: &Path, digests: &[Digest]) -> Result<u64, ObjectError> {
        let from = beneath::folder(out).map_err(ObjectError::io("open", out))?;
        let mut drawers = BTreeMap::new();
        let mut grew = 0;
        for digest in digests {
            let name = digest.to_string()[..DRAWER].to_owned();
            let drawer = match drawers.entry(name) {
                std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
                std::collections::btree_map::Entry::Vacant(vacant) => {
                    let drawer = self.drawer(vacant.key()).map_err(ObjectError::io("make folder in", &self.path))?;
                    vacant.insert(drawer)
                }
            };
            grew += self.adopt_one(&from, drawer, digest)?;
        }
        for drawer in drawers.values() {
            fsync(drawer).map_err(ObjectError::io("write", &self.path))?;
        }
        Ok(grew)
    }

    fn open(&self, digest: &Digest) -> Result<Box<dyn Read>, ObjectError> {
        let name = file_name(digest);
        match beneath::file(&self.folder, &Path::new(&name[..DRAWER]).join(&name)) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ObjectError::Gone(*digest)),
            Err(source) => Err(ObjectError::Io { doing: "open", path: self.path_of(digest), source }),
        }
    }

    fn list(&self, see: &mut dyn FnMut(Object) -> Result<(), ObjectError>) -> Result<(), ObjectError> {
        let entries = |fd: OwnedFd, path: &Path| {
            Folder::read(fd, path.to_owned()).map_err(ObjectError::io("list", path)).map(|folder| folder.names)
        };
        let root = self.folder.try_clone().map_err(ObjectError::io("open", &self.path))?;
        for drawer in entries(root, &self.path)? {
            let Ok(name) = drawer.to_str() else { continue };
            let path = self.path.join(name);
            let Ok(fd) = beneath::folder_in(&self.folder, Path::new(name)) else { continue };
            for object in entries(fd.try_clone().map_err(ObjectError::io("open", &path))?, &path)? {
                let digest = object.to_str().ok().and_then(|name| name.strip_suffix(".zst")?.parse().ok());
                let Some(digest) = digest else { continue };
                let found = match statat(&fd, &object, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => continue,
                    found => found.map_err(ObjectError::io("look at", &self.path_of(&digest)))?,
                };
                see(Object { digest, stored: found.st_size.cast_unsigned(), adopted: modified(&found) })?;
            }
        }
        Ok(())
    }

    fn remove(&self, digest: &Digest) -> Result<(), ObjectError> {
        match fs::remove_file(self.path_of(digest)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(ObjectError::io("remove", &self.path_of(digest))),
        }
    }
}

/// Refuses an object if its place does not hold the file that was checked: its writer changed names meanwhile.
fn same_file(drawer: impl AsFd, name: &str, file: &File) -> io::Result<()> {
    let (there, checked) = (statat(&drawer, name, AtFlags::SYMLINK_NOFOLLOW)?, fstat(file)?);
    if (there.st_dev, there.st_ino) == (checked.st_dev, checked.st_ino) {
        return Ok(());
    }
    unlinkat(drawer, name, AtFlags::empty())?;
    Err(io::Error::other("the worker put another file in its place"))
}

fn modified(found: &Stat) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(found.st_mtime).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_moved_by_a_link_where_no_other_is() {
        let room = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            fs::create_dir(room.path().join(name)).unwrap();
            beneath::folder(&room.path().join(name)).unwrap()
        };
        let (from, to) = (folder("from"), folder("to"));
        fs::write(room.path().join("from/x"), "first").unwrap();
        link_new(&from, &to, "x").unwrap();
        assert!(!room.path().join("from/x").exists());
        fs::write(room.path().join("from/x"), "second").unwrap();
        assert_eq!(link_new(&from, &to, "x"), Err(Errno::EXIST));
        assert_eq!(fs::read_to_string(room.path().join("to/x")).unwrap(), "first");
    }
}
