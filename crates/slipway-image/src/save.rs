//! A node's changes as an archive. The upper directory of its overlay becomes an OCI layer, which on top of the node's
//! image gives the node's file system back.
//!
//! A container wrote the directory. So nothing in it is followed, and only regular files are opened for reading. It may
//! change meanwhile (freeze the node for a picture of one moment).

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fgetxattr, flistxattr, fstat, fstatvfs, openat, openat2,
    readlinkat, statat,
};
use rustix::io::Errno;
use slipway_document::units::Bytes;
use tar::{Builder, EntryType, Header};
use tempfile::NamedTempFile;

use super::holes::Runs;
use super::member::shown;
use super::tree::{OPAQUE, WHITEOUT, is_kept, overlay_xattr};
use super::walk::{Folder, MAX_DEPTH, open_in};

/// `XATTR_SIZE_MAX` and `XATTR_LIST_MAX` (`limits.h`).
const MAX_XATTR: usize = 64 << 10;

/// Why a node's changes could not be saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The archive's name says of no kind that Slipway writes.
    #[error("save to {}: its name ends in none of .tar.zst, .tar.gz and .tar", .0.display())]
    Kind(PathBuf),
    /// A file of the node cannot be read.
    #[error("save: read `{entry}`: {source}")]
    Read {
        /// Path within the node.
        entry: String,
        /// The error of the action.
        source: io::Error,
    },
    /// A file of the node cannot be kept in a layer.
    #[error("save: `{entry}` {why}")]
    Refused {
        /// Path within the node.
        entry: String,
        /// The fault, and the next step.
        why: &'static str,
    },
    /// A symbolic link lies on the way to the archive.
    #[error("save to {}: a symbolic link lies on the way, and a copy out of a node may have brought it\nHint: write where it leads, or remove it", .0.display())]
    Linked(PathBuf),
    /// The archive becomes too large.
    #[error("save to {}: it becomes larger than {most}\nHint: `--max-size` allows more, as in --max-size 100GiB; without it nine tenths of what is free there may be filled", path.display())]
    TooMuch {
        /// The archive.
        path: PathBuf,
        /// The bound.
        most: Bytes,
    },
    /// The archive cannot be written.
    #[error("write {}: {source}", path.display())]
    Write {
        /// The archive.
        path: PathBuf,
        /// The error of the action.
        source: io::Error,
    },
}

/// The result of saving.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Saved {
    /// Files, directories, links, and marks of what was deleted.
    pub entries: u64,
    /// Bytes in files.
    pub bytes: u64,
}

/// Saves the upper directory of an overlay as a layer: `out` ends in `.tar.zst`, `.tar.gz` or `.tar`, and appears whole
/// or not at all. Sockets are left out, as they mean nothing without their process, and so is what is in `without` (paths
/// in the directory), with all below.
///
/// # Errors
/// All of [`SaveError`]; then `out` is what it was before.
#[tracing::instrument(level = "info", skip_all, fields(out = %out.display()), err(level = "debug"))]
pub fn save(
    upper: BorrowedFd<'_>,
    without: &BTreeSet<PathBuf>,
    out: &Path,
    most: Option<Bytes>,
) -> Result<Saved, SaveError> {
    whole(out, most, |target, most| {
        let name = out.file_name().unwrap_or_default().as_bytes();
        let failed = |source: io::Error| unwritten(out, most, source);
        if name.ends_with(b".tar.zst") {
            let mut encoder = zstd::Encoder::new(target, zstd::DEFAULT_COMPRESSION_LEVEL).map_err(failed)?;
            let saved = Layer::write(upper, without, &mut encoder, out, most)?;
            encoder.finish().map_err(failed)?;
            Ok(saved)
        } else if name.ends_with(b".tar.gz") {
            let mut encoder = GzEncoder::new(target, flate2::Compression::default());
            let saved = Layer::write(upper, without, &mut encoder, out, most)?;
            encoder.finish().map_err(failed)?;
            Ok(saved)
        } else if name.ends_with(b".tar") {
            Layer::write(upper, without, target, out, most)
        } else {
            Err(SaveError::Kind(out.to_owned()))
        }
    })
}

