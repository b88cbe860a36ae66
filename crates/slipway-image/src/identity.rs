//! An image's identity: a digest of all that a machine would see of it.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, OFlags, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::error::{ImageError, OPEN};
use super::stream::hex;
use super::walk::{Folder, MAX_DEPTH, open_in};

const READ: &str = "read image";
/// Digits of an identity, in base 16.
const DIGITS: usize = 64;
/// Bytes of a file read at once.
const CHUNK: usize = 256 << 10;

/// The SHA-256 of a file's content, or of a folder's entries in the order of their names: name, kind, mode, owner, group,
/// and content. Times are not in it, nor are extended attributes. Two machines with one identity have the same image.
///
/// # Errors
/// When a part of it cannot be read, or lies deeper than 500 folders.
pub fn identity(path: &Path) -> Result<String, ImageError> {
    let file = File::open(path).map_err(ImageError::io(OPEN, path))?;
    let mut sum = Sha256::new();
    if file.metadata().map_err(ImageError::io(OPEN, path))?.is_dir() {
        sum.update(b"folder");
        entries(&mut sum, file.into(), path)?;
    } else {
        sum.update(b"file..");
        content(&mut sum, file).map_err(ImageError::io(READ, path))?;
    }
    Ok(hex(sum))
}

/// Whether this text is an identity, and so a plain name of a folder.
#[must_use]
pub fn is_identity(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn entries(sum: &mut Sha256, folder: OwnedFd, path: &Path) -> Result<(), ImageError> {
    let read = |fd, path: &Path| Folder::read(fd, path.to_owned()).map_err(ImageError::io(READ, path));
    let mut above = vec![read(folder, path)?];
    while let Some(folder) = above.last_mut() {
        let Some(name) = folder.names.pop() else {
            // The end of a folder: no name is so long.
            sum.update(u64::MAX.to_le_bytes());
            above.pop();
            continue;
        };
        let path = folder.path.join(OsStr::from_bytes(name.to_bytes()));
        let below = entry(sum, folder, &name).map_err(ImageError::io(READ, &path))?;
        if let Some(below) = below {
            if above.len() == MAX_DEPTH {
                return Err(ImageError::io(READ, &path)(Errno::NAMETOOLONG));
            }
            above.push(read(below, &path)?);
        }
    }
    Ok(())
}

/// Adds an entry, and gives the folder that it is.
fn entry(sum: &mut Sha256, folder: &Folder, name: &CString) -> io::Result<Option<OwnedFd>> {
    let stat = statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let below = open_in(&folder.fd, name, OFlags::DIRECTORY)?;
            head(sum, name, &fstat(&below)?, 0);
            return Ok(Some(below));
        }
        FileType::RegularFile => {
            let file = open_in(&folder.fd, name, OFlags::empty())?;
            head(sum, name, &fstat(&file)?, 0);
            content(sum, File::from(file))?;
        }
        FileType::Symlink => {
            head(sum, name, &stat, 0);
            text(sum, readlinkat(&folder.fd, name, Vec::new())?.to_bytes());
        }
        _ => head(sum, name, &stat, stat.st_rdev),
    }
    Ok(None)
}

fn head(sum: &mut Sha256, name: &CString, stat: &Stat, device: u64) {
    text(sum, name.to_bytes());
    for number in [stat.st_mode, stat.st_uid, stat.st_gid] {
        sum.update(number.to_le_bytes());
    }
    sum.update(device.to_le_bytes());
}

fn text(sum: &mut Sha256, text: &[u8]) {
    sum.update((text.len() as u64).to_le_bytes());
    sum.update(text);
}

fn content(sum: &mut Sha256, mut file: File) -> io::Result<()> {
    let (mut own, mut bytes) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => own.update(&bytes[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    sum.update(own.finalize());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn the_same_content_is_the_same_image_and_any_change_another() {
        let make = || {
            let folder = tempfile::tempdir().expect("a folder");
            fs::create_dir_all(folder.path().join("etc/empty")).expect("made");
            fs::write(folder.path().join("etc/name"), "a").expect("written");
            symlink("name", folder.path().join("etc/link")).expect("linked");
            folder
        };
        let (one, two) = (make(), make());
        let of = |folder: &tempfile::TempDir| identity(folder.path()).expect("read");
        assert!(of(&one) == of(&two) && is_identity(&of(&one)));
        let changes: [&dyn Fn(&Path); 6] = [
            &|etc| fs::write(etc.join("name"), "b").expect("written"),
            &|etc| fs::rename(etc.join("name"), etc.join("names")).expect("renamed"),
            &|etc| fs::set_permissions(etc.join("name"), fs::Permissions::from_mode(0o600)).expect("set"),
            &|etc| fs::remove_dir(etc.join("empty")).expect("removed"),
            &|etc| fs::remove_file(etc.join("link")).and_then(|()| symlink("nam", etc.join("link"))).expect("linked"),
            // Another place of the same entries.
            &|etc| fs::rename(etc.join("name"), etc.join("empty/name")).expect("renamed"),
        ];
        for change in changes {
            let other = make();
            change(&other.path().join("etc"));
            assert_ne!(of(&one), of(&other));
        }
        let file = one.path().join("etc/name");
        assert_ne!(identity(&file).expect("read"), of(&one));
        assert!(identity(&one.path().join("nothing")).is_err());
        for wrong in ["", "../../etc", &"a".repeat(63), &"G".repeat(64)] {
            assert!(!is_identity(wrong), "{wrong}");
        }
    }
}
