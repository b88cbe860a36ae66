//! A caller: a stranger at first, then the router of another host.

use std::collections::BTreeMap;
use std::time::Instant;

use super::handshake::{FIRST, Handshake};
use super::line::{Line, Shaken};
use super::session::{length_of, named};
use super::{Breach, ChannelError, Hello, Key, Nonce, Open, Session, Talk};

/// A connection whose caller has not shown yet that it is of the lab.
pub(super) struct Stranger {
    pub(super) line: Line,
    pub(super) since: Instant,
    /// It began a session.
    handshake: Option<Handshake>,
}

/// The proof that a stranger has given.
pub(super) enum Shown {
    /// Nothing yet.
    Nothing,
    /// It is the router of this host, and began a session.
    Router(Session, u32),
    /// It belongs to the session of this host's router.
    Connection(Talk, u32),
}

impl Stranger {
    pub(super) fn new(line: Line) -> Self {
        Self { line, since: Instant::now(), handshake: None }
    }

    /// Goes on if it said something. `own` is the lab's key and who this is.
    pub(super) fn hear(
        &mut self,
        own: &(Key, Hello),
        guests: &mut BTreeMap<u32, Guest>,
    ) -> Result<Shown, ChannelError> {
        let shaken = if let Some(handshake) = self.handshake.take() {
            self.line.shake(handshake)?
        } else {
            let Some(first) = self.line.hear(FIRST)? else { return Ok(Shown::Nothing) };
            if let Some(name) = named(first) {
                let guest = guests.iter_mut().find(|(_, guest)| guest.session.name() == name);
                let (host, guest) = guest.ok_or(Breach::Over)?;
                return Ok(Shown::Connection(guest.session.admit(first)?, *host));
            }
            let handshake = Handshake::answer(own.0.clone(), own.1, Nonce::draw()?);
            let next = handshake.take(first)?;
            self.line.answer(next)?
        };
        Ok(match shaken {
            Shaken::More(handshake) => {
                self.handshake = Some(handshake);
                Shown::Nothing
            }
            Shaken::Done(session, hello) => Shown::Router(session, hello.host),
        })
    }
}

/// Another host's router, for as long as the connection is there that it began its session on.
pub(super) struct Guest {
    number: u64,
    standing: Line,
    session: Session,
    /// Further connections, which have not asked yet. In the order of their numbers, which is that of their age.
    waiting: BTreeMap<u64, (Line, Talk)>,
}

impl Guest {
    pub(super) fn new(number: u64, standing: Line, session: Session) -> Self {
        Self { number, standing, session, waiting: BTreeMap::new() }
    }

    /// Lets a connection of its session wait, and sends the oldest away if `most` wait already.
    pub(super) fn keep(&mut self, number: u64, line: Line, talk: Talk, most: usize) {
        if self.waiting.len() >= most {
            self.waiting.pop_first();
        }
        self.waiting.insert(number, (line, talk));
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.number == number || self.waiting.contains_key(&number)
    }

    /// What it asks for on a connection, once it does, and the connection.
    pub(super) fn hear(&mut self, number: u64) -> Result<Option<(Open, Line, Talk)>, ChannelError> {
        if number == self.number {
            return self.standing.stands().map(|()| None);
        }
        let Some((line, talk)) = self.waiting.get_mut(&number) else { return Ok(None) };
        let Some(message) = line.hear(length_of::<Open>())? else { return Ok(None) };
        let open = talk.open(message)?;
        Ok(self.waiting.remove(&number).map(|(line, talk)| (open, line, talk)))
    }

    /// Whether its session goes on without a connection, which is closed.
    pub(super) fn stays_without(&mut self, number: u64) -> bool {
        self.waiting.remove(&number);
        self.number != number
    }
}
