//! Files on their way in.

mod part;

use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::io::Errno;

use super::Seen;
use super::group::{Group, Whole};
use super::incoming::{Expected, Incoming};
use crate::error::TransferError;
use crate::frame::{Key, Reader};
use crate::link::{Link, nanoseconds};
use crate::message::{self, Answer, Item};
use crate::meta;
use crate::tree::Tree;

/// Files that a sender may announce before they are settled.
const MOST: usize = 1 << 20;
/// Bytes of their paths and attributes, about, at most. A sender of ours keeps to a quarter.
const HEAVY: usize = 4 * crate::message::HEAVY;
/// Items that are taken from a frame at once: many short ones would be long in memory, and hold many files open.
const ITEMS: usize = 128;
/// Bytes between two reports of progress.
const REPORT: u64 = 16 << 20;

/// All files of a session that are not settled.
pub(super) struct Files<'a> {
    pub(super) tree: Tree,
    pub(super) answers: SyncSender<Answer>,
    /// The disk has a file's content before the file takes its name.
    pub(super) sync: bool,
    expected: Mutex<Expected>,
    failed: AtomicBool,
    bytes: AtomicU64,
    kept: Mutex<Vec<Link>>,
    pub(super) group: Group,
    seen: &'a Seen,
    /// Why the session cannot go on here.
    refusal: Mutex<Option<String>>,
}

/// A file's own error, or one that ends the session.
pub(super) enum Trouble {
    File(io::Error),
    Session(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Session(format!(
                "{error}\nHint: make room at the destination, and run the same command again; the transfer goes on where it was"
            )),
            _ => Self::File(error),
        }
    }
}

impl From<Errno> for Trouble {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl<'a> Files<'a> {
    pub(super) fn new(tree: Tree, answers: SyncSender<Answer>, sync: bool, seen: &'a Seen) -> Self {
        Self {
            tree,
            answers,
            sync,
            expected: Mutex::default(),
            failed: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            kept: Mutex::default(),
            group: Group::default(),
            seen,
            refusal: Mutex::default(),
        }
    }

    fn expected(&self) -> MutexGuard<'_, Expected> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn expect(&self, incoming: Incoming) -> Result<Arc<Incoming>, TransferError> {
        let incoming = Arc::new(incoming);
        let mut expected = self.expected();
        expected.weight += incoming.weight;
        let fits = expected.files.len() < MOST && expected.weight <= HEAVY;
        if !fits || expected.files.insert(incoming.id, incoming.clone()).is_some() {
            return Err(TransferError::Protocol("a number is used twice, or too many files are open".to_owned()));
        }
        self.seen.counts.announce(incoming.size);
        Ok(incoming)
    }

