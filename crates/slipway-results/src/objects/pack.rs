//! From the folder of an attempt to objects and their manifest.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, statat};
use slipway_image::walk::{Folder, MAX_DEPTH};

use super::{Entry, Manifest, Out, Skipped};
use crate::beneath;
use crate::digest::Digest;

/// Bounds of one attempt's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Files and folders, also those that are skipped.
    pub entries: u64,
    /// Plain bytes in files.
    pub bytes: u64,
}

impl Default for Limits {
    /// A hundred thousand entries, 64 GiB.
    fn default() -> Self {
        Self { entries: 100_000, bytes: 64 << 30 }
    }
}

/// The objects of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// The object that lists the files.
    pub manifest: Digest,
    /// Number of files.
    pub files: u64,
    /// Their plain size in bytes.
    pub bytes: u64,
}

/// The reason why a folder was not packed. Objects that were written remain in `out`.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A file operation failed.
    #[error("pack {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the action.
        source: io::Error,
    },
    /// Too many entries.
    #[error("pack {}: it has more than {most} files and folders\nHint: remove needless files at the end of the command, or set `keep: tables`", path.display())]
    Entries {
        /// The attempt's folder.
        path: PathBuf,
        /// The bound.
        most: u64,
    },
    /// Too many bytes.
    #[error("pack {}: its files have more than {most} bytes\nHint: remove needless files at the end of the command, or set `keep: tables`", path.display())]
    Bytes {
        /// The attempt's folder.
        path: PathBuf,
        /// The bound.
        most: u64,
    },
    /// Folders in folders without end.
    #[error("pack {}: folders are nested deeper than {MAX_DEPTH} levels", .0.display())]
    Deep(PathBuf),
}

/// Packs a folder whose programs have ended. Symbolic links are not followed. They, devices, FIFOs and sockets are noted
/// in the manifest and left out; so are names that are no UTF-8.
pub fn pack(folder: &Path, out: &mut Out, limits: &Limits) -> Result<Packed, PackError> {
    let failed = |source| PackError::Io { path: folder.to_owned(), source };
    let root = beneath::folder(folder).map_err(failed)?;
    let mut walk = Walk { folder, out, limits, entries: 0, bytes: 0, manifest: Manifest::default() };
    // A loop, not recursion: how deep the folders go is the program's choice, the stack is ours.
    let mut open = vec![Folder::read(root, PathBuf::new()).map_err(|errno| failed(errno.into()))?];
    while let Some(last) = open.last_mut() {
        let Some(name) = last.names.pop() else {
            open.pop();
            continue;
        };
        let path = last.path.join(OsStr::from_bytes(name.to_bytes()));
        if let Some(fd) = walk.entry(&last.fd, &name, &path)? {
            if open.len() > MAX_DEPTH {
                return Err(PackError::Deep(folder.join(path)));
            }
            open.push(Folder::read(fd, path).map_err(|errno| failed(errno.into()))?);
        }
    }
    walk.finish()
}

struct Walk<'a> {
    folder: &'a Path,
    out: &'a mut Out,
    limits: &'a Limits,
    entries: u64,
    bytes: u64,
    manifest: Manifest,
}

impl Walk<'_> {
    /// Packs one entry. Returns the descriptor of a folder, to go into.
    fn entry(&mut self, parent: &OwnedFd, name: &CString, path: &Path) -> Result<Option<OwnedFd>, PackError> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(PackError::Entries { path: self.folder.to_owned(), most: self.limits.entries });
        }
        let found = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| self.failed(path, errno))?;
        let kind = FileType::from_raw_mode(found.st_mode);
        match (kind, path.to_str()) {
            (_, None) => self.skip(path, "its name is no UTF-8".to_owned()),
            (FileType::Directory, _) => {
                let fd = beneath::folder_in(parent, local(name)).map_err(|error| self.failed(path, error))?;
                return Ok(Some(fd));
            }
            (FileType::RegularFile, Some(text)) => self.file(parent, name, path, (text, found.st_mode & 0o777))?,
            (kind, _) => self.skip(path, format!("it is {}", beneath::kind_name(kind))),
        }
        Ok(None)
    }

    fn file(&mut self, parent: &OwnedFd, name: &CStr, path: &Path, (text, mode): (&str, u32)) -> Result<(), PackError> {
        let file = beneath::file(parent, local(name)).map_err(|error| self.failed(path, error))?;
        let (digest, size) =
            self.out.add(file, self.limits.bytes - self.bytes).map_err(|error| match error.kind() {
                io::ErrorKind::FileTooLarge if error.raw_os_error().is_none() => {
                    PackError::Bytes { path: self.folder.to_owned(), most: self.limits.bytes }
                }
                _ => self.failed(path, error),
            })?;
        self.bytes += size;
        self.manifest.files.push(Entry { path: text.to_owned(), digest, size, mode });
        Ok(())
    }

    fn skip(&mut self, path: &Path, why: String) {
        self.manifest.skipped.push(Skipped { path: path.to_string_lossy().into_owned(), why });
    }

    fn finish(self) -> Result<Packed, PackError> {
        let failed = |source| PackError::Io { path: self.folder.to_owned(), source };
        let text = serde_json::to_vec(&self.manifest).map_err(|error| failed(error.into()))?;
        let (manifest, _) = self.out.add(text.as_slice(), u64::MAX).map_err(failed)?;
        Ok(Packed { manifest, files: self.manifest.files.len() as u64, bytes: self.bytes })
    }

    fn failed(&self, path: &Path, error: impl Into<io::Error>) -> PackError {
        PackError::Io { path: self.folder.join(path), source: error.into() }
    }
}

fn local(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}
