//! Messages: sealed by their sender, opened in turn by their receiver.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use hmac::Mac;

use super::ProtocolError;
use super::body::{Body, Join, LONGEST_BODY, Name};
use super::key::{HmacSha256, WIDTH};
use super::window::Window;

const HEADER: usize = 2 + 8 + 8;

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

/// The session that the first message on a connection names, if it is a [`Join`] as far as that can be told without its key.
pub(super) fn session_of(first: &[u8]) -> Option<Name> {
    let body = first.get(HEADER..HEADER + Join::LENGTH)?;
    Join::read(body).map(|join| join.session)
}

/// What one side knows of a handshake that was done: the keys of what it says and of what it hears.
struct Keys {
    sending: HmacSha256,
    receiving: HmacSha256,
}

/// One side of what a handshake began: connections that are known to be the other router's by their first message. Its caller
/// has each [`join`](Self::join), and its answerer [`admit`](Self::admit)s each once. No I/O: bytes go in and come out.
pub struct Session {
    name: Name,
    keys: Arc<Keys>,
    /// Of the next connection that the caller makes.
    next: u64,
    /// Those that the answerer knows.
    known: Window,
}

impl Session {
    pub(super) fn new(name: Name, sending: HmacSha256, receiving: HmacSha256) -> Self {
        Self { name, keys: Arc::new(Keys { sending, receiving }), next: 1, known: Window::default() }
    }

    /// The session's name.
    #[must_use]
    pub fn name(&self) -> Name {
        self.name
    }

    /// The connection with a number: 0 is the one that the handshake is done on.
    pub(super) fn records(&self, number: u64) -> RecordLayer {
        RecordLayer { keys: self.keys.clone(), number, sent: 0, received: 0 }
    }

    /// A further connection, and what is to be said on it first.
    #[must_use]
    pub fn join(&mut self) -> (RecordLayer, Message) {
        let mut records = self.records(self.next);
        self.next += 1;
        let join = records.seal(&Join { session: self.name });
        (records, join)
    }

    /// The connection that this is the first message of.
    ///
    /// # Errors
    /// For whatever is not its caller's greeting of a connection that was not there before.
    pub fn admit(&mut self, join: &[u8]) -> Result<RecordLayer, ProtocolError> {
        let number = join.get(2..).and_then(<[u8]>::first_chunk).ok_or(ProtocolError::Length)?;
        let mut records = self.records(u64::from_be_bytes(*number));
        let Join { session } = records.open(join)?;
        if session != self.name {
            return Err(ProtocolError::SessionEnded);
        }
        if self.known.admit(records.number) { Ok(records) } else { Err(ProtocolError::OutOfOrder) }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session ({} connections made)", self.next)
    }
}

/// One side of one connection of a session.
pub struct RecordLayer {
    keys: Arc<Keys>,
    /// The connection's.
    number: u64,
    /// Messages.
    sent: u64,
    received: u64,
}

impl RecordLayer {
    /// The next message to the other side.
    #[must_use]
    pub fn seal<B: Body>(&mut self, body: &B) -> Message {
        let mut room = [0; LONGEST_BODY];
        let room = &mut room[..B::LENGTH];
        body.write(room);
        let header = header::<B>(self.number, self.sent);
        self.sent += 1;
        let mac = self.keys.sending.clone().chain_update(header).chain_update(&room).finalize().into_bytes();
        Message::of(&[&header, room, &mac])
    }

    /// The next message of the other side. Its MAC is looked at before anything else but its length, in constant time.
    ///
    /// # Errors
    /// For whatever is not that message, whole and alone. Nothing is to be opened after that.
    pub fn open<B: Body>(&mut self, message: &[u8]) -> Result<B, ProtocolError> {
        if message.len() != length_of::<B>() {
            return Err(ProtocolError::Length);
        }
        let (sent, mac) = message.split_at(HEADER + B::LENGTH);
        let (head, body) = sent.split_at(HEADER);
        let due = header::<B>(self.number, self.received);
        if head[..2] != due[..2] {
            return Err(ProtocolError::Length);
        }
        self.keys.receiving.clone().chain_update(sent).verify_slice(mac).map_err(|_| ProtocolError::BadMac)?;
        if head != due {
            return Err(ProtocolError::OutOfOrder);
        }
        self.received += 1;
        B::read(body).ok_or(ProtocolError::Malformed)
    }
}

fn header<B: Body>(number: u64, counter: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..2].copy_from_slice(&u16::try_from(B::LENGTH).expect("bodies are short").to_be_bytes());
    header[2..10].copy_from_slice(&number.to_be_bytes());
    header[10..].copy_from_slice(&counter.to_be_bytes());
    header
}

impl fmt::Debug for RecordLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordLayer {} ({} sent, {} received)", self.number, self.sent, self.received)
    }
}