/// Writes an archive that another process saved, within the same bounds: `from` has its bytes. `end` is called once all of
/// them are written, and gives the reason if they are not the whole archive.
///
/// # Errors
/// As [`save`], and of `end`; then `out` is what it was before.
pub fn receive<T, E: From<SaveError>>(
    from: &mut impl io::Read,
    out: &Path,
    most: Option<Bytes>,
    end: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    whole(out, most, |target, most| {
        io::copy(from, target).map_err(|source| unwritten(out, most, source))?;
        end()
    })
}

/// Makes a file that appears whole or not at all, in a folder that no symbolic link leads to. `write` gets the file, and the
/// size that it may have.
fn whole<T, E: From<SaveError>>(
    out: &Path,
    most: Option<Bytes>,
    write: impl FnOnce(&mut BufWriter<Bounded<'_>>, Bytes) -> Result<T, E>,
) -> Result<T, E> {
    let failed = |source: io::Error| SaveError::Write { path: out.to_owned(), source };
    let folder = match out.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match openat2(CWD, folder, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(Errno::LOOP) => return Err(SaveError::Linked(out.to_owned()).into()),
        folder => folder.map_err(|errno| failed(errno.into()))?,
    };
    let free = || fstatvfs(&folder).map(|found| Bytes(found.f_bavail.saturating_mul(found.f_frsize) / 10 * 9));
    let most = most.map_or_else(free, Ok).map_err(|errno| failed(errno.into()))?;
    // By its descriptor, so that it is this folder whatever takes its name.
    let there = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    let file = NamedTempFile::new_in(&there).map_err(failed)?;
    let failed = |source: io::Error| unwritten(out, most, source);
    let mut target = BufWriter::new(Bounded { file: file.as_file(), left: most.0 });
    let written = write(&mut target, most)?;
    target.flush().map_err(failed)?;
    drop(target);
    file.as_file().sync_all().map_err(failed)?;
    file.persist(there.join(out.file_name().unwrap_or_default())).map_err(|error| failed(error.error))?;
    Ok(written)
}

/// A file that may only become so large.
struct Bounded<'a> {
    file: &'a File,
    left: u64,
}

impl Write for Bounded<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let mut file = self.file;
        let count = file.write(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or(io::ErrorKind::QuotaExceeded)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn unwritten(out: &Path, most: Bytes, source: io::Error) -> SaveError {
    let path = out.to_owned();
    // With a number it would be the file system's own quota.
    if source.kind() == io::ErrorKind::QuotaExceeded && source.raw_os_error().is_none() {
        return SaveError::TooMuch { path, most };
    }
    SaveError::Write { path, source }
}

/// A layer being written.
struct Layer<'a, W: Write> {
    tar: Builder<W>,
    out: &'a Path,
    most: Bytes,
    saved: Saved,
    /// The first name of every file that has several.
    links: HashMap<(u64, u64), PathBuf>,
    /// Prefix of overlayfs's own attributes.
    own: String,
}

