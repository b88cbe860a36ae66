//! A caller: a stranger at first, then the router of another host.

use std::collections::BTreeMap;
use std::time::Instant;

use super::connection::{Connection, Progress};
use super::handshake::{FIRST, Handshake};
use super::session::{length_of, session_of};
use super::{ChannelError, Hello, Key, Nonce, Open, ProtocolError, RecordLayer, Session};

/// A connection whose caller has not shown yet that it is of the lab.
pub(super) struct Unauthenticated {
    pub(super) connection: Connection,
    pub(super) since: Instant,
    /// It began a session.
    handshake: Option<Handshake>,
}

/// The proof that a stranger has given.
pub(super) enum Authentication {
    /// Nothing yet.
    Pending,
    /// It is the router of this host, and began a session.
    Router(Session, u32),
    /// It belongs to the session of this host's router.
    Connection(RecordLayer, u32),
}

impl Unauthenticated {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, since: Instant::now(), handshake: None }
    }

    /// Goes on if it said something. `own` is the lab's key and who this is.
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

/// Another host's router, for as long as the connection is there that it began its session on.
pub(super) struct PeerSession {
    number: u64,
    first: Connection,
    session: Session,
    /// Further connections, which have not asked yet. In the order of their numbers, which is that of their age.
    waiting: BTreeMap<u64, (Connection, RecordLayer)>,
}

impl PeerSession {
    pub(super) fn new(number: u64, first: Connection, session: Session) -> Self {
        Self { number, first, session, waiting: BTreeMap::new() }
    }

    /// Lets a connection of its session wait, and sends the oldest away if `most` wait already.
    pub(super) fn keep(&mut self, number: u64, connection: Connection, records: RecordLayer, most: usize) {
        if self.waiting.len() >= most {
            self.waiting.pop_first();
        }
        self.waiting.insert(number, (connection, records));
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.number == number || self.waiting.contains_key(&number)
    }

    /// What it asks for on a connection, once it does, and the connection.
    pub(super) fn receive(&mut self, number: u64) -> Result<Option<(Open, Connection, RecordLayer)>, ChannelError> {
        if number == self.number {
            return self.first.check_silent().map(|()| None);
        }
        let Some((connection, records)) = self.waiting.get_mut(&number) else { return Ok(None) };
        let Some(message) = connection.receive(length_of::<Open>())? else { return Ok(None) };
        let open = records.open(message)?;
        Ok(self.waiting.remove(&number).map(|(connection, records)| (open, connection, records)))
    }

    /// Whether its session goes on without a connection, which is closed.
    pub(super) fn stays_without(&mut self, number: u64) -> bool {
        self.waiting.remove(&number);
        self.number != number
    }
}
