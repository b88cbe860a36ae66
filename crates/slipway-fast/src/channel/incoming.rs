//! An incoming connection: unauthenticated at first, then of the session of another host's router.

use std::collections::BTreeMap;
use std::time::Instant;

use super::connection::{Connection, Progress};
use super::handshake::{FIRST, Handshake};
use super::session::{length_of, session_of};
use super::{ChannelError, Hello, Key, Nonce, Open, ProtocolError, RecordLayer, Session};

/// A connection whose caller has not authenticated itself yet.
pub(super) struct Unauthenticated {
    pub(super) connection: Connection,
    pub(super) since: Instant,
    /// The handshake, once the caller has begun one.
    handshake: Option<Handshake>,
}

/// The result of a step of authentication.
pub(super) enum Authentication {
    /// The caller has not finished yet.
    Pending,
    /// The caller is the router of this host, and began a session.
    Router(Session, u32),
    /// The connection belongs to the session of this host's router.
    Connection(RecordLayer, u32),
}

impl Unauthenticated {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, since: Instant::now(), handshake: None }
    }

    /// Reads what has arrived, and continues. `own` is the lab's key and this router's identity.
    pub(super) fn receive(
        &mut self,
        own: &(Key, Hello),
        peers: &mut BTreeMap<u32, PeerSession>,
    ) -> Result<Authentication, ChannelError> {
        let progress = if let Some(handshake) = self.handshake.take() {
            self.connection.advance(handshake)?
        } else {
            let Some(first) = self.connection.receive(FIRST)? else { return Ok(Authentication::Pending) };
            if let Some(name) = session_of(first) {
                let peer = peers.iter_mut().find(|(_, peer)| peer.session.name() == name);
                let (host, peer) = peer.ok_or(ProtocolError::SessionEnded)?;
                return Ok(Authentication::Connection(peer.session.admit(first)?, *host));
            }
            let handshake = Handshake::answer(own.0.clone(), own.1, Nonce::draw()?);
            let next = handshake.take(first)?;
            self.connection.answer(next)?
        };
        Ok(match progress {
            Progress::More(handshake) => {
                self.handshake = Some(handshake);
                Authentication::Pending
            }
            Progress::Done(session, hello) => Authentication::Router(session, hello.host),
        })
    }
}

/// The session of another host's router. It lasts as long as its first connection.
pub(super) struct PeerSession {
    number: u64,
    first: Connection,
    session: Session,
    /// Further connections, which have sent no request yet, in the order of their numbers, which is that of their age.
    waiting: BTreeMap<u64, (Connection, RecordLayer)>,
}

impl PeerSession {
    pub(super) fn new(number: u64, first: Connection, session: Session) -> Self {
        Self { number, first, session, waiting: BTreeMap::new() }
    }

    /// Keeps a connection of the session, and closes the oldest if `most` wait already.
    pub(super) fn keep(&mut self, number: u64, connection: Connection, records: RecordLayer, most: usize) {
        if self.waiting.len() >= most {
            self.waiting.pop_first();
        }
        self.waiting.insert(number, (connection, records));
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.number == number || self.waiting.contains_key(&number)
    }

    /// The request that arrived on a connection, and the connection. `None` while the request is incomplete.
    pub(super) fn receive(&mut self, number: u64) -> Result<Option<(Open, Connection, RecordLayer)>, ChannelError> {
        if number == self.number {
            return self.first.check_silent().map(|()| None);
        }
        let Some((connection, records)) = self.waiting.get_mut(&number) else { return Ok(None) };
        let Some(message) = connection.receive(length_of::<Open>())? else { return Ok(None) };
        let open = records.open(message)?;
        Ok(self.waiting.remove(&number).map(|(connection, records)| (open, connection, records)))
    }

    /// Whether the session goes on without this connection, which is closed.
    pub(super) fn stays_without(&mut self, number: u64) -> bool {
        self.waiting.remove(&number);
        self.number != number
    }
}