impl<'a, W: Write> Layer<'a, W> {
    fn write(
        upper: BorrowedFd<'_>,
        without: &BTreeSet<PathBuf>,
        target: W,
        out: &'a Path,
        most: Bytes,
    ) -> Result<Saved, SaveError> {
        let failed = |source| SaveError::Write { path: out.to_owned(), source };
        let mut layer = Self {
            tar: Builder::new(target),
            out,
            most,
            saved: Saved::default(),
            links: HashMap::new(),
            own: overlay_xattr("").map_err(failed)?,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(upper, ".", flags, Mode::empty()).map_err(unreadable(Path::new("")))?;
        // A loop, not recursion: how deep the directories go is the container's choice, the stack is ours.
        let mut open = vec![Folder::read(root, PathBuf::new()).map_err(unreadable(Path::new("")))?];
        while let Some(folder) = open.last_mut() {
            let Some(name) = folder.names.pop() else {
                open.pop();
                continue;
            };
            let path = folder.path.join(OsStr::from_bytes(name.to_bytes()));
            if without.contains(&path) {
                continue;
            }
            if let Some(fd) = layer.entry(&folder.fd, &name, &path)? {
                if open.len() > MAX_DEPTH {
                    return Err(refused(&path, "is nested more than 500 directories deep"));
                }
                let read = Folder::read(fd, path.clone()).map_err(unreadable(&path))?;
                open.push(read);
            }
        }
        let finished = layer.tar.finish();
        finished.map_err(|source| layer.unwritten(source))?;
        Ok(layer.saved)
    }

    /// Writes one entry; gives back a directory to go into.
    fn entry(&mut self, folder: &OwnedFd, name: &CString, path: &Path) -> Result<Option<OwnedFd>, SaveError> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(unreadable(path))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::CharacterDevice && stat.st_rdev == 0 {
            return self.whiteout(path).map(|()| None);
        }
        if name.to_bytes().starts_with(WHITEOUT) {
            return Err(refused(
                path,
                "has a name that marks deleted files in layers\nHint: rename it in the node, then save again",
            ));
        }
        match kind {
            FileType::Directory => return self.directory(folder, name, path).map(Some),
            FileType::RegularFile => self.file(folder, name, path),
            FileType::Symlink => {
                let target = readlinkat(folder, name, Vec::new()).map_err(unreadable(path))?;
                let mut header = header(&stat, EntryType::Symlink);
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                self.count(|tar| tar.append_link(&mut header, path, target))
            }
            FileType::Fifo => {
                let mut header = header(&stat, EntryType::Fifo);
                self.count(|tar| tar.append_data(&mut header, path, io::empty()))
            }
            FileType::Socket => Ok(()),
            _ => {
                Err(refused(path, "is a device, which no image may have\nHint: remove it in the node, then save again"))
            }
        }
        .map(|()| None)
    }

    fn directory(&mut self, folder: &OwnedFd, name: &CString, path: &Path) -> Result<OwnedFd, SaveError> {
        let fd = open_in(folder, name, OFlags::DIRECTORY).map_err(unreadable(path))?;
        let stat = fstat(&fd).map_err(unreadable(path))?;
        let xattrs = xattrs(&fd).map_err(unreadable(path))?;
        self.attributes(&xattrs, &[], path)?;
        let mut header = header(&stat, EntryType::Directory);
        self.count(|tar| tar.append_data(&mut header, path, io::empty()))?;
        if self.own_value(&xattrs, "opaque") == Some(b"y") {
            self.mark(&path.join(OsStr::from_bytes(OPAQUE)))?;
        }
        Ok(fd)
    }

    fn file(&mut self, folder: &OwnedFd, name: &CString, path: &Path) -> Result<(), SaveError> {
        // Should it have become a FIFO meanwhile, opening must not wait for a writer.
        let fd = open_in(folder, name, OFlags::NONBLOCK).map_err(unreadable(path))?;
        let stat = fstat(&fd).map_err(unreadable(path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused(path, "changed while it was saved\nHint: freeze the node first"));
        }
        let xattrs = xattrs(&fd).map_err(unreadable(path))?;
        if self.own_value(&xattrs, "whiteout").is_some() {
            return self.whiteout(path);
        }
        let file = (stat.st_dev, stat.st_ino);
        if let Some(first) = self.links.get(&file) {
            let mut header = header(&stat, EntryType::Link);
            let first = first.clone();
            return self.count(|tar| tar.append_link(&mut header, path, first));
        }
        if stat.st_nlink > 1 {
            self.links.insert(file, path.to_owned());
        }
        let file = File::from(fd);
        let runs =
            Runs::of(&file).map_err(|source| SaveError::Read { entry: shown(path.as_os_str().as_bytes()), source })?;
        self.attributes(&xattrs, &runs.records(), path)?;
        let size = runs.stored();
        let mut header = header(&stat, EntryType::Regular);
        header.set_size(size);
        self.saved.bytes += size;
        // As many bytes as the header says, though the file be growing or shrinking.
        let content = runs.content(&file).chain(io::repeat(0)).take(size);
        self.count(|tar| tar.append_data(&mut header, path, content))
    }

