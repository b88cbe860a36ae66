//! One file on its way in.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use crate::message::Meta;
use crate::path::Relative;
use crate::tree::Birth;

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
    pub(super) fn new(id: u64, path: Relative, meta: Meta, size: u64) -> Self {
        Self {
            id,
            path,
            meta,
            size,
            received: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            goes_on: AtomicBool::new(false),
            part: Mutex::default(),
            old: Mutex::default(),
        }
    }
}
