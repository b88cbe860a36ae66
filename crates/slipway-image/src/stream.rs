//! An archive's bytes on their way in: told apart by their magic numbers, decompressed, hashed on both sides of the
//! decompressor, and measured against limits as they pass.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use slipway_document::units::Bytes;

const BUFFER: usize = 128 * 1024;
/// Below this many bytes of content a high ratio is no bomb.
const RATIO_FREE: u64 = 100 << 20;
/// Share of the size limit that one entry stands for: 20 GiB allow two million entries.
const BYTES_PER_ENTRY: u64 = 10 << 10;

/// How much one archive or layer may hold; measured while it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the uncompressed stream.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Uncompressed by compressed bytes, beyond the first 100 MiB. `None`: any.
    pub ratio: Option<u64>,
}

impl Default for Limits {
    /// 20 GiB, two million entries, 200 times the compressed size.
    fn default() -> Self {
        let bytes = 20 << 30;
        Self { bytes, entries: bytes / BYTES_PER_ENTRY, ratio: Some(200) }
    }
}

impl Limits {
    /// A size that the user vouches for: entries in proportion, and any ratio.
    #[must_use]
    pub fn up_to(size: Bytes) -> Self {
        Self { bytes: size.0, entries: size.0 / BYTES_PER_ENTRY, ratio: None }
    }
}

/// SHA-256 of an archive, hexadecimal.
pub(super) struct Sums {
    /// SHA-256 of the file as it is on disk.
    pub(super) file: String,
    /// SHA-256 of its decompressed content.
    pub(super) content: String,
}

/// Runs `consume` over the decompressed content of `file`, then reads whatever is left of both to the end.
pub(super) fn read<T, E: From<io::Error>>(
    file: File,
    limits: &Limits,
    progress: &mut dyn FnMut(u64, u64),
    consume: impl FnOnce(&mut dyn Read) -> Result<T, E>,
) -> Result<(T, Sums), E> {
    let total = file.metadata()?.len();
    let taken = Cell::new(0);
    let mut source =
        BufReader::with_capacity(BUFFER, Source { file, hash: Sha256::new(), taken: &taken, total, progress });
    let (value, content) = {
        let mut content =
            Content { decoder: decoder(&mut source)?, hash: Sha256::new(), given: 0, taken: &taken, limits };
        let value = consume(&mut content)?;
        io::copy(&mut content, &mut io::sink())?;
        (value, hex(content.hash))
    };
    io::copy(&mut source, &mut io::sink())?;
    let file = hex(source.into_inner().hash);
    Ok((value, Sums { file, content }))
}

/// The decoder for its compression (RFC 1952 section 2.3.1; RFC 8878 sections 3.1.1 and 3.1.2).
pub(super) fn decoder<'a>(source: &'a mut impl BufRead) -> io::Result<Box<dyn Read + 'a>> {
    let skippable = |magic: &[u8]| magic[0] & 0xf0 == 0x50 && magic[1..4] == [0x2a, 0x4d, 0x18];
    let magic = source.fill_buf()?;
    if magic.len() >= 2 && magic[..2] == [0x1f, 0x8b] {
        Ok(Box::new(MultiGzDecoder::new(source)))
    } else if magic.len() >= 4 && (magic[..4] == [0x28, 0xb5, 0x2f, 0xfd] || skippable(magic)) {
        Ok(Box::new(zstd::Decoder::with_buffer(source)?))
    } else {
        Ok(Box::new(source))
    }
}

struct Source<'a> {
    file: File,
    hash: Sha256,
    taken: &'a Cell<u64>,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.hash.update(&buffer[..n]);
        self.taken.set(self.taken.get() + n as u64);
        (self.progress)(self.taken.get().min(self.total), self.total);
        Ok(n)
    }
}

struct Content<'a> {
    decoder: Box<dyn Read + 'a>,
    hash: Sha256,
    given: u64,
    taken: &'a Cell<u64>,
    limits: &'a Limits,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.decoder.read(buffer)?;
        self.hash.update(&buffer[..n]);
        self.given += n as u64;
        if self.given > self.limits.bytes {
            return Err(too_large(&format!("more than {}", Bytes(self.limits.bytes))));
        }
        if let Some(ratio) = self.limits.ratio
            && self.given > RATIO_FREE
            && self.given / ratio > self.taken.get()
        {
            return Err(too_large(&format!("over {ratio} times its own size")));
        }
        Ok(n)
    }
}

fn too_large(what: &str) -> io::Error {
    io::Error::other(format!(
        "it unpacks to {what}\nHint: if that is right, raise the limit, as in SLIPWAY_IMAGE_MAX=100GiB"
    ))
}

pub(super) fn hex(hash: Sha256) -> String {
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