    /// Attributes go before their entry, in an extended header.
    fn attributes(
        &mut self,
        xattrs: &[(String, Vec<u8>)],
        holes: &[(&str, String)],
        path: &Path,
    ) -> Result<(), SaveError> {
        for moved in ["redirect", "metacopy"] {
            if self.own_value(xattrs, moved).is_some() {
                return Err(refused(
                    path,
                    "refers to a file of the image under another name\nHint: copy it anew in the node (`cp -a`), then save again",
                ));
            }
        }
        let kept: Vec<_> = xattrs
            .iter()
            .filter(|(name, _)| is_kept(name))
            .map(|(name, value)| (format!("SCHILY.xattr.{name}"), value))
            .collect();
        if kept.is_empty() && holes.is_empty() {
            return Ok(());
        }
        let holes = holes.iter().map(|(key, value)| (*key, value.as_bytes()));
        let records = kept.iter().map(|(key, value)| (key.as_str(), value.as_slice())).chain(holes);
        self.tar.append_pax_extensions(records).map_err(|source| self.unwritten(source))
    }

    fn own_value<'x>(&self, xattrs: &'x [(String, Vec<u8>)], name: &str) -> Option<&'x [u8]> {
        let is_it = |(key, _): &&(String, _)| key.strip_prefix(&self.own) == Some(name);
        xattrs.iter().find(is_it).map(|(_, value)| value.as_slice())
    }

    fn whiteout(&mut self, path: &Path) -> Result<(), SaveError> {
        let name = path.file_name().unwrap_or_default();
        let mut mark = WHITEOUT.to_vec();
        mark.extend_from_slice(name.as_bytes());
        self.mark(&path.with_file_name(OsStr::from_bytes(&mark)))
    }

    fn mark(&mut self, path: &Path) -> Result<(), SaveError> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        self.count(|tar| tar.append_data(&mut header, path, io::empty()))
    }

    fn count(&mut self, append: impl FnOnce(&mut Builder<W>) -> io::Result<()>) -> Result<(), SaveError> {
        append(&mut self.tar).map_err(|source| self.unwritten(source))?;
        self.saved.entries += 1;
        Ok(())
    }

    fn unwritten(&self, source: io::Error) -> SaveError {
        unwritten(self.out, self.most, source)
    }
}

fn header(stat: &Stat, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_size(0);
    header
}

fn xattrs(fd: impl AsFd) -> Result<Vec<(String, Vec<u8>)>, Errno> {
    let mut names = vec![0; MAX_XATTR];
    let length = match flistxattr(&fd, names.as_mut_slice()) {
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    names.truncate(length);
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let mut value = vec![0; MAX_XATTR];
        let length = match fgetxattr(&fd, name, value.as_mut_slice()) {
            // Removed since it was listed.
            Err(Errno::NODATA) => continue,
            length => length?,
        };
        value.truncate(length);
        found.push((name.to_owned(), value));
    }
    Ok(found)
}

fn unreadable(path: &Path) -> impl FnOnce(Errno) -> SaveError {
    let entry = shown(path.as_os_str().as_bytes());
    move |errno| SaveError::Read { entry, source: errno.into() }
}

fn refused(path: &Path, why: &'static str) -> SaveError {
    SaveError::Refused { entry: shown(path.as_os_str().as_bytes()), why }
}