    /// Ends the session for a reason, of which both ends' users hear.
    pub(super) fn refuse(&self, why: String) {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.clone());
        let _ = self.answers.send(Answer::Refused(why));
    }

    /// Why the session cannot go on here, if that is so.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn any_left(&self) -> bool {
        !self.expected().files.is_empty()
    }

    pub(super) fn any_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether anything of a file may be here already.
    pub(super) fn may_have(&self, incoming: &Incoming) -> bool {
        incoming.size > 0
            && !self.tree.is_new(&incoming.path)
            && (!matches!(self.tree.look(&incoming.path), Ok(None))
                || !matches!(self.tree.left_part(&incoming.path), Ok(None)))
    }

    /// Reads a stream of data to its end.
    pub(super) fn stream(&self, mut link: Link, key: Key) {
        if let Err(why) = self.items(&mut Reader::new(&mut link, key)) {
            match why {
                // Nothing is wrong here: the end of the orders says what happened.
                Trouble::File(error) => {
                    let why = format!(
                        "a stream of data ended: {error}\nHint: run the same command again; the transfer goes on where it was"
                    );
                    drop(self.answers.send(Answer::Refused(why)));
                }
                Trouble::Session(why) => self.refuse(why),
            }
            // Open until the session ends, so that the sender reads the reason before it sees the stream end.
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(link);
        }
    }

    fn items(&self, reader: &mut Reader<&mut Link>) -> Result<(), Trouble> {
        let wrong = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidData => Trouble::Session(error.to_string()),
            _ => Trouble::File(error),
        };
        let mut unreported = (0, 0);
        loop {
            let mut body = match reader.frame() {
                Ok(Some(body)) => body,
                Ok(None) => {
                    self.report(&mut unreported, 0);
                    return Ok(());
                }
                Err(error) => return Err(wrong(error)),
            };
            let mut items = Vec::new();
            while !body.is_empty() {
                items.push(message::take_item(&mut body).map_err(wrong)?);
                if !body.is_empty() && items.len() < ITEMS {
                    continue;
                }
                let began = Instant::now();
                self.apply_all(&items).map_err(Trouble::Session)?;
                unreported.0 += items.iter().map(|(_, data)| data.len() as u64).sum::<u64>();
                unreported.1 += nanoseconds(began);
                items.clear();
            }
            self.report(&mut unreported, REPORT);
        }
    }

    /// Tells the sender of progress, once it is `least` bytes.
    fn report(&self, unreported: &mut (u64, u64), least: u64) {
        if unreported.0 >= least {
            let (bytes, nanos) = std::mem::take(unreported);
            let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            let nanos = self.seen.writing.fetch_add(nanos, Ordering::Relaxed) + nanos;
            let _ = self.answers.send(Answer::Wrote(bytes, nanos));
        }
    }

    /// Applies the items of a frame.
    fn apply_all(&self, items: &[(Item, &[u8])]) -> Result<(), String> {
        // Locked once for all.
        let files: Vec<_> = {
            let expected = self.expected();
            items.iter().map(|(item, _)| expected.files.get(&file(item)).cloned()).collect()
        };
        let mut whole = Vec::new();
        let outcome = self.apply_each(items, files, &mut whole);
        self.group.add(whole);
        outcome
    }

    fn apply_each(
        &self,
        items: &[(Item, &[u8])],
        files: Vec<Option<Arc<Incoming>>>,
        whole: &mut Vec<Whole>,
    ) -> Result<(), String> {
        for ((item, data), incoming) in items.iter().zip(files) {
            let Some(incoming) = incoming else {
                // Streams do not wait for each other: one may bring more of a file that has failed.
                if self.any_failed() {
                    continue;
                }
                return Err(format!("file {} was not announced", file(item)));
            };
            match self.apply(&incoming, item, data, whole) {
                Ok(()) => {}
                Err(Trouble::File(error)) => self.fail(&incoming, &error),
                Err(Trouble::Session(why)) => return Err(why),
            }
        }
        Ok(())
    }

    fn apply(&self, incoming: &Arc<Incoming>, item: &Item, data: &[u8], whole: &mut Vec<Whole>) -> Result<(), Trouble> {
        match *item {
            Item::Data(_, offset, _) => {
                within(incoming, offset, data.len() as u64)?;
                let part = self.part(incoming)?;
                part.file.write_all_at(data, offset)?;
                self.begin_to_store(&part, offset + data.len() as u64);
                self.count(incoming, data.len() as u64, whole)
            }
            Item::Whole(..) => {
                incoming.ended.store(true, Ordering::Release);
                if data.len() as u64 != incoming.size {
                    return Err(Trouble::Session(format!("{} is not as long as announced", incoming.path)));
                }
                self.part(incoming)?.file.write_all_at(data, 0)?;
                self.count(incoming, data.len() as u64, whole)
            }
            Item::Hole(_, offset, length) => {
                within(incoming, offset, length)?;
                self.hole(incoming, offset, length)?;
                self.count(incoming, length, whole)
            }
            Item::Keep(_, offset, length) => {
                within(incoming, offset, length)?;
                if !incoming.goes_on.load(Ordering::Acquire) {
                    return Err(Trouble::Session("blocks of no file are to stay".to_owned()));
                }
                self.part(incoming)?;
                self.count(incoming, length, whole)
            }
            Item::Copy(_, offset, from, length, hash) => {
                within(incoming, offset, length.into())?;
                self.copy(incoming, offset, from, length, hash)?;
                self.count(incoming, length.into(), whole)
            }
            Item::End(_) => {
                incoming.ended.store(true, Ordering::Release);
                self.count(incoming, 0, whole)
            }
            Item::Same(_) => {
                self.tree.set(&incoming.path, &incoming.meta)?;
                self.seen.counts.done(incoming.size);
                self.forget(incoming, whole)
            }
            Item::Abandon(_) => self.forget(incoming, whole),
        }
    }

    /// Removes what there is of an incomplete file.
    fn forget(&self, incoming: &Arc<Incoming>, whole: &mut Vec<Whole>) -> Result<(), Trouble> {
        let part = incoming.part.lock().unwrap_or_else(PoisonError::into_inner).take();
        let may_be_there = part.map_or(!self.tree.is_new(&incoming.path), |part| part.unnamed.is_none());
        if may_be_there {
            self.tree.forget(&incoming.path)?;
        }
        whole.push(Whole { incoming: incoming.clone(), part: None });
        Ok(())
    }

    /// Counts bytes, and hands the file on with the last.
    fn count(&self, incoming: &Arc<Incoming>, bytes: u64, whole: &mut Vec<Whole>) -> Result<(), Trouble> {
        self.seen.counts.done(bytes);
        let received = incoming.received.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
        if received > incoming.size {
            return Err(Trouble::Session(format!("{} has more bytes than announced", incoming.path)));
        }
        if received < incoming.size || !incoming.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        if incoming.settled.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let part = self.part(incoming)?;
        meta::apply(&part.file, &incoming.meta, part.unnamed)?;
        whole.push(Whole { incoming: incoming.clone(), part: Some(part) });
        Ok(())
    }

    /// Tells the sender that nothing more is to be done for some files.
    pub(super) fn settle(&self, ids: Vec<u64>) {
        let mut expected = self.expected();
        for &id in &ids {
            expected.remove(id);
        }
        drop(expected);
        self.seen.counts.settle(ids.len());
        let _ = self.answers.send(Answer::Settled(ids));
    }

    pub(super) fn fail(&self, incoming: &Incoming, error: &io::Error) {
        self.failed.store(true, Ordering::Relaxed);
        if self.expected().remove(incoming.id) {
            let _ = self.answers.send(Answer::Failed(incoming.id, incoming.path.clone(), error.to_string()));
        }
    }
}

/// The number of the file that an item is about.
fn file(item: &Item) -> u64 {
    let (&Item::Data(id, ..)
    | &Item::Whole(id, _)
    | &Item::Hole(id, ..)
    | &Item::Keep(id, ..)
    | &Item::Copy(id, ..)
    | &Item::End(id)
    | &Item::Same(id)
    | &Item::Abandon(id)) = item;
    id
}

fn within(incoming: &Incoming, offset: u64, length: u64) -> Result<(), Trouble> {
    if offset.checked_add(length).is_some_and(|end| end <= incoming.size) {
        Ok(())
    } else {
        Err(Trouble::Session(format!("a range lies outside {}", incoming.path)))
    }
}
