//! Queue pairs of other virtual hosts: their brokers are asked, and a stream of the hosts' network takes the place of memory.
//!
//! Either broker may ask first. Where both ask at once, the question of the host with the lower number counts. So two queue pairs
//! have one stream, whoever is faster. Programs get its ends. Where a rule paces the pair, both brokers keep these, and relay.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::limits::{self, Both, Limits};
use super::made;
use super::objects::{Ask, Link, Place, Still, key};
use super::questions::{Join, Name, Question, Way};
use super::reply::{Done, From};
use super::tables::{Tables, numbers_of};
use super::{Broker, gid};
use crate::carrier::leads_there;
use crate::untrusted::untrusted;
use crate::wire::{Answer, End, Gid, Reply, Transport};

/// Longest wait for the stream of a broker that has asked at the same time.
const PATIENCE: Duration = Duration::from_secs(2);

/// The other virtual hosts of a lab.
pub struct Hosts {
    /// The number of this broker's host.
    pub own: u32,
    /// Number of the lab's hosts.
    pub count: u32,
    /// Nodes of other hosts: number, host, and addresses.
    pub nodes: Vec<(u32, u32, Vec<IpAddr>)>,
    /// The way to their brokers.
    pub way: Way,
    /// Has a stream to another host's program hear nothing, or hear again.
    pub still: Still,
}

/// A way of a lab with one host.
pub(super) fn none() -> Way {
    Box::new(|_, _, _| Err(Errno::HOSTUNREACH))
}

/// Joins a queue pair with one of another host's. That host may have asked before.
pub(super) fn connect(
    tables: &mut Tables,
    (limits, way): (&mut Limits, &mut Way),
    from: From,
    number: u32,
    (gid, peer): (Gid, u32),
    place: Place,
) -> Result<Done, Errno> {
    let asking = tables.own(from.program, number)?;
    let transport = asking.transport;
    if asking.revoked {
        return Err(Errno::PERM);
    }
    let is_datagram = transport == Transport::Datagram;
    let link = key(number, peer);
    if is_datagram && tables.has_live(link) {
        return Err(Errno::ALREADY);
    }
    let is_awaited = tables.links.get(&link).is_some_and(|it| it.first == peer && it.waiting.is_some());
    if is_awaited {
        let (slot, fds) = tables.take_waiting(from.program, number, link)?;
        tables.set_peer(number, peer);
        return Ok(Done::with(Reply::Connected { end: end(&fds), counts: slot.number }, fds));
    }
    if !is_datagram {
        tables.end_links(|(one, other), _| one == number || other == number);
    }
    if !tables.has_room_for_link(from.node) {
        return Err(Errno::NOBUFS);
    }
    let terms = Both::of(limits, (from.node, place.node));
    limits::admit(&terms, (from.node, place.node), &tables.limited())?;
    // A program waits for each reply, so a queue pair has one question.
    if tables.asks.values().any(|it| it.program == from.program) {
        return Err(Errno::BUSY);
    }
    let own_gid = *tables.gids(from.node).first().ok_or(Errno::ADDRNOTAVAIL)?;
    let join = Join { transport, from: Name { gid: own_gid, number }, to: Name { gid, number: peer } };
    let ticket = tables.next_ticket();
    way(place.host.ok_or(Errno::HOSTUNREACH)?, ticket, &Question::Join(join))?;
    let ask = Ask { program: from.program, number, node: from.node, peer, to: place.node, crossed: None };
    tables.asks.insert(ticket, ask);
    Ok(Done::later())
}

/// The end of a program that gets these: a stream, or the memory and the socket of a relay.
fn end(fds: &[OwnedFd]) -> End {
    if fds.len() == 1 { End::Far } else { End::Second }
}

