//! Records: the part of the recovery journal ([`crate::journal`]) for objects that change often, such as connections of `rdma_cm`.
//!
//! A record holds one object as bytes, and the number of a descriptor. Changes hold together, from one commit to the next.
//! They go to the log first. A router that is killed while it copies them from there leaves that to the next one.
//!
//! The anchor takes the descriptors from the keeper of the router that ended, and hands them to the next one
//! ([`Order::Recorded`](crate::control::Order::Recorded)).

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, Mutex};

use serde::Serialize;
use slipway_lab::id::NodeId;
use slipway_sys::shared::Words;

use crate::shares::{Share, Shares};
use crate::sync::lock;

/// Most records, of which each node has its share. An object without a record ends with its router.
const MOST: usize = 32768;
/// Words of a record: its length, its descriptor, and its bytes.
const RECORD: usize = 64;
/// Most bytes of an object.
const BYTES: usize = (RECORD - CONTENT) * size_of::<u64>();
/// Words of the log: room for changes of all records. It takes as much memory as the longest commit.
const LOG: usize = MOST * RECORD;

/// Words of all, at the end of the journal's file: a header ([`Parts`]), the log, and the records.
pub(crate) const WORDS: usize = HEADER + LOG + MOST * RECORD;
const HEADER: usize = 3;

// Offsets in a record. The length is 0 for one that is free, and 1 more otherwise.
const LENGTH: usize = 0;
const DESCRIPTOR: usize = 1;
const CONTENT: usize = 2;

/// Marks a record without a descriptor: none has this number.
const NONE: u64 = u64::MAX;

/// The records of a host.
#[derive(Debug)]
pub(crate) struct Records {
    words: Words,
    state: Mutex<State>,
    shares: Arc<Shares>,
    /// Shares of the descriptors: the anchor has a copy of each for a while.
    descriptors: Arc<Shares>,
}

#[derive(Debug)]
struct State {
    /// The free records below the number from which all are.
    free: Vec<usize>,
    free_from: usize,
    /// Changes since the last commit, as in the log: the record's number and the length as it is stored there, then the bytes.
    changes: Vec<u64>,
}

/// One record, until this is dropped. Drop it before its descriptor is closed.
#[derive(Debug)]
pub(crate) struct Record {
    records: Arc<Records>,
    at: usize,
    /// One for the record, and one for its descriptor.
    shares: [Option<Share>; 2],
}

/// Records that the router before left, each with its bytes. Those that nobody keeps are free again.
pub(crate) type Found = Vec<(Record, Vec<u8>)>;

/// The parts of the journal that are the records'.
#[derive(Clone, Copy)]
struct Parts<'a> {
    /// The length of the log.
    logged: &'a AtomicU64,
    /// The number of records that were ever used. Others take no memory as long as nobody looks at them.
    used: &'a AtomicU64,
    /// The next number to give out.
    next: &'a AtomicU64,
    log: &'a [AtomicU64],
    records: &'a [AtomicU64],
}

impl<'a> Parts<'a> {
    fn of(words: &'a [AtomicU64]) -> io::Result<Self> {
        let first = words.len().checked_sub(WORDS).ok_or(io::ErrorKind::InvalidInput)?;
        let (header, rest) = words[first..].split_at(HEADER);
        let (log, records) = rest.split_at(LOG);
        Ok(Self { logged: &header[0], used: &header[1], next: &header[2], log, records })
    }

    fn used(self) -> usize {
        usize::try_from(self.used.load(Acquire)).map_or(MOST, |used| used.min(MOST))
    }

