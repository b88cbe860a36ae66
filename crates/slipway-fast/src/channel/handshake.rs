//! How two routers show each other that they are of the same lab, and begin a session. No I/O: what came in goes to
//! [`Handshake::take`], and what it gives back is to be sent.

use hmac::Mac;

use super::ProtocolError;
use super::body::{Hello, Join, Name, VERSION};
use super::key::{HmacSha256, Key, Nonce, WIDTH};
use super::session::{Message, RecordLayer, Session, length_of};

/// Bytes of the first message on a connection, whether it begins a session or [`Join`]s one: they are read before it is known
/// which.
pub(super) const FIRST: usize = length_of::<Join>();
const ANSWER: usize = WIDTH + WIDTH;

/// How a caller begins a session: what this is, and which version of it.
const MAGIC: [u8; FIRST - WIDTH] = *b"slipway, between routers, 2";

/// A handshake, between two messages.
#[derive(Debug)]
pub struct Handshake {
    us: Hello,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Caller, has greeted.
    Greeted { key: Key, nonce: Nonce, host: u32 },
    /// Caller, has said who it is.
    Introduced { session: Session, records: RecordLayer, host: u32 },
    /// Answerer, before anything.
    Listening { key: Key, nonce: Nonce },
    /// Answerer, has shown that it has the key.
    Answered { session: Session, records: RecordLayer },
}

/// What comes after a message.
#[derive(Debug)]
pub enum Next {
    /// Send this and hear more.
    More(Handshake, Message),
    /// Send this, if there is any, and it is done: this is the other side.
    Done(Session, Hello, Option<Message>),
}

impl Handshake {
    /// Calls the router of the host with index `host`. The message comes first.
    #[must_use]
    pub fn call(key: Key, us: Hello, host: u32, nonce: Nonce) -> (Self, Message) {
        let greeting = Message::of(&[&MAGIC, &nonce.0]);
        (Self { us, stage: Stage::Greeted { key, nonce, host } }, greeting)
    }

    /// Answers whoever calls. `nonce` must be new for each.
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

    /// Goes on with the other side's message, all of it and no more.
    ///
    /// # Errors
    /// For anything else; the connection is to be closed.
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

/// A session, and its connection on which the handshake goes on. The answerer will have to find it by its name, and gives it.
fn begin(answerer: &Nonce, sending: HmacSha256, receiving: HmacSha256) -> (Session, RecordLayer) {
    let mut name = Name::default();
    name.copy_from_slice(&answerer.0[..size_of::<Name>()]);
    let session = Session::new(name, sending, receiving);
    let records = session.records(0);
    (session, records)
}

/// The other side, provided that it is another host of the same lab.
fn identify(us: Hello, them: Hello) -> Result<Hello, ProtocolError> {
    let fits = them.version == VERSION && them.lab == us.lab && them.host != us.host;
    if fits { Ok(them) } else { Err(ProtocolError::WrongPeer) }
}

fn read_nonce(bytes: &[u8]) -> Result<Nonce, ProtocolError> {
    bytes.try_into().map(Nonce).map_err(|_| ProtocolError::Length)
}