impl Tables {
    /// Whether a connection's relay runs, or nobody has closed the other end of its stream, as far as the broker sees. Memory that
    /// programs share lives as long as they do.
    fn is_alive(&self, link: &Link) -> bool {
        if let Some(id) = link.relay {
            return self.relay.as_ref().is_some_and(|relay| relay.is_alive(id));
        }
        let Some(stream) = &link.stream else { return true };
        let mut it = [PollFd::new(stream, PollFlags::RDHUP)];
        matches!(poll(&mut it, Some(&Timespec::default())), Ok(0))
    }

    /// Whether two queue pairs have a connection that lives. One that has ended is forgotten.
    pub(super) fn has_live(&mut self, link: (u32, u32)) -> bool {
        let is_alive = self.links.get(&link).is_some_and(|it| self.is_alive(it));
        if !is_alive {
            self.end_links(|known, _| known == link);
        }
        is_alive
    }
}

impl Broker {
    /// Lets nodes reach those of other virtual hosts. Call it before programs come.
    pub fn reach(&mut self, hosts: Hosts) {
        let Hosts { own, count, nodes, way, still } = hosts;
        self.way = way;
        self.tables.still = still;
        self.host = (own, count);
        self.tables.share_numbers(own, count);
        self.tell_members_to(nodes.iter().map(|(_, host, _)| *host).collect());
        for (node, host, addresses) in nodes {
            for address in addresses {
                self.tables.far.insert(gid(address), Place { node, host: Some(host) });
            }
        }
    }

    /// Takes another broker's answer: the stream to the peer's program, or why there is none.
    pub fn answered(&mut self, ticket: u64, answer: Result<OwnedFd, Errno>) {
        if self.heard_news(ticket) {
            return;
        }
        let Some(ask) = self.tables.asks.get_mut(&ticket) else { return };
        if matches!(answer, Err(Errno::ALREADY)) {
            ask.crossed = Some(Instant::now() + PATIENCE);
            return;
        }
        let Some(ask) = self.tables.asks.remove(&ticket) else { return };
        let program = ask.program;
        let done = answer.and_then(|stream| self.join(&ask, stream)).unwrap_or_else(Done::refused);
        self.reply(program, done);
    }

    /// Gives a stream to the program that has asked for it.
    fn join(&mut self, ask: &Ask, stream: OwnedFd) -> Result<Done, Errno> {
        let queue_pair = self.tables.queue_pairs.get(&ask.number).ok_or(Errno::INVAL)?;
        // The rules may have changed meanwhile.
        (self.policy)(ask.node, ask.to)?;
        self.hears(ask.node, ask.to)?;
        let is_datagram = queue_pair.transport == Transport::Datagram;
        let (mut link, fds) = self.link(ask.number, (ask.node, ask.to), stream)?;
        let slot = self.tables.slot(ask.program, ask.number)?;
        let counts = slot.number;
        link.slots.push(slot);
        self.put(key(ask.number, ask.peer), link);
        if !is_datagram {
            self.tables.set_peer(ask.number, ask.peer);
        }
        Ok(Done::with(Reply::Connected { end: end(&fds), counts }, fds))
    }

    /// A connection by a stream, whose first end is this queue pair. Gives the descriptors of this host's program too: the
    /// stream, or an end of the relay where a rule paces the nodes.
    fn link(&mut self, first: u32, nodes: (u32, u32), stream: OwnedFd) -> Result<(Link, Vec<OwnedFd>), Errno> {
        let terms = Both::of(&mut self.limits, nodes);
        let by_device = leads_there(&stream);
        let link = |stream, relay| {
            let (waiting, slots, is_silent) = Default::default();
            Link { first, nodes, waiting, slots, stream, by_device, terms, is_silent, relay, claimant: None }
        };
        if terms.need_relay() {
            let (fds, relay) = made::relayed_far(&mut self.tables, stream)?;
            return Ok((link(None, Some(relay)), fds));
        }
        let copy = stream.try_clone().map_err(|_| Errno::MFILE)?;
        Ok((link(Some(copy.into()), None), vec![stream]))
    }

    fn hears(&self, one: u32, other: u32) -> Result<(), Errno> {
        if (self.tables.silence)(one, other) { Err(Errno::HOSTUNREACH) } else { Ok(()) }
    }

