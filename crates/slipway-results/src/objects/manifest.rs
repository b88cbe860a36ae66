//! The list of an attempt's files.

use std::io::Read;

use serde::{Deserialize, Serialize};

use super::{ObjectError, Storage, content};
use crate::digest::Digest;

/// Largest manifest in bytes: a hundred thousand files with long names.
const MOST: u64 = 64 << 20;

/// The files of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Regular files, in the order of their paths.
    pub files: Vec<Entry>,
    /// Entries of the folder that storage does not keep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

/// A file of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Path in the attempt's folder.
    pub path: String,
    /// The object with its content.
    pub digest: Digest,
    /// Plain size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
}

/// An entry of the folder that storage does not keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// Path in the attempt's folder. Bytes that are no UTF-8 are replaced.
    pub path: String,
    /// The reason, as in "it is a FIFO".
    pub why: String,
}

impl Manifest {
    /// Reads a manifest. Its paths are a worker's: `unpack` checks them.
    pub fn read(storage: &dyn Storage, digest: &Digest) -> Result<Self, ObjectError> {
        let mut text = Vec::new();
        content::read(storage, digest, MOST)?.read_to_end(&mut text).map_err(ObjectError::reading(digest))?;
        serde_json::from_slice(&text)
            .map_err(|error| ObjectError::Manifest { digest: *digest, what: error.to_string() })
    }
}
