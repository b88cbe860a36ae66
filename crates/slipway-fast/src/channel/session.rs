//! Messages after the handshake: sealed by their sender, opened in turn by their receiver.

use std::fmt;
use std::ops::Deref;

use hmac::Mac;

use super::Breach;
use super::body::{Body, LONGEST_BODY};
use super::key::{Keyed, WIDTH};

const HEADER: usize = 2 + 8;

/// Bytes of the longest message, handshake included.
pub const LONGEST: usize = HEADER + LONGEST_BODY + WIDTH;

/// Bytes to be sent as they are.
#[derive(Clone, Copy)]
pub struct Message {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Message {
    /// `parts` one after another.
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let mut message = Self { bytes: [0; LONGEST], length: 0 };
        for part in parts {
            message.bytes[message.length..][..part.len()].copy_from_slice(part);
            message.length += part.len();
        }
        message
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message of {} bytes", self.length)
    }
}

/// Bytes of a message with this body.
pub(super) const fn length_of<B: Body>() -> usize {
    HEADER + B::LENGTH + WIDTH
}

/// One side of a connection that has been shown to be the lab's. No I/O: bytes go in and come out.
pub struct Session {
    says: Direction,
    hears: Direction,
}

struct Direction {
    key: Keyed,
    /// Of the next message.
    counter: u64,
}

impl Session {
    pub(super) fn new(says: Keyed, hears: Keyed) -> Self {
        let direction = |key| Direction { key, counter: 0 };
        Self { says: direction(says), hears: direction(hears) }
    }

    /// The next message to the other side.
    #[must_use]
    pub fn seal<B: Body>(&mut self, body: &B) -> Message {
        let mut room = [0; LONGEST_BODY];
        let room = &mut room[..B::LENGTH];
        body.write(room);
        let header = header::<B>(self.says.counter);
        self.says.counter += 1;
        let mac = self.says.key.clone().chain_update(header).chain_update(&room).finalize().into_bytes();
        Message::of(&[&header, room, &mac])
    }

    /// The next message of the other side. Its MAC is looked at before anything else but its length, in constant time.
    ///
    /// # Errors
    /// For whatever is not that message, whole and alone. Nothing is to be opened after that.
    pub fn open<B: Body>(&mut self, message: &[u8]) -> Result<B, Breach> {
        if message.len() != length_of::<B>() {
            return Err(Breach::Length);
        }
        let (said, mac) = message.split_at(HEADER + B::LENGTH);
        let (head, body) = said.split_at(HEADER);
        if head[..2] != header::<B>(0)[..2] {
            return Err(Breach::Length);
        }
        self.hears.key.clone().chain_update(said).verify_slice(mac).map_err(|_| Breach::Forged)?;
        if head != header::<B>(self.hears.counter) {
            return Err(Breach::Turn);
        }
        self.hears.counter += 1;
        B::read(body).ok_or(Breach::Meaning)
    }
}

fn header<B: Body>(counter: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..2].copy_from_slice(&u16::try_from(B::LENGTH).expect("bodies are short").to_be_bytes());
    header[2..].copy_from_slice(&counter.to_be_bytes());
    header
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session ({} said, {} heard)", self.says.counter, self.hears.counter)
    }
}