    fn record(self, at: usize) -> &'a [AtomicU64] {
        &self.records[at * RECORD..][..RECORD]
    }

    /// Makes these changes.
    fn change(self, changes: &[u64]) {
        let mut rest = changes;
        while let [at, length, after @ ..] = rest {
            let (Ok(at), Some(words)) = (usize::try_from(*at), words_of(*length)) else { return };
            if at >= MOST || words > after.len() {
                return;
            }
            let record = self.record(at);
            for (word, value) in record[CONTENT..].iter().zip(&after[..words]) {
                word.store(*value, Relaxed);
            }
            record[LENGTH].store(*length, Release);
            rest = &after[words..];
        }
    }

    /// Writes changes to the log, and makes them.
    fn commit(self, changes: &[u64]) {
        for (word, value) in self.log.iter().zip(changes) {
            word.store(*value, Relaxed);
        }
        self.logged.store(changes.len() as u64, Release);
        // No change before the log is whole, and no other log before all changes.
        fence(SeqCst);
        self.change(changes);
        self.logged.store(0, Release);
        fence(SeqCst);
    }

    /// Makes the changes of a router that was killed meanwhile.
    fn recover(self) {
        let length = usize::try_from(self.logged.load(Acquire)).map_or(LOG, |length| length.min(LOG));
        let changes: Vec<u64> = self.log[..length].iter().map(|word| word.load(Relaxed)).collect();
        self.change(&changes);
        self.logged.store(0, Release);
    }
}

/// Words of an object whose length is stored so. `None` where none is so long.
fn words_of(length: u64) -> Option<usize> {
    let length = usize::try_from(length).ok()?.saturating_sub(1);
    (length <= BYTES).then(|| length.div_ceil(size_of::<u64>()))
}

/// Takes the descriptors of all records whose router has ended: the number of each record, and the number by which the router had the
/// descriptor.
///
/// # Errors
/// When the file is no journal, or cannot be mapped.
pub fn take(file: &OwnedFd) -> io::Result<Vec<(usize, i32)>> {
    let words = Words::map(file)?;
    let parts = Parts::of(&words)?;
    parts.recover();
    let taken = (0..parts.used()).filter_map(|at| {
        let record = parts.record(at);
        // Numbers of one router say nothing to the next.
        let number = i32::try_from(record[DESCRIPTOR].swap(NONE, Acquire)).ok()?;
        (record[LENGTH].load(Acquire) != 0).then_some((at, number))
    });
    Ok(taken.collect())
}

/// The bytes of a record. `None` where it is free, or not one that a router wrote.
fn read(record: &[AtomicU64]) -> Option<Vec<u8>> {
    let length = record[LENGTH].load(Acquire);
    let words = words_of(length).filter(|_| length != 0)?;
    let mut bytes: Vec<u8> =
        record[CONTENT..][..words].iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
    bytes.truncate(usize::try_from(length - 1).ok()?);
    Some(bytes)
}

impl Records {
    /// The records in a journal's file, and those that the router before left. As many as `most_descriptors` have one.
    ///
    /// # Errors
    /// As [`take`].
    pub(crate) fn open(file: &OwnedFd, most_descriptors: usize) -> io::Result<(Arc<Self>, Found)> {
        let words = Words::map(file)?;
        let parts = Parts::of(&words)?;
        parts.recover();
        let free_from = parts.used();
        // Numbers of one router say nothing to the next.
        (0..free_from).for_each(|at| parts.record(at)[DESCRIPTOR].store(NONE, Relaxed));
        let (found, free): (Vec<_>, Vec<_>) =
            (0..free_from).rev().map(|at| (at, read(parts.record(at)))).partition(|(_, bytes)| bytes.is_some());
        let free = free.into_iter().map(|(at, _)| at).collect();
        let state = Mutex::new(State { free, free_from, changes: Vec::new() });
        let (shares, descriptors) = (Shares::new(MOST), Shares::new(most_descriptors));
        let records = Arc::new(Self { words, state, shares, descriptors });
        let kept = |(at, bytes): (usize, Option<Vec<u8>>)| {
            Some((Record { records: Arc::clone(&records), at, shares: [None, None] }, bytes?))
        };
        let found = found.into_iter().rev().filter_map(kept).collect();
        Ok((records, found))
    }

