//! From a file or folder to a tar stream. Somebody may change the files meanwhile, for one a node through a bind mount.
//! So no symbolic link is followed below the name that was asked for, whatever takes a file's place.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, open, readlinkat, statat};
use tar::{Builder, EntryType, Header};

use super::{Copied, CopyError};
use slipway_image::holes::Runs;
use slipway_image::walk::{Folder, MAX_DEPTH, open_in};

/// Writes `from` and all below it, its own name first in every entry's. Symbolic links are written as links.
pub(super) fn pack(from: &Path, to: impl Write) -> Result<Copied, CopyError> {
    let whole;
    let from = match from.file_name() {
        // `.` or `..`: named as the folder it stands for.
        None => {
            whole = fs::canonicalize(from).map_err(CopyError::io("find", from))?;
            &whole
        }
        Some(_) => from,
    };
    let refuse = || CopyError::refused(from, "that is the whole root\nHint: `slipway save` keeps a node's files");
    let name = from.file_name().ok_or_else(refuse)?;
    let around = from.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(around, flags, Mode::empty()).map_err(CopyError::io("open folder", around))?;
    let mut packer = Packer { tar: Builder::new(to), copied: Copied::default(), around };
    packer.all(&folder, name)?;
    packer.tar.into_inner().and_then(|mut to| to.flush()).map_err(|error| broken(&error))?;
    Ok(packer.copied)
}

struct Packer<'a, W: Write> {
    tar: Builder<W>,
    copied: Copied,
    /// The folder that names start from.
    around: &'a Path,
}

impl<W: Write> Packer<'_, W> {
    /// A loop, not recursion: how deep folders go may be a node's choice, the stack is ours.
    fn all(&mut self, around: &OwnedFd, name: &OsStr) -> Result<(), CopyError> {
        let first = CString::new(name.as_bytes()).map_err(CopyError::io("name", Path::new(name)))?;
        let mut open: Vec<Folder> = self.entry(around, &first, Path::new(name))?.into_iter().collect();
        while let Some(folder) = open.last_mut() {
            let Some(name) = folder.names.pop() else {
                open.pop();
                continue;
            };
            let path = folder.path.join(OsStr::from_bytes(name.to_bytes()));
            if let Some(below) = self.entry(&folder.fd, &name, &path)? {
                if open.len() > MAX_DEPTH {
                    return Err(CopyError::refused(&self.around.join(path), "it is nested more than 500 folders deep"));
                }
                open.push(below);
            }
        }
        Ok(())
    }

    /// Writes one entry; gives back a folder to go into.
    fn entry(&mut self, folder: &OwnedFd, name: &CString, path: &Path) -> Result<Option<Folder>, CopyError> {
        let at = self.around.join(path);
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(CopyError::io("look at", &at))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                let fd = open_in(folder, name, OFlags::DIRECTORY).map_err(CopyError::io("open", &at))?;
                let found = fstat(&fd).map_err(CopyError::io("look at", &at))?;
                self.write(&found, EntryType::Directory, path, 0, io::empty())?;
                self.copied.entries += 1;
                Folder::read(fd, path.to_owned()).map(Some).map_err(CopyError::io("list", &at))
            }
            FileType::Symlink => {
                let target = readlinkat(folder, name, Vec::new()).map_err(CopyError::io("read link", &at))?;
                let mut header = header(&found, EntryType::Symlink, 0);
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                self.tar.append_link(&mut header, path, target).map_err(|error| broken(&error))?;
                self.copied.entries += 1;
                Ok(None)
            }
            FileType::RegularFile => self.file(folder, name, path, &at).map(|()| None),
            _ => {
                self.copied.skipped += 1;
                // The kind of entry does not matter: the other side only counts it.
                self.write(&found, EntryType::Fifo, path, 0, io::empty()).map(|()| None)
            }
        }
    }

    fn file(&mut self, folder: &OwnedFd, name: &CString, path: &Path, at: &Path) -> Result<(), CopyError> {
        // Should it have become a FIFO since it was looked at, opening must not wait for a writer.
        let fd = open_in(folder, name, OFlags::NONBLOCK).map_err(CopyError::io("open", at))?;
        let found = fstat(&fd).map_err(CopyError::io("look at", at))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(CopyError::refused(at, "it became something else while it was copied\nHint: copy it again"));
        }
        let file = File::from(fd);
        let runs = Runs::of(&file).map_err(CopyError::io("look for holes in", at))?;
        let records = runs.records();
        if !records.is_empty() {
            let records = records.iter().map(|(key, value)| (*key, value.as_bytes()));
            self.tar.append_pax_extensions(records).map_err(|error| broken(&error))?;
        }
        let size = runs.stored();
        let mut content = Exactly { left: size, content: runs.content(&file).take(size) };
        self.write(&found, EntryType::Regular, path, size, &mut content)?;
        self.copied.entries += 1;
        self.copied.bytes += size;
        if content.left > 0 {
            return Err(CopyError::refused(at, "it became shorter while it was copied\nHint: copy it again"));
        }
        Ok(())
    }

    fn write(
        &mut self,
        found: &Stat,
        kind: EntryType,
        name: &Path,
        size: u64,
        content: impl io::Read,
    ) -> Result<(), CopyError> {
        self.tar.append_data(&mut header(found, kind, size), name, content).map_err(|error| broken(&error))
    }
}

/// A file's bytes, as many as were announced, and how many are still due.
struct Exactly<R> {
    left: u64,
    content: R,
}

impl<R: io::Read> io::Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer)?;
        self.left -= count as u64;
        Ok(count)
    }
}

fn header(found: &Stat, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(found.st_mode & 0o777);
    header.set_mtime(u64::try_from(found.st_mtime).unwrap_or(0));
    header.set_size(size);
    header
}

fn broken(error: &io::Error) -> CopyError {
    CopyError::Stream(match error.kind() {
        ErrorKind::BrokenPipe => "the other side ended first".to_owned(),
        _ => error.to_string(),
    })
}
