//! The handshake of two routers: each proves that it is of the lab, and they begin a session. It does no I/O: the caller
//! passes received bytes to [`Handshake::take`], and sends the bytes that it returns.

use hmac::Mac;

use super::ProtocolError;
use super::body::{Hello, Join, Name, VERSION};
use super::key::{HmacSha256, Key, Nonce, WIDTH};
use super::session::{Message, RecordLayer, Session, length_of};

/// Bytes of the first message on a connection, whether it begins a session or [`Join`]s one. The answerer reads it before
/// it knows which.
pub(super) const FIRST: usize = length_of::<Join>();
const ANSWER: usize = WIDTH + WIDTH;

/// The first bytes of a caller's greeting: the protocol's name and version.
const MAGIC: [u8; FIRST - WIDTH] = *b"slipway, between routers, 2";

/// A handshake, between two messages.
#[derive(Debug)]
pub struct Handshake {
    us: Hello,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The caller has sent its greeting.
    Greeted { key: Key, nonce: Nonce, host: u32 },
    /// The caller has sent its `Hello`.
    Introduced { session: Session, records: RecordLayer, host: u32 },
    /// The answerer has sent nothing yet.
    Listening { key: Key, nonce: Nonce },
    /// The answerer has proved that it has the key.
    Answered { session: Session, records: RecordLayer },
}

/// The step that follows a message.
#[derive(Debug)]
pub enum Next {
    /// Send this message, and receive another.
    More(Handshake, Message),
    /// Send this message, if any; then the handshake is done. `Hello` is the other side's.
    Done(Session, Hello, Option<Message>),
}

impl Handshake {
    /// Begins a handshake with the router of the host with index `host`. Send the message first.
    #[must_use]
    pub fn call(key: Key, us: Hello, host: u32, nonce: Nonce) -> (Self, Message) {
        let greeting = Message::of(&[&MAGIC, &nonce.0]);
        (Self { us, stage: Stage::Greeted { key, nonce, host } }, greeting)
    }

    /// Answers a caller. `nonce` must be new for each.
    #[must_use]
    pub fn answer(key: Key, us: Hello, nonce: Nonce) -> Self {
        Self { us, stage: Stage::Listening { key, nonce } }
    }

    /// Bytes of the message that is due.
    #[must_use]
    pub fn wants(&self) -> usize {
        match self.stage {
            Stage::Greeted { .. } => ANSWER,
            Stage::Listening { .. } => FIRST,
            Stage::Introduced { .. } | Stage::Answered { .. } => length_of::<Hello>(),
        }
    }

    /// Takes the other side's next message, all of it and no more.
    ///
    /// # Errors
    /// When it is any other message. Then close the connection.
    pub fn take(self, message: &[u8]) -> Result<Next, ProtocolError> {
        if message.len() != self.wants() {
            return Err(ProtocolError::Length);
        }
        let us = self.us;
        match self.stage {
            Stage::Listening { key, nonce } => {
                let (magic, theirs) = message.split_at(MAGIC.len());
                if magic != MAGIC {
                    return Err(ProtocolError::UnknownProtocol);
                }
                let theirs = read_nonce(theirs)?;
                let proof = key.proof((&theirs, &nonce)).finalize().into_bytes();
                let (receiving, sending) = key.directions((&theirs, &nonce));
                let (session, records) = begin(&nonce, sending, receiving);
                let answer = Message::of(&[&nonce.0, &proof]);
                Ok(Next::More(Self { us, stage: Stage::Answered { session, records } }, answer))
            }
            Stage::Greeted { key, nonce, host } => {
                let (theirs, proof) = message.split_at(WIDTH);
                let theirs = read_nonce(theirs)?;
                key.proof((&nonce, &theirs)).verify_slice(proof).map_err(|_| ProtocolError::BadMac)?;
                let (sending, receiving) = key.directions((&nonce, &theirs));
                let (session, mut records) = begin(&theirs, sending, receiving);
                let hello = records.seal(&us);
                Ok(Next::More(Self { us, stage: Stage::Introduced { session, records, host } }, hello))
            }
            Stage::Introduced { session, mut records, host } => {
                let hello = identify(us, records.open(message)?)?;
                if hello.host == host { Ok(Next::Done(session, hello, None)) } else { Err(ProtocolError::WrongPeer) }
            }
            Stage::Answered { session, mut records } => {
                let hello = identify(us, records.open(message)?)?;
                let ours = records.seal(&us);
                Ok(Next::Done(session, hello, Some(ours)))
            }
        }
    }
}

/// A session, and the record layer of its first connection. The session's name comes from the answerer's nonce.
fn begin(answerer: &Nonce, sending: HmacSha256, receiving: HmacSha256) -> (Session, RecordLayer) {
    let mut name = Name::default();
    name.copy_from_slice(&answerer.0[..size_of::<Name>()]);
    let session = Session::new(name, sending, receiving);
    let records = session.records(0);
    (session, records)
}

/// Checks that the other side is another host of the same lab.
fn identify(us: Hello, them: Hello) -> Result<Hello, ProtocolError> {
    let fits = them.version == VERSION && them.lab == us.lab && them.host != us.host;
    if fits { Ok(them) } else { Err(ProtocolError::WrongPeer) }
}

fn read_nonce(bytes: &[u8]) -> Result<Nonce, ProtocolError> {
    bytes.try_into().map(Nonce).map_err(|_| ProtocolError::Length)
}
