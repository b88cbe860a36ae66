//! Lists the data set.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::outgoing::Outgoing;
use super::report::Named;
use super::shared::{Shared, Wait};
use crate::error::TransferError;
use crate::frame::Writer;
use crate::message::{self, Entry, Kind, Order};
use crate::meta;
use crate::path::{PART, Relative};

/// Bytes of orders in a frame, about.
const FRAME: usize = 64 << 10;

/// Announces `sources` with all that is in them, and waits until every file is settled. Hard links come last, when there
/// is something to link to.
pub(super) fn list(
    sources: &[PathBuf],
    shared: &Arc<Shared>,
    orders: &mut Writer<impl Write>,
) -> Result<(), TransferError> {
    let mut scan = Scan { shared, orders, next: 0, first: HashMap::new(), links: Vec::new() };
    for source in sources {
        let found =
            std::fs::symlink_metadata(source).map_err(TransferError::io(format!("read {}", source.display())))?;
        let is_content = source.as_os_str().as_bytes().ends_with(b"/");
        match source.file_name().filter(|_| !is_content) {
            Some(name) => scan.entry(source, name.as_bytes(), &found)?,
            // As `.` and `..` are: nobody else knows them by that name.
            None => scan.content(source, &[])?,
        }
    }
    scan.flush()?;
    if !scan.alive(Shared::await_settled)? {
        return Ok(());
    }
    for entry in std::mem::take(&mut scan.links) {
        scan.order(&Order::Entry(entry))?;
    }
    scan.flush()
}

struct Scan<'a, W> {
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
        let listed = std::fs::read_dir(folder).and_then(|entries| {
            for entry in entries {
                names.push(entry?.file_name());
            }
            Ok(())
        });
        if let Err(error) = listed {
            let shown = String::from_utf8_lossy(prefix).into_owned();
            self.shared.outcome().failed.push(Named { path: shown, why: error.to_string() });
        }
        names.sort_unstable();
        for name in names {
            let path = folder.join(&name);
            let within =
                if prefix.is_empty() { name.as_bytes().to_vec() } else { [prefix, name.as_bytes()].join(&b'/') };
            match std::fs::symlink_metadata(&path) {
                Ok(found) => self.entry(&path, &within, &found)?,
                // It was removed meanwhile: as if it had been so before.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.failed(&within, &error),
            }
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

    fn entry(&mut self, source: &Path, within: &[u8], found: &Metadata) -> Result<(), TransferError> {
        if within == PART.as_bytes() {
            return Ok(());
        }
        let path = match Relative::try_from(within.to_vec()) {
            Ok(path) => path,
            Err(error) => {
                self.failed(within, &io::Error::new(io::ErrorKind::InvalidInput, error));
                return Ok(());
            }
        };
        let meta = match meta::read(source, found) {
            Ok(meta) => meta,
            Err(error) => {
                self.failed(within, &error);
                return Ok(());
            }
        };
        let figures = &self.shared.figures;
        let kind = found.file_type();
        let kind = if kind.is_dir() {
            figures.directories.fetch_add(1, Ordering::Relaxed);
            Kind::Directory
        } else if kind.is_symlink() {
            figures.links.fetch_add(1, Ordering::Relaxed);
            match std::fs::read_link(source) {
                Ok(target) => Kind::Symlink(target.as_os_str().as_bytes().to_vec()),
                Err(error) => {
                    self.failed(within, &error);
                    return Ok(());
                }
            }
        } else if kind.is_file() {
            Kind::File(found.len())
        } else {
            self.shared.outcome().skipped.push(path.to_string());
            return Ok(());
        };
        self.next += 1;
        let id = self.next;
        if found.is_file() && found.nlink() > 1 {
            let first = self.first.entry((found.dev(), found.ino())).or_insert_with(|| path.clone());
            if *first != path {
                figures.links.fetch_add(1, Ordering::Relaxed);
                let kind = Kind::Hardlink(first.clone());
                self.links.push(Entry { id, path, kind, meta });
                return Ok(());
            }
        }
        let is_directory = kind == Kind::Directory;
        let entry = Entry { id, path, kind, meta };
        if found.is_file() {
            let outgoing = Outgoing::new(id, entry.path.clone(), source.to_owned(), found, entry.weight());
            if !self.alive(Shared::await_room)? {
                return Ok(());
            }
            self.shared.announce(Arc::new(outgoing));
        }
        self.order(&Order::Entry(entry))?;
        if is_directory { self.content(source, within) } else { Ok(()) }
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