    fn parts(&self) -> Option<Parts<'_>> {
        Parts::of(&self.words).ok()
    }

    /// A number that no router of the host has given out before.
    pub(crate) fn number(&self) -> u64 {
        self.parts().map_or(0, |parts| parts.next.fetch_add(1, Relaxed))
    }

    /// A new record for an object of a node. `None` where the node has its share.
    pub(crate) fn add(self: &Arc<Self>, node: NodeId) -> Option<Record> {
        let share = Some(self.shares.take(node, node)?);
        let parts = self.parts()?;
        let mut state = lock(&self.state);
        let at = state.free.pop().or_else(|| (state.free_from < MOST).then_some(state.free_from))?;
        if at == state.free_from {
            state.free_from += 1;
            parts.used.store(state.free_from as u64, Release);
        }
        parts.record(at)[DESCRIPTOR].store(NONE, Relaxed);
        Some(Record { records: Arc::clone(self), at, shares: [share, None] })
    }

    /// The same, for an object that has a descriptor.
    pub(crate) fn add_with(self: &Arc<Self>, node: NodeId, descriptor: BorrowedFd<'_>) -> Option<Record> {
        let share = Some(self.descriptors.take(node, node)?);
        let mut record = self.add(node)?;
        record.shares[1] = share;
        record.set_descriptor(descriptor);
        Some(record)
    }

    /// Has all changes hold that were made until now. The caller sees to it that nobody else commits meanwhile.
    pub(crate) fn commit(&self) {
        let changes = std::mem::take(&mut lock(&self.state).changes);
        let Some(parts) = self.parts() else { return };
        let mut rest = &changes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(whole(rest));
            parts.commit(now);
            rest = later;
        }
    }
}

/// The length of as many whole changes as the log has room for.
fn whole(changes: &[u64]) -> usize {
    let mut end = 0;
    while let Some(&length) = changes.get(end + 1) {
        let next = end + 2 + words_of(length).unwrap_or_default();
        if next > LOG {
            break;
        }
        end = next;
    }
    end
}

impl Record {
    /// Its number.
    pub(crate) fn number(&self) -> usize {
        self.at
    }

    /// Counts a record that the router before left as a node's.
    pub(crate) fn count(&mut self, node: NodeId) {
        self.shares[0] = Some(self.records.shares.keep(node, node));
    }

    /// Counts a record that has a descriptor.
    pub(crate) fn count_with(&mut self, node: NodeId) {
        self.count(node);
        self.shares[1] = Some(self.records.descriptors.keep(node, node));
    }

