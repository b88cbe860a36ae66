//! Pages that the gateway maps: all pages that a region touches, on files which it gets.
//!
//! Regions may overlap, and small ones share a page with others and with the rest of the heap. So the process has one table of
//! *runs*, each on a file of its own. A region takes the runs that are there, and makes new ones for the gaps between them.
//!
//! While a page moves onto its file, another thread may write there: between the copy and the mapping, what it writes is lost.
//! So the first and the last page of a run, where foreign data may be, move alone: a copy, and the mapping at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;

use super::loader;
use super::maps::{Line, PAGE, is_private, is_shared, lines, shared_parts};
use super::memory::{Mapping, Piece, bytes, map_back, map_over};
use crate::gateway::{FILES, Part};
use crate::layout::SIZED;

/// Pages on one file.
#[derive(Debug)]
struct Run {
    pages: Piece,
    file: Arc<OwnedFd>,
    users: usize,
    /// The program has unmapped some of the pages. Regions that come later have others there.
    is_stale: bool,
}

/// Runs by the number of their file.
struct Table(BTreeMap<u64, Run>);

/// Two devices of a process share its memory, and so this table.
static TABLE: Mutex<Table> = Mutex::new(Table(BTreeMap::new()));

thread_local! {
    /// The table and the copies of the thread that forks.
    static FORK: RefCell<Option<Fork>> = const { RefCell::new(None) };
}

/// The table while its process forks, and copies of the pages that hold foreign data.
struct Fork {
    copies: Vec<(Piece, Mapping)>,
    _table: MutexGuard<'static, Table>,
}

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pages that a region has taken. They are given back when this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    inodes: Vec<u64>,
    files: Vec<Arc<OwnedFd>>,
    parts: Vec<Part>,
}

impl Taken {
    /// The file of each part.
    pub(super) fn files(&self) -> Vec<BorrowedFd<'_>> {
        self.files.iter().map(|it| it.as_fd()).collect()
    }

    /// Where the pages are, in the order of their addresses.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        table().release(&self.inodes);
    }
}

/// Takes all pages that a region touches. The caller has seen to forks (`pthread_atfork(3)`). `None` where they are on too many files, or where some are not the program's own.
pub(super) fn take(memory: Piece) -> Option<Taken> {
    let first = memory.at / PAGE * PAGE;
    let last = memory.at.checked_add(memory.length)?.checked_next_multiple_of(PAGE)?;
    table().take(Piece { at: first, length: last - first })
}

impl Table {
    fn take(&mut self, pages: Piece) -> Option<Taken> {
        let lines = lines();
        let cover = self.cover(pages, &lines);
        if cover.len() > FILES {
            return None;
        }
        let may_move = |gap: Piece| is_private(&lines, gap) && !loader::is_own_stack(gap);
        if cover.iter().any(|(part, inode)| inode.is_none() && !may_move(*part)) {
            return None;
        }
        let mut taken = (Vec::new(), Vec::new(), Vec::new());
        for (part, known) in cover {
            let Some((inode, run)) = self.run(part, known) else {
                self.release(&taken.0);
                return None;
            };
            run.users += 1;
            taken.0.push(inode);
            taken.1.push(Arc::clone(&run.file));
            taken.2.push(Part { offset: (part.at - run.pages.at) as u64, length: part.length as u64 });
        }
        let (inodes, files, parts) = taken;
        Some(Taken { inodes, files, parts })
    }

    /// The parts of some pages, with the runs that they are in. The others are gaps.
    fn cover(&mut self, pages: Piece, lines: &[Line]) -> Vec<(Piece, Option<u64>)> {
        let end = pages.at + pages.length;
        let mut known = Vec::new();
        for (inode, run) in self.0.iter_mut().filter(|(_, it)| !it.is_stale) {
            let Some(part) = common(run.pages, pages) else { continue };
            run.is_stale = !is_shared(lines, part, *inode);
            if !run.is_stale {
                known.push((part, *inode));
            }
        }
        known.sort_unstable_by_key(|(part, _)| part.at);
        let (mut all, mut at) = (Vec::new(), pages.at);
        for (part, inode) in known {
            if at < part.at {
                all.push((Piece { at, length: part.at - at }, None));
            }
            at = part.at + part.length;
            all.push((part, Some(inode)));
        }
        if at < end {
            all.push((Piece { at, length: end - at }, None));
        }
        all
    }

