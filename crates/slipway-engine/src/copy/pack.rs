//! From a file or folder to a tar stream.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tar::{Builder, EntryType, Header};

use super::{Copied, CopyError};

/// Writes `from` and all below it, its own name first in every entry's. Symbolic links are written as links.
pub(super) fn pack(from: &Path, to: impl Write) -> Result<Copied, CopyError> {
    let whole;
    let named = match from.file_name() {
        // `.` or `..`: named as the folder it stands for.
        None => {
            whole = fs::canonicalize(from).map_err(CopyError::io("find", from))?;
            whole.file_name()
        }
        named => named,
    };
    let refuse = || CopyError::refused(from, "that is the whole root\nHint: `slipway save` keeps a node's files");
    let name = named.map(PathBuf::from).ok_or_else(refuse)?;
    let mut packer = Packer { tar: Builder::new(to), copied: Copied::default() };
    packer.entry(from, &name)?;
    packer.tar.into_inner().and_then(|mut to| to.flush()).map_err(|error| broken(&error))?;
    Ok(packer.copied)
}

struct Packer<W: Write> {
    tar: Builder<W>,
    copied: Copied,
}

impl<W: Write> Packer<W> {
    fn entry(&mut self, path: &Path, name: &Path) -> Result<(), CopyError> {
        let found = fs::symlink_metadata(path).map_err(CopyError::io("look at", path))?;
        let kind = found.file_type();
        self.copied.entries += 1;
        if kind.is_dir() {
            self.write(&found, EntryType::Directory, name, 0, io::empty())?;
            let list = || -> io::Result<Vec<_>> { fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect() };
            let mut names = list().map_err(CopyError::io("list", path))?;
            names.sort_unstable();
            names.iter().try_for_each(|child| self.entry(&path.join(child), &name.join(child)))
        } else if kind.is_symlink() {
            let target = fs::read_link(path).map_err(CopyError::io("read link", path))?;
            let mut header = header(&found, EntryType::Symlink, 0);
            self.tar.append_link(&mut header, name, &target).map_err(|error| broken(&error))
        } else if kind.is_file() {
            self.file(path, name)
        } else {
            self.copied.entries -= 1;
            self.copied.skipped += 1;
            // Whatever it is: the other side only counts it.
            self.write(&found, EntryType::Fifo, name, 0, io::empty())
        }
    }

    fn file(&mut self, path: &Path, name: &Path) -> Result<(), CopyError> {
        // Should it have become something else since it was looked at, neither a link nor a FIFO leads astray.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
        let file = file.map_err(CopyError::io("open", path))?;
        let found = file.metadata().map_err(CopyError::io("look at", path))?;
        let mut content = Exactly { left: found.len(), file: file.take(found.len()) };
        self.copied.bytes += found.len();
        self.write(&found, EntryType::Regular, name, found.len(), &mut content)?;
        if content.left > 0 {
            return Err(CopyError::refused(path, "it became shorter while it was copied\nHint: copy it again"));
        }
        Ok(())
    }

    fn write(
        &mut self,
        found: &Metadata,
        kind: EntryType,
        name: &Path,
        size: u64,
        content: impl io::Read,
    ) -> Result<(), CopyError> {
        self.tar.append_data(&mut header(found, kind, size), name, content).map_err(|error| broken(&error))
    }
}

/// A file's bytes, as many as were announced, and how many are still due.
struct Exactly {
    left: u64,
    file: io::Take<fs::File>,
}

impl io::Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.left -= count as u64;
        Ok(count)
    }
}

fn header(found: &Metadata, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(found.mode() & 0o777);
    header.set_mtime(u64::try_from(found.mtime()).unwrap_or(0));
    header.set_size(size);
    header
}

fn broken(error: &io::Error) -> CopyError {
    CopyError::Stream(match error.kind() {
        ErrorKind::BrokenPipe => "the other side ended first".to_owned(),
        _ => error.to_string(),
    })
}