    /// Puts a connection in the place of an earlier one of the same queue pairs.
    fn put(&mut self, key: (u32, u32), link: Link) {
        self.tables.end_links(|known, _| known == key);
        self.tables.links.insert(key, link);
        self.tables.repace();
    }

    /// Hears the question of another host's broker. `accept` says yes to it, and gives the stream.
    ///
    /// # Errors
    /// The reason to refuse. `EALREADY`: this broker has asked the same, and that question counts. `EAGAIN`: the queue pair may
    /// have yet to be named to this broker. The question is to be put again after each [`turn`](Self::turn).
    pub fn asked(
        &mut self,
        host: u32,
        join: &Join,
        accept: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        let (number, peer) = (join.to.number, join.from.number);
        // A broker speaks for nodes and numbers of its own host alone.
        let from = self.tables.far.get(&join.from.gid).filter(|it| it.host == Some(host)).ok_or(Errno::PERM)?.node;
        if !numbers_of(host, self.host.1).contains(&peer) {
            return Err(Errno::PERM);
        }
        let to = self.tables.node_at(&join.to.gid).filter(|it| it.host.is_none()).ok_or(Errno::HOSTUNREACH)?.node;
        (self.policy)(from, to)?;
        self.hears(from, to)?;
        let there = self.tables.queue_pairs.get(&number);
        let there = there.filter(|it| it.node == to && it.transport == join.transport);
        let there = there.ok_or_else(|| self.tables.absent(number, join.transport))?;
        if there.revoked {
            return Err(Errno::PERM);
        }
        let program = there.program;
        let is_datagram = join.transport == Transport::Datagram;
        let own = self.tables.asks.iter().find(|(_, it)| it.number == number && it.peer == peer);
        if let Some((&ticket, ask)) = own {
            if ask.crossed.is_none() && self.host.0 < host {
                return Err(Errno::ALREADY);
            }
            let stream = accept()?;
            self.answered(ticket, Ok(stream));
            return Ok(());
        }
        // A question from before this broker's own was answered: it crossed that on its way. A broker that has asked for this
        // connection, and asks anew, has lost it.
        let is_crossed = |link: &Link| link.first == number && link.waiting.is_none() && self.tables.is_alive(link);
        if self.tables.links.get(&key(number, peer)).is_some_and(is_crossed) {
            return Err(Errno::ALREADY);
        }
        if !self.tables.has_room_for_link(to) {
            return Err(Errno::NOBUFS);
        }
        let terms = Both::of(&mut self.limits, (from, to));
        limits::admit(&terms, (from, to), &self.tables.limited())?;
        let (mut link, fds) = self.link(peer, (from, to), accept()?)?;
        if !is_datagram {
            link.waiting = Some(untrusted(fds));
            self.put(key(number, peer), link);
            return Ok(());
        }
        let slot = self.tables.slot(program, number)?;
        link.slots.push(slot);
        self.put(key(number, peer), link);
        let note = Answer::Reached { number, gid: join.from.gid, peer, counts: slot.number };
        self.tell(program, &note, &fds.iter().map(|it| it.as_fd()).collect::<Vec<_>>());
        Ok(())
    }

    /// How long to wait at most until [`turn`](Self::turn) is called; `None`: until the descriptor is readable.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        let due = self.tables.asks.values().filter_map(|it| it.crossed).chain(self.tables.unnamed.until).min();
        due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Gives up on streams that did not come.
    pub(super) fn expire(&mut self) {
        if self.tables.asks.is_empty() {
            return;
        }
        let now = Instant::now();
        let due = |ask: &Ask| ask.crossed.is_some_and(|due| due <= now);
        let late: Vec<u64> = self.tables.asks.iter().filter(|(_, it)| due(it)).map(|(&ticket, _)| ticket).collect();
        for ticket in late {
            self.answered(ticket, Err(Errno::TIMEDOUT));
        }
    }
}