    /// A run that is known, or a new one of these pages.
    fn run(&mut self, pages: Piece, known: Option<u64>) -> Option<(u64, &mut Run)> {
        let inode = if let Some(inode) = known {
            inode
        } else {
            let (file, inode) = share(pages).ok()?;
            self.0.insert(inode, Run { pages, file: Arc::new(file), users: 0, is_stale: false });
            inode
        };
        Some((inode, self.0.get_mut(&inode)?))
    }

    fn release(&mut self, inodes: &[u64]) {
        for inode in inodes {
            let Some(run) = self.0.get_mut(inode) else { continue };
            run.users = run.users.saturating_sub(1);
            if run.users == 0 {
                let pages = run.pages;
                self.0.remove(inode);
                give_back(pages, *inode);
            }
        }
    }

    /// The first and the last page of each run, as far as they are still mapped.
    fn edges(&self) -> Vec<Piece> {
        let lines = if self.0.is_empty() { Vec::new() } else { lines() };
        let of = |(inode, run): (&u64, &Run)| {
            let edges = steps(run.pages).into_iter().filter(|it| it.length == PAGE);
            edges.filter(|it| is_shared(&lines, *it, *inode)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }
}

fn common(one: Piece, other: Piece) -> Option<Piece> {
    let start = one.at.max(other.at);
    let end = (one.at + one.length).min(other.at + other.length);
    (start < end).then(|| Piece { at: start, length: end - start })
}

/// The steps in which pages move: the first and the last page alone, where foreign data may be, and then those between.
fn steps(pages: Piece) -> Vec<Piece> {
    let end = pages.at + pages.length;
    let mut all = vec![Piece { at: pages.at, length: PAGE }];
    if pages.length > PAGE {
        all.push(Piece { at: end - PAGE, length: PAGE });
    }
    if pages.length > 2 * PAGE {
        all.push(Piece { at: pages.at + PAGE, length: pages.length - 2 * PAGE });
    }
    all
}

/// Moves pages onto a file. Gives it with its number.
fn share(pages: Piece) -> Result<(OwnedFd, u64), Errno> {
    let file = memfd_create("slipway-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, pages.length as u64)?;
    fcntl_add_seals(&file, SIZED | SealFlags::SEAL)?;
    let inode = fstat(&file)?.st_ino;
    for step in steps(pages) {
        if let Err(errno) = move_onto(&file, step, step.at - pages.at) {
            give_back(pages, inode);
            return Err(errno);
        }
    }
    Ok((file, inode))
}

/// Nothing is between the copy and the mapping but the calls of the kernel: the allocator's own data may be on these pages.
fn move_onto(file: &OwnedFd, pages: Piece, offset: usize) -> Result<(), Errno> {
    let mut done = 0;
    while done < pages.length {
        let rest = Piece { at: pages.at + done, length: pages.length - done };
        match rustix::io::retry_on_intr(|| rustix::io::pwrite(file, bytes(rest), (offset + done) as u64))? {
            0 => return Err(Errno::IO),
            written => done += written,
        }
    }
    map_over(pages, file, offset as u64)
}

/// Makes pages the program's own again. It may have unmapped some, and mapped others there: those are not touched.
fn give_back(pages: Piece, inode: u64) {
    for step in shared_parts(&lines(), pages, inode).into_iter().flat_map(steps) {
        let _ = map_back(step);
    }
}

/// A child shares the pages of runs with its parent, but not what else is on them: it gets copies of those at the edges. They are
/// made before, since a child may call little. Later writes of other threads are not in them.
pub(super) fn before_fork() {
    let table = table();
    let copy = |page| Some((page, Mapping::copy_of(page).ok()?));
    let copies = table.edges().into_iter().filter_map(copy).collect();
    let _ = FORK.try_with(|it| it.replace(Some(Fork { copies, _table: table })));
}

/// The process has forked, or has failed to.
pub(super) fn after_fork(is_child: bool) {
    let Ok(Some(fork)) = FORK.try_with(RefCell::take) else { return };
    if is_child {
        for (page, copy) in fork.copies {
            let _ = copy.move_over(page);
        }
    }
}

#[cfg(test)]
mod tests;
