//! Plain content of objects, compared with its digest.

use std::io::{self, BufReader, Read};

use sha2::{Digest as _, Sha256};

use super::{ObjectError, Storage};
use crate::digest::Digest;

/// Largest window of compressed content, as a power of two of bytes: it bounds a reader's memory. Our own writer's is
/// 2 MiB or less.
const WINDOW: u32 = 23;

/// Opens an object's plain content. The read that reaches its end fails with `InvalidData` if the content is not the one
/// that the digest names, and one beyond `most` bytes fails too.
pub fn read(storage: &dyn Storage, digest: &Digest, most: u64) -> Result<impl Read + use<>, ObjectError> {
    plain(storage.open(digest)?, digest, most)
}

/// The plain content of compressed bytes, as [`read()`] gives it.
pub(super) fn plain(stored: Box<dyn Read>, digest: &Digest, most: u64) -> Result<impl Read + use<>, ObjectError> {
    let mut decoder = zstd::Decoder::new(stored).map_err(ObjectError::reading(digest))?;
    decoder.window_log_max(WINDOW).map_err(ObjectError::reading(digest))?;
    Ok(Content { decoder, digest: *digest, hash: Sha256::new(), left: most })
}

/// Reads a whole object and returns its plain size in bytes.
///
/// # Errors
/// [`ObjectError::Content`] if the content is not the one that the digest names.
pub fn verify(storage: &dyn Storage, digest: &Digest) -> Result<u64, ObjectError> {
    let mut content = read(storage, digest, u64::MAX)?;
    io::copy(&mut content, &mut io::sink()).map_err(ObjectError::reading(digest))
}

struct Content {
    decoder: zstd::Decoder<'static, BufReader<Box<dyn Read>>>,
    digest: Digest,
    hash: Sha256,
    left: u64,
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        let bad = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        if count == 0 && !buffer.is_empty() && Digest::from(self.hash.clone()) != self.digest {
            return Err(bad("its content is not the one that its name says"));
        }
        self.hash.update(&buffer[..count]);
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| bad("it is larger than it may be"))?;
        Ok(count)
    }
}
