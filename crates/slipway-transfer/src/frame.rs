//! Frames: a length, a body, and a tag that binds the body to its stream and its place therein.
//!
//! ```text
//! length of the body, 4 bytes, little-endian | body | BLAKE3 tag, 32 bytes
//! ```
//!
//! The tag is BLAKE3 keyed with the stream's key, over the frame's number and the body. The sender makes it from what it
//! read, and the receiver checks it before it writes. So it holds on streams without TLS too.

use std::io::{self, Read, Write};

/// Longest body, bytes. An end sets this much memory aside for each stream, and no more.
pub const LARGEST: usize = (1 << 20) + (64 << 10);
/// Bytes before a body.
const HEAD: usize = 4;
/// Bytes after it.
const TAG: usize = blake3::OUT_LEN;

/// A key of one stream in one direction.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of orders from a server.
    #[must_use]
    pub fn of_server(session: &[u8; 32]) -> Self {
        Self::new(session, u32::MAX)
    }

    /// The key of stream `number` in a session with the secret `session`.
    #[must_use]
    pub fn new(session: &[u8; 32], number: u32) -> Self {
        Self(*blake3::keyed_hash(session, &number.to_le_bytes()).as_bytes())
    }

    /// The tag of frame `number`, from 0.
    fn tag(&self, number: u64, body: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&number.to_le_bytes());
        hasher.update(body);
        hasher.finalize()
    }
}

/// Writes frames.
pub struct Writer<W> {
    to: W,
    key: Key,
    number: u64,
    frame: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// A writer that begins with frame 0.
    pub fn new(to: W, key: Key) -> Self {
        Self { to, key, number: 0, frame: vec![0; HEAD] }
    }

    /// The body of the next frame, for the caller to append to.
    pub fn body(&mut self) -> &mut Vec<u8> {
        &mut self.frame
    }

    /// Bytes of the next frame's body so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frame.len() - HEAD
    }

    /// Bytes of the next frame as it will be sent.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.frame.len() + TAG
    }

    /// True while the next frame has no body.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shortens the next frame's body to `length` bytes.
    pub fn cut(&mut self, length: usize) {
        self.frame.truncate(HEAD + length);
    }

    /// Sends the frame, and gives its length in bytes.
    ///
    /// # Errors
    /// `InvalidInput` where the body is longer than [`LARGEST`]; else the stream's.
    pub fn send(&mut self) -> io::Result<usize> {
        let length = self.len();
        let head = u32::try_from(length).ok().filter(|_| length <= LARGEST).ok_or(io::ErrorKind::InvalidInput)?;
        let tag = self.key.tag(self.number, &self.frame[HEAD..]);
        self.frame[..HEAD].copy_from_slice(&head.to_le_bytes());
        self.frame.extend_from_slice(tag.as_bytes());
        let sent = self.to.write_all(&self.frame).and_then(|()| self.to.flush());
        let whole = self.frame.len();
        self.frame.truncate(HEAD);
        self.number += 1;
        sent.map(|()| whole)
    }

    /// The stream that frames go to.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }

    /// The stream that frames went to.
    pub fn into_inner(self) -> W {
        self.to
    }
}

/// Reads frames.
pub struct Reader<R> {
    from: R,
    key: Key,
    number: u64,
    body: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// A reader that begins with frame 0.
    pub fn new(from: R, key: Key) -> Self {
        Self { from, key, number: 0, body: Vec::new() }
    }

    /// The body of the next frame; `None` where the stream ends before one.
    ///
    /// # Errors
    /// `InvalidData` for a length above [`LARGEST`] or a wrong tag, `UnexpectedEof` within a frame; else the stream's.
    pub fn frame(&mut self) -> io::Result<Option<&[u8]>> {
        let mut head = [0; HEAD];
        let first = loop {
            match self.from.read(&mut head) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if first == 0 {
            return Ok(None);
        }
        self.from.read_exact(&mut head[first..])?;
        let length = u32::from_le_bytes(head) as usize;
        if length > LARGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
        }
        self.body.resize(length, 0);
        self.from.read_exact(&mut self.body)?;
        let mut tag = [0; TAG];
        self.from.read_exact(&mut tag)?;
        // Compared in constant time, as `blake3::Hash` does.
        if self.key.tag(self.number, &self.body) != blake3::Hash::from_bytes(tag) {
            let number = self.number;
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "frame {number} was changed on its way\nHint: run the same command again; the transfer goes on where it was"
                ),
            ));
        }
        self.number += 1;
        Ok(Some(&self.body))
    }

    /// The stream that frames come from.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.from
    }

    /// The stream that frames came from. The reader took no byte behind the last frame.
    pub fn into_inner(self) -> R {
        self.from
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(number: u32) -> Key {
        Key::new(&[7; 32], number)
    }

    fn written(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), key(1));
        for body in bodies {
            writer.body().extend_from_slice(body);
            writer.send().expect("a vector takes all");
        }
        writer.to
    }

    proptest! {
        #[test]
        fn frames_come_back(bodies: Vec<Vec<u8>>) {
            let bytes = written(&bodies);
            let mut reader = Reader::new(bytes.as_slice(), key(1));
            for body in &bodies {
                prop_assert_eq!(reader.frame().expect("whole"), Some(body.as_slice()));
            }
            prop_assert_eq!(reader.frame().expect("the end"), None);
        }

        #[test]
        fn a_flipped_bit_is_found(body: Vec<u8>, at: prop::sample::Index, bit in 0..8u32) {
            let mut bytes = written(&[body]);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(Reader::new(bytes.as_slice(), key(1)).frame().is_err());
        }
    }

    #[test]
    fn a_frame_fits_its_place_alone() {
        let bytes = written(&[b"one".to_vec(), b"two".to_vec()]);
        assert!(Reader::new(bytes.as_slice(), key(2)).frame().is_err(), "another stream");
        let second = &bytes[HEAD + 3 + TAG..];
        assert!(Reader::new(second, key(1)).frame().is_err(), "another number");
    }

    #[test]
    fn a_long_frame_is_refused_before_it_is_read() {
        let mut reader = Reader::new([0xff; 4].as_slice(), key(1));
        assert_eq!(reader.frame().expect_err("too long").kind(), io::ErrorKind::InvalidData);
    }
}
