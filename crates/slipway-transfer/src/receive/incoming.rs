//! Files on their way in, one by one.

use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use crate::message::Meta;
use crate::meta::Birth;
use crate::path::Relative;

/// The bytes of a file that are here.
pub(super) struct Part {
    pub(super) file: File,
    /// It has no name yet, and these attributes.
    pub(super) unnamed: Option<Birth>,
}

/// A file on its way in.
pub(super) struct Incoming {
    pub(super) id: u64,
    pub(super) path: Relative,
    pub(super) meta: Meta,
    pub(super) size: u64,
    /// Bytes that it takes in memory, about.
    pub(super) weight: usize,
    /// Bytes whose content is known, holes included.
    pub(super) received: AtomicU64,
    pub(super) ended: AtomicBool,
    pub(super) settled: AtomicBool,
    /// An incomplete file was found, and its blocks listed.
    pub(super) goes_on: AtomicBool,
    pub(super) part: Mutex<Option<Arc<Part>>>,
    pub(super) old: Mutex<Option<Arc<File>>>,
}

impl Incoming {
    pub(super) fn new(id: u64, path: Relative, meta: Meta, size: u64, weight: usize) -> Self {
        Self {
            id,
            path,
            meta,
            size,
            weight,
            received: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            goes_on: AtomicBool::new(false),
            part: Mutex::default(),
            old: Mutex::default(),
        }
    }
}

/// Files that are announced and not settled, and what they weigh.
#[derive(Default)]
pub(super) struct Expected {
    pub(super) files: HashMap<u64, Arc<Incoming>>,
    pub(super) weight: usize,
}

impl Expected {
    /// False where it is not there.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let removed = self.files.remove(&id);
        self.weight -= removed.as_ref().map_or(0, |incoming| incoming.weight);
        removed.is_some()
    }
}
