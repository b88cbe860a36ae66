//! `--verify-only`: compares, and changes nothing.

use std::collections::HashSet;
use std::io;
use std::sync::mpsc::SyncSender;

use rustix::fs::FileType;

use super::Orders;
use super::basis::list;
use crate::error::TransferError;
use crate::message::{Answer, Basis, Entry, Kind, Meta, Order};
use crate::meta;
use crate::path::Relative;
use crate::tree::Tree;

/// Entries of a comparison, at most.
const MOST: usize = 1 << 25;
/// Bytes of its directories' paths, at most.
const HEAVY: usize = 512 << 20;

/// A comparison.
pub(super) struct Verify<'a> {
    tree: Tree,
    answers: &'a SyncSender<Answer>,
    /// Fingerprints of the paths that the sender listed.
    seen: HashSet<[u8; 16]>,
    directories: Vec<Relative>,
    /// Bytes of the directories' paths.
    weight: usize,
    buffer: Vec<u8>,
}

impl<'a> Verify<'a> {
    pub(super) fn new(tree: Tree, answers: &'a SyncSender<Answer>) -> Self {
        Self { weight: 0, tree, answers, seen: HashSet::new(), directories: Vec::new(), buffer: Vec::new() }
    }

    pub(super) fn run(mut self, orders: &mut Orders) -> Result<(), TransferError> {
        let _ = self.answers.send(Answer::Ready);
        loop {
            match orders.next()? {
                None => return Err(TransferError::Lost(io::ErrorKind::UnexpectedEof.into())),
                Some(Order::Begin { .. }) => return Err(TransferError::Protocol("a second beginning".to_owned())),
                Some(Order::Finish) => break,
                Some(Order::Alive) => {}
                Some(Order::Fetch { .. } | Order::Told(..) | Order::Report(_) | Order::Refused(_)) => {
                    return Err(TransferError::Protocol("an order out of place".to_owned()));
                }
                Some(Order::Entry(entry)) => {
                    if self.seen.len() >= MOST || self.weight > HEAVY {
                        return Err(TransferError::Protocol("too many entries".to_owned()));
                    }
                    let (id, path) = (entry.id, entry.path.clone());
                    match self.compare(entry) {
                        Ok(true) => {}
                        Ok(false) => self.answer(Answer::Settled(vec![id])),
                        Err(error) => self.answer(Answer::Failed(id, path, error.to_string())),
                    }
                }
            }
        }
        // The sender lists whole directories only: what is not theirs in those below them is extra.
        let tops: Vec<&Relative> =
            self.directories.iter().filter(|path| !self.directories.iter().any(|other| is_in(path, other))).collect();
        for top in tops {
            let (seen, answers) = (&self.seen, self.answers);
            let listed = self.tree.list(top, &mut |path| {
                if !seen.contains(&fingerprint(&path)) {
                    let _ = answers.send(Answer::Extra(path));
                }
            });
            listed.map_err(TransferError::io(format!("list {top}")))?;
        }
        self.answer(Answer::Over);
        Ok(())
    }

    fn answer(&self, answer: Answer) {
        // The other end is gone, and the next order says so.
        let _ = self.answers.send(answer);
    }

    /// Compares what needs no block. True where the sender now has a file's blocks, and the rest to do.
    fn compare(&mut self, entry: Entry) -> io::Result<bool> {
        let Entry { id, path, kind, meta } = entry;
        let differs = |this: &Self, what: &str| this.answer(Answer::Differs(id, path.clone(), what.to_owned()));
        let found = self.tree.look(&path)?;
        self.seen.insert(fingerprint(&path));
        let Some((found, target)) = found else {
            differs(self, "missing");
            return Ok(false);
        };
        match (kind, FileType::from_raw_mode(found.st_mode)) {
            (Kind::Directory, FileType::Directory) => {
                self.weight += path.as_bytes().len();
                self.directories.push(path.clone());
                self.attributes(id, &path, &meta)?;
                Ok(false)
            }
            (Kind::Symlink(wanted), FileType::Symlink) => {
                if target.as_ref() != Some(&wanted) {
                    differs(self, "it points elsewhere");
                }
                Ok(false)
            }
            (Kind::Hardlink(to), FileType::RegularFile) => {
                let same = self
                    .tree
                    .look(&to)?
                    .is_some_and(|(other, _)| (other.st_dev, other.st_ino) == (found.st_dev, found.st_ino));
                if !same {
                    differs(self, "not the same file as its other name");
                }
                Ok(false)
            }
            (Kind::File(size), FileType::RegularFile) => {
                self.attributes(id, &path, &meta)?;
                if u64::try_from(found.st_size).ok() != Some(size) {
                    differs(self, "size");
                    return Ok(false);
                }
                let file = self.tree.old(&path)?;
                let old = list(&file, id, size, Basis::Old, &mut self.buffer, self.answers)?;
                self.answer(Answer::Listed(id, Some(old)));
                Ok(true)
            }
            _ => {
                differs(self, "another kind of file");
                Ok(false)
            }
        }
    }

    fn attributes(&self, id: u64, path: &Relative, meta: &Meta) -> io::Result<()> {
        let there = meta::of(&self.tree.old(path)?)?;
        let differences = meta::differences(&there, meta);
        if !differences.is_empty() {
            self.answer(Answer::Differs(id, path.clone(), differences.join(", ")));
        }
        Ok(())
    }
}

/// Half of the path's BLAKE3.
fn fingerprint(path: &Relative) -> [u8; 16] {
    let hash = blake3::hash(path.as_bytes());
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}

fn is_in(path: &Relative, folder: &Relative) -> bool {
    path.as_bytes().strip_prefix(folder.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
}
