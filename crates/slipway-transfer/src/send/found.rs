//! The receiver's blocks of a file. They decide how each range gets there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::message::{Basis, Block};

/// How a range gets to the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Offset and length of bytes that it lacks.
    Send(u64, u64),
    /// Offset and length of a hole.
    Hole(u64, u64),
    /// Offset and length of bytes that its incomplete file has.
    Keep(u64, u64),
    /// A block of its older version: offset, offset there, length, hash.
    Copy(u64, u64, u32, [u8; 32]),
}

/// Blocks that the sender keeps of all files at a time, about a gigabyte. Others are sent, as if the receiver had none.
const MOST: usize = 1 << 23;

/// The receiver's blocks of a file, as far as the sender knows them.
#[derive(Default)]
pub(super) struct Found {
    /// Of its incomplete file: length and hash by offset.
    part: HashMap<u64, (u32, [u8; 32])>,
    /// Of its older version: offset and length by hash.
    old: HashMap<[u8; 32], (u64, u32)>,
    /// Blocks that it listed of the older version.
    old_blocks: HashMap<u64, [u8; 32]>,
    pub(super) old_size: Option<u64>,
    /// The segments' steps, by their beginning.
    pub(super) steps: HashMap<u64, Vec<Step>>,
    /// Blocks that are the same, where they are, in the older version.
    in_place: usize,
    /// Blocks that are not.
    elsewhere: usize,
    /// Blocks that count in the budget of all files.
    counted: usize,
}

impl Found {
    /// Takes blocks that the receiver lists.
    pub(super) fn add(&mut self, basis: Basis, blocks: Vec<Block>, all: &AtomicUsize) {
        if all.load(Ordering::Relaxed) + blocks.len() > MOST {
            // Never the same, as far as anyone knows.
            self.elsewhere += 1;
            return;
        }
        all.fetch_add(blocks.len(), Ordering::Relaxed);
        self.counted += blocks.len();
        for Block { offset, length, hash } in blocks {
            match basis {
                Basis::Part => drop(self.part.insert(offset, (length, hash))),
                Basis::Old => {
                    self.old.entry(hash).or_insert((offset, length));
                    self.old_blocks.insert(offset, hash);
                }
            }
        }
    }

    /// Forgets everything, and gives the budget back.
    pub(super) fn clear(&mut self, all: &AtomicUsize) {
        all.fetch_sub(self.counted, Ordering::Relaxed);
        *self = Self::default();
    }

    /// How the block at `offset` gets to the receiver.
    pub(super) fn step(&mut self, offset: u64, bytes: &[u8]) -> Step {
        let hash = *blake3::hash(bytes).as_bytes();
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if self.old_blocks.get(&offset) == Some(&hash) {
            self.in_place += 1;
        } else {
            self.elsewhere += 1;
        }
        if self.part.get(&offset) == Some(&(length, hash)) {
            return Step::Keep(offset, length.into());
        }
        match self.old.get(&hash) {
            Some(&(from, old_length)) if old_length == length => Step::Copy(offset, from, length, hash),
            _ => Step::Send(offset, length.into()),
        }
    }

    /// The older version is the same: no block is anywhere else, and it has no others where this one has holes.
    pub(super) fn is_same(&self, size: u64) -> bool {
        self.old_size == Some(size) && self.elsewhere == 0 && self.in_place == self.old_blocks.len()
    }
}
