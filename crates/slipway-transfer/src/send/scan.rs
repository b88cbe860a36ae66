//! Lists the data set.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::origin::Origin;
use super::outgoing::Outgoing;
use super::shared::{Shared, Wait};
use crate::error::TransferError;
use crate::frame::Writer;
use crate::message::{self, Entry, Kind, Order};
use crate::meta;
use crate::path::{PART, Relative};
use crate::report::Named;

/// Bytes of orders in a frame, about.
const FRAME: usize = 64 << 10;

/// Announces `sources` with all that is in them, and waits until every file is settled. Hard links come last, when there
/// is something to link to.
pub(super) fn list(
    sources: &[PathBuf],
    origin: &Origin,
    shared: &Arc<Shared>,
    orders: &mut Writer<impl Write>,
) -> Result<(), TransferError> {
    shared.list(true);
    let mut scan = Scan { origin, shared, orders, next: 0, first: HashMap::new(), links: Vec::new() };
    for source in sources {
        let failed = |error| TransferError::io(format!("read {}", source.display()))(error);
        let is_content = source.as_os_str().as_bytes().ends_with(b"/");
        let source = &origin.source(source).map_err(failed)?;
        if let (Some(name), Some(parent)) = (source.file_name().filter(|_| !is_content), source.parent()) {
            let folder = origin.folder(parent).map_err(failed)?;
            let way = folder.way.join(name);
            let found = std::fs::symlink_metadata(&way).map_err(failed)?;
            let has_content = scan.entry(source, &way, name.as_bytes(), &found)?;
            drop(folder);
            if has_content {
                scan.content(source, name.as_bytes())?;
            }
        } else {
            // As `.` and `..` are: nobody else knows them by that name.
            origin.folder(source).and_then(|folder| std::fs::read_dir(&folder.way).map(drop)).map_err(failed)?;
            scan.content(source, &[])?;
        }
    }
    scan.flush()?;
    shared.list(false);
    if !scan.alive(Shared::await_settled)? {
        return Ok(());
    }
    for entry in std::mem::take(&mut scan.links) {
        scan.order(&Order::Entry(entry))?;
    }
    scan.flush()
}

struct Scan<'a, W> {
    origin: &'a Origin,
    shared: &'a Arc<Shared>,
    orders: &'a mut Writer<W>,
    next: u64,
    /// The first name of files with several, by device and inode.
    first: HashMap<(u64, u64), Relative>,
    links: Vec<Entry>,
}

impl<W: Write> Scan<'_, W> {
    fn content(&mut self, folder: &Path, prefix: &[u8]) -> Result<(), TransferError> {
        let mut names = Vec::new();
        let opened = match self.origin.folder(folder) {
            Ok(opened) => opened,
            Err(error) => {
                self.failed(prefix, &error);
                return Ok(());
            }
        };
        let listed = std::fs::read_dir(&opened.way).and_then(|entries| {
            for entry in entries {
                names.push(entry?.file_name());
            }
            Ok(())
        });
        if let Err(error) = listed {
            self.failed(prefix, &error);
        }
        names.sort_unstable();
        let mut folders = Vec::new();
        for name in names {
            let path = folder.join(&name);
            let way = opened.way.join(&name);
            let within =
                if prefix.is_empty() { name.as_bytes().to_vec() } else { [prefix, name.as_bytes()].join(&b'/') };
            match std::fs::symlink_metadata(&way) {
                Ok(found) => {
                    if self.entry(&path, &way, &within, &found)? {
                        folders.push((path, within));
                    }
                }
                // It was removed meanwhile: as if it had been so before.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.failed(&within, &error),
            }
        }
        // One folder is open at a time, however deep they lie.
        drop(opened);
        for (path, within) in folders {
            self.content(&path, &within)?;
        }
        Ok(())
    }

    /// Waits, and tells the other end that this one lives. False when it is over.
    fn alive(&mut self, wait: impl Fn(&Shared) -> Wait) -> Result<bool, TransferError> {
        loop {
            match wait(self.shared) {
                Wait::Ready => return Ok(true),
                Wait::Ended => return Ok(false),
                Wait::Longer => {
                    self.order(&Order::Alive)?;
                    self.flush()?;
                }
            }
        }
    }

    fn failed(&self, path: &[u8], error: &io::Error) {
        let path = String::from_utf8_lossy(path).into_owned();
        self.shared.outcome().failed.push(Named { path, why: error.to_string() });
    }

    /// Announces an entry. True for a directory, whose content is to follow.
    fn entry(&mut self, source: &Path, way: &Path, within: &[u8], found: &Metadata) -> Result<bool, TransferError> {
        if within == PART.as_bytes() {
            return Ok(false);
        }
        let path = match Relative::try_from(within.to_vec()) {
            Ok(path) => path,
            Err(error) => {
                self.failed(within, &io::Error::new(io::ErrorKind::InvalidInput, error));
                return Ok(false);
            }
        };
        let meta = match meta::read(way, found) {
            Ok(meta) => meta,
            Err(error) => {
                self.failed(within, &error);
                return Ok(false);
            }
        };
        let figures = &self.shared.figures;
        let kind = found.file_type();
        let kind = if kind.is_dir() {
            figures.directories.fetch_add(1, Ordering::Relaxed);
            Kind::Directory
        } else if kind.is_symlink() {
            figures.links.fetch_add(1, Ordering::Relaxed);
            match std::fs::read_link(way) {
                Ok(target) => Kind::Symlink(target.as_os_str().as_bytes().to_vec()),
                Err(error) => {
                    self.failed(within, &error);
                    return Ok(false);
                }
            }
        } else if kind.is_file() {
            Kind::File(found.len())
        } else {
            self.shared.outcome().skipped.push(path.to_string());
            return Ok(false);
        };
        self.next += 1;
        let id = self.next;
        if found.is_file() && found.nlink() > 1 {
            let first = self.first.entry((found.dev(), found.ino())).or_insert_with(|| path.clone());
            if *first != path {
                figures.links.fetch_add(1, Ordering::Relaxed);
                let kind = Kind::Hardlink(first.clone());
                self.links.push(Entry { id, path, kind, meta });
                return Ok(false);
            }
        }
        let is_directory = kind == Kind::Directory;
        let entry = Entry { id, path, kind, meta };
        if found.is_file() {
            let outgoing =
                Outgoing::new(id, entry.path.clone(), (self.origin.clone(), source.to_owned()), found, entry.weight());
            if !self.alive(Shared::await_room)? {
                return Ok(false);
            }
            self.shared.announce(Arc::new(outgoing));
        }
        self.order(&Order::Entry(entry))?;
        Ok(is_directory)
    }

    fn order(&mut self, order: &Order) -> Result<(), TransferError> {
        message::put(order, self.orders.body()).map_err(TransferError::stream)?;
        if self.orders.len() >= FRAME { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), TransferError> {
        if self.orders.is_empty() {
            return Ok(());
        }
        self.orders.send().map(drop).map_err(TransferError::stream)
    }
}
