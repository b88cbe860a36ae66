//! Messages: their sender seals them, and their receiver opens them in order.

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

/// The bytes of a message, ready to send.
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

/// The session that a connection's first message names, if the message looks like a [`Join`]. Its MAC is not checked yet.
pub(super) fn session_of(first: &[u8]) -> Option<Name> {
    let body = first.get(HEADER..HEADER + Join::LENGTH)?;
    Join::read(body).map(|join| join.session)
}

/// The keys of one side after a handshake, one for each direction.
struct Keys {
    sending: HmacSha256,
    receiving: HmacSha256,
}

/// One side of a session, which a handshake began. Each connection's first message shows that it belongs to the session.
/// The caller [`join`](Self::join)s each, and the answerer [`admit`](Self::admit)s each once. It does no I/O: bytes go in
/// and come out.
pub struct Session {
    name: Name,
    keys: Arc<Keys>,
    /// The number of the next connection that the caller makes.
    next: u64,
    /// The numbers of connections that the answerer has admitted.
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

    /// The record layer of the connection with this number: 0 is the one that carried the handshake.
    pub(super) fn records(&self, number: u64) -> RecordLayer {
        RecordLayer { keys: self.keys.clone(), number, sent: 0, received: 0 }
    }

    /// The record layer of a further connection, and the first message to send on it.
    #[must_use]
    pub fn join(&mut self) -> (RecordLayer, Message) {
        let mut records = self.records(self.next);
        self.next += 1;
        let join = records.seal(&Join { session: self.name });
        (records, join)
    }

    /// The record layer of the connection whose first message this is.
    ///
    /// # Errors
    /// When the message is not the caller's greeting of a new connection.
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

/// The record layer of one side of a connection: it seals and opens messages.
pub struct RecordLayer {
    keys: Arc<Keys>,
    /// The connection's number in the session.
    number: u64,
    /// Messages sent and received so far.
    sent: u64,
    received: u64,
}

impl RecordLayer {
    /// Seals the next message to the other side.
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

    /// Opens the next message of the other side. It checks the length first, then the MAC in constant time, then the rest.
    ///
    /// # Errors
    /// When this is not that message, whole and alone. Open no message after an error.
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