    /// Writes the object down, from the next commit on. One that is too long leaves the record empty.
    pub(crate) fn write(&self, object: &impl Serialize) {
        let mut bytes = [0; BYTES];
        let length = postcard::to_slice(object, &mut bytes).map_or(0, |written| written.len() + 1);
        let words = length.saturating_sub(1).div_ceil(size_of::<u64>());
        let mut state = lock(&self.records.state);
        state.changes.extend([self.at as u64, length as u64]);
        let values =
            bytes.chunks_exact(size_of::<u64>()).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap_or_default()));
        state.changes.extend(values.take(words));
    }

    /// Has all changes hold that were made until now, of this record and others.
    pub(crate) fn commit(&self) {
        self.records.commit();
    }

    /// Writes down the descriptor of the object, at once.
    pub(crate) fn set_descriptor(&self, descriptor: BorrowedFd<'_>) {
        self.descriptor(u64::from(descriptor.as_raw_fd().unsigned_abs()));
    }

    fn descriptor(&self, number: u64) {
        if let Some(parts) = self.records.parts() {
            parts.record(self.at)[DESCRIPTOR].store(number, Release);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // At once: the number may soon be another file's.
        self.descriptor(NONE);
        let mut state = lock(&self.records.state);
        state.changes.extend([self.at as u64, 0]);
        state.free.push(self.at);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    fn opened(file: &OwnedFd) -> (Arc<Records>, Found) {
        Records::open(file, 8).expect("opened")
    }

    #[test]
    fn the_next_router_finds_what_this_one_had() {
        let file = crate::journal::file().expect("a file");
        let (records, found) = opened(&file);
        assert!(found.is_empty());
        let null: OwnedFd = std::fs::File::open("/dev/null").expect("there").into();
        let [one, other, gone] = [0, 1, 2].map(|node| records.add(NodeId(node)).expect("room"));
        one.set_descriptor(null.as_fd());
        one.write(&"first");
        one.write(&"second");
        other.write(&3_u8);
        gone.write(&4_u8);
        records.commit();
        drop(gone);
        records.commit();
        // Never committed.
        other.write(&6_u8);
        // As when their process is killed.
        let at = [one.number(), other.number()];
        std::mem::forget([one, other]);
        assert_eq!(take(&file).expect("there"), [(at[0], null.as_raw_fd())]);
        assert!(take(&file).expect("there").is_empty(), "once");
        let (records, found) = opened(&file);
        let [(kept, first), (left, second)] = found.try_into().expect("two");
        assert_eq!([kept.number(), left.number()], at);
        assert_eq!(postcard::from_bytes::<&str>(&first).expect("a text"), "second");
        assert_eq!(postcard::from_bytes::<u8>(&second).expect("a number"), 3);
        drop(left);
        let new = records.add(NodeId(5)).expect("room");
        assert_eq!(new.number(), at[1]);
        kept.write(&"third");
        new.write(&5_u8);
        records.commit();
        let (_, found) = opened(&file);
        let bytes: Vec<_> = found.iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(postcard::from_bytes::<&str>(bytes[0]).expect("a text"), "third");
        assert_eq!(postcard::from_bytes::<u8>(bytes[1]).expect("a number"), 5);
    }

    #[test]
    fn an_object_that_is_too_long_has_no_record() {
        let file = crate::journal::file().expect("a file");
        let (records, _) = opened(&file);
        let record = records.add(NodeId(0)).expect("room");
        let found = |length| {
            record.write(&vec![7_u8; length]);
            records.commit();
            let (_, found) = opened(&file);
            found.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>()
        };
        assert_eq!((found(BYTES - 2), found(BYTES)), (vec![BYTES], vec![]));
    }

    /// As when a router is killed in the middle of a commit.
    #[test]
    fn changes_of_a_commit_hold_together() {
        let file = crate::journal::file().expect("a file");
        let (records, _) = opened(&file);
        let all = [0, 1].map(|node| records.add(NodeId(node)).expect("room"));
        let write_all = |value: u8| {
            for record in &all {
                record.write(&value);
            }
            std::mem::take(&mut lock(&records.state).changes)
        };
        let found = || -> Vec<Vec<u8>> { opened(&file).1.into_iter().map(|(_, bytes)| bytes).collect() };
        let parts = records.parts().expect("there");
        parts.commit(&write_all(1));
        let changes = write_all(2);
        parts.log.iter().zip(&changes).for_each(|(word, value)| word.store(*value, Relaxed));
        std::mem::forget(found());
        assert_eq!(found(), [[1], [1]]);
        parts.logged.store(changes.len() as u64, Release);
        parts.change(&changes[..3]);
        assert_eq!(found(), [[2], [2]]);
    }

    #[test]
    fn a_node_has_its_share_of_descriptors_and_numbers_are_given_once() {
        let file = crate::journal::file().expect("a file");
        let (records, _) = opened(&file);
        let of = |node| records.add_with(NodeId(node), file.as_fd());
        let all: Vec<Record> = std::iter::from_fn(|| of(0)).collect();
        assert!(all.len() < 5 && of(1).is_some() && records.add(NodeId(0)).is_some());
        let numbers = [records.number(), records.number(), opened(&file).0.number()];
        assert_eq!(numbers, [0, 1, 2]);
    }

    #[test]
    fn one_node_leaves_room_for_others() {
        let file = crate::journal::file().expect("a file");
        let (records, _) = opened(&file);
        let all: Vec<Record> = std::iter::from_fn(|| records.add(NodeId(0))).collect();
        assert!(all.len() > 8192 && all.len() < MOST / 2, "{}", all.len());
        assert!(records.add(NodeId(1)).is_some());
    }

    proptest! {
        #[test]
        fn any_words_are_a_record_or_none(length: u64) {
            let record: Vec<AtomicU64> = (0..RECORD as u64).map(AtomicU64::new).collect();
            record[LENGTH].store(length, Relaxed);
            prop_assert!(read(&record).is_none_or(|bytes| bytes.len() <= BYTES));
        }

        #[test]
        fn any_words_are_changes(changes in proptest::collection::vec(0..200_u64, 0..64)) {
            static WORDS_OF_ALL: LazyLock<Vec<AtomicU64>> =
                LazyLock::new(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
            Parts::of(&WORDS_OF_ALL).expect("as many").change(&changes);
        }
    }
}
