//! From a manifest back to a folder.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat2};
use rustix::io::Errno;

use super::{Entry, Manifest, ObjectError, Storage, content};
use crate::beneath;
use crate::digest::Digest;

/// Writes the files of a manifest into a folder that is there, and returns their number. The manifest is a worker's. A
/// path that is absolute or leads upwards is refused before anything is written. No symbolic link is followed, and no
/// file is replaced.
pub fn unpack(storage: &dyn Storage, manifest: &Digest, into: &Path) -> Result<u64, ObjectError> {
    let refuse = |what| ObjectError::Manifest { digest: *manifest, what };
    let list = Manifest::read(storage, manifest)?;
    if let Some(bad) = list.files.iter().find(|file| !stays_inside(&file.path)) {
        return Err(refuse(format!("the path {:?} leads out of the folder", bad.path)));
    }
    let root = beneath::folder(into).map_err(ObjectError::io("open", into))?;
    for entry in &list.files {
        let place = into.join(&entry.path);
        let mut file = create(&root, entry).map_err(ObjectError::io("make", &place))?;
        let mut content = content::read(storage, &entry.digest, entry.size)?;
        io::copy(&mut content, &mut file).map_err(|source| match source.kind() {
            // Of our own reader, or of one that has more to say.
            io::ErrorKind::InvalidData | io::ErrorKind::Other => ObjectError::reading(&entry.digest)(source),
            _ => ObjectError::Io { doing: "write", path: place, source },
        })?;
    }
    Ok(list.files.len() as u64)
}

/// Whether a path consists of plain names. `Path` drops `.` and double slashes, which are harmless.
fn stays_inside(path: &str) -> bool {
    let path = Path::new(path);
    path.file_name().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Creates an entry's file and the folders that lead to it.
fn create(root: &OwnedFd, entry: &Entry) -> io::Result<File> {
    let path = Path::new(&entry.path);
    let mut parent = root.try_clone()?;
    for part in path.parent().into_iter().flat_map(Path::components) {
        let name = Path::new(part.as_os_str());
        match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        parent = beneath::folder_in(&parent, name)?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    // The owner can always read and remove what was unpacked, and no file gets set-user-ID.
    let mode = Mode::from_raw_mode(entry.mode & 0o777 | 0o600);
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(&parent, path.file_name().unwrap_or_default(), flags, mode, inside)?.into())
}
