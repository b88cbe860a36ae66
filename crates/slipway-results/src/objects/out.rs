//! The folder that a worker writes objects to.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::file_name;
use crate::digest::Digest;

/// Compression level. Level 1 keeps up with a disk, and higher ones gain little on the columns of numbers that
/// simulations write.
const LEVEL: i32 = 1;
const BUFFER: usize = 128 * 1024;

/// The folder that a worker writes objects to.
#[derive(Debug)]
pub struct Out {
    folder: PathBuf,
    objects: BTreeMap<Digest, u64>,
}

impl Out {
    /// Writes to this folder, which is there.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), objects: BTreeMap::new() }
    }

    /// Writes the object of this content, in one pass: hashed and compressed together. It appears whole and on the
    /// disk, or not at all. Returns its digest and plain size in bytes. Content beyond `most` bytes fails with
    /// `FileTooLarge`.
    pub fn add(&mut self, mut content: impl Read, most: u64) -> io::Result<(Digest, u64)> {
        let file = NamedTempFile::new_in(&self.folder)?;
        let mut encoder = zstd::Encoder::new(BufWriter::with_capacity(BUFFER, file), LEVEL)?;
        let (mut hash, mut size, mut buffer) = (Sha256::new(), 0, vec![0; BUFFER]);
        loop {
            let count = match content.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            if count == 0 {
                break;
            }
            size += count as u64;
            if size > most {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            hash.update(&buffer[..count]);
            encoder.write_all(&buffer[..count])?;
        }
        let digest = Digest::from(hash);
        let file = encoder.finish()?.into_inner()?;
        if !self.objects.contains_key(&digest) {
            file.as_file().sync_all()?;
            let stored = file.as_file().metadata()?.len();
            file.persist(self.folder.join(file_name(&digest))).map_err(|error| error.error)?;
            self.objects.insert(digest, stored);
        }
        Ok((digest, size))
    }

    /// Objects that were written, with their compressed sizes in bytes.
    #[must_use]
    pub fn objects(&self) -> &BTreeMap<Digest, u64> {
        &self.objects
    }
}
