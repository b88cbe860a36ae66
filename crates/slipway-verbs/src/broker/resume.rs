//! Programs that outlived an earlier broker of their host: they name what they have, and this broker rules over it from then on.
//!
//! A program may lie. A proof says that a number is its node's, and each end speaks for itself: a connection that one end alone
//! names touches nobody else. Two ends that contradict each other lose the connection.

use std::collections::btree_map::Entry;
use std::os::fd::AsFd as _;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use super::limits::{Both, Limits};
use super::objects::{Held, Kind, Link, QueuePair, Seal, key};
use super::reply::{Done, From};
use super::tables::Tables;
use super::{Broker, BrokerError, Policy};
use crate::carrier::leads_there;
use crate::untrusted::Untrusted;
use crate::wire::{Answer, End, Gid, Object, Proof, Region, Reply, Transport};

impl Broker {
    /// Has the broker prove its numbers, and believe the proofs of those before it. Connections to queue pairs that their
    /// programs have yet to name wait for a few seconds. Call it before programs come.
    ///
    /// # Errors
    /// When the kernel gives no random number.
    pub fn succeed(&mut self, seal: Seal) -> Result<(), BrokerError> {
        self.tables.seal = Some(seal);
        self.tables.unnamed.begin();
        Ok(self.tables.begin_anywhere()?)
    }
}

impl Tables {
    /// The proof for a number; zeros where no broker will ask for it.
    pub(super) fn prove(&self, node: u32, kind: Kind, number: u32) -> Proof {
        self.seal.as_ref().map_or([0; 16], |seal| seal(node, kind, number))
    }

    fn check(&self, node: u32, kind: Kind, number: u32, proof: &Proof) -> Result<(), Errno> {
        let seal = self.seal.as_ref().ok_or(Errno::OPNOTSUPP)?;
        // Each byte is looked at, so the time says nothing about the right proof.
        let differs = seal(node, kind, number).iter().zip(proof).fold(0, |all, (one, other)| all | (one ^ other));
        if differs == 0 { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Takes up a queue pair that an earlier broker has named.
    fn take_queue_pair(&mut self, number: u32, queue_pair: QueuePair) -> Result<(), Errno> {
        let node = queue_pair.node;
        if self.queue_pairs.values().filter(|it| it.node == node).count() >= self.caps_of(node).0 {
            return Err(Errno::NOMEM);
        }
        if !self.numbers.contains(&number) || self.queue_pairs.contains_key(&number) {
            return Err(Errno::EXIST);
        }
        self.queue_pairs.insert(number, queue_pair);
        Ok(())
    }

    /// Takes up a region that an earlier broker, or the gateway, has given this key.
    pub(super) fn take_region(&mut self, key: u32, held: Held) -> Result<(), Errno> {
        self.admit_region(held.node)?;
        match self.regions.entry((held.node, key)) {
            Entry::Occupied(_) => Err(Errno::EXIST),
            Entry::Vacant(vacant) => {
                vacant.insert(held);
                Ok(())
            }
        }
    }

    /// Has numbers begin anywhere: those of an earlier broker may live.
    fn begin_anywhere(&mut self) -> Result<(), Errno> {
        let mut bytes = [0; 4];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let (first, last) = (*self.numbers.start(), *self.numbers.end());
        self.next = first + u32::from_ne_bytes(bytes) % (last - first + 1);
        Ok(())
    }
}

/// Takes up an object.
pub(super) fn resume(tables: &mut Tables, from: From, object: &Object, proof: &Proof) -> Result<Reply, Errno> {
    let From { program, node } = from;
    match *object {
        Object::QueuePair { number, transport, domain } => {
            tables.check(node, Kind::QueuePair, number, proof)?;
            let pair = QueuePair { program, node, transport, domain, peer: None, revoked: false };
            tables.take_queue_pair(number, pair)?;
            if transport == Transport::Datagram {
                // The broker before this one knew members of groups, and others know those of this host.
                tables.groups.ask();
            }
        }
        Object::Region { key, domain, region } => {
            tables.check(node, Kind::Region, key, proof)?;
            region.start.checked_add(region.length).ok_or(Errno::INVAL)?;
            // Its owner has given the file away.
            let region = Region { shared: None, ..region };
            tables.take_region(key, Held { program, node, domain, region, file: None })?;
        }
    }
    Ok(Reply::Done)
}

/// Takes up an end of a connection, where the rules of now permit it. Otherwise the queue pair is revoked.
pub(super) fn rejoin(
    tables: &mut Tables,
    (policy, limits): (&mut Policy, &mut Limits),
    from: From,
    (number, peer, gid): (u32, u32, Gid),
    end: End,
    fds: Vec<Untrusted>,
) -> Result<Done, Errno> {
    let own = tables.own(from.program, number)?;
    let transport = own.transport;
    if own.revoked {
        return Err(Errno::PERM);
    }
    let place = tables.node_at(&gid).ok_or(Errno::HOSTUNREACH)?;
    let stream = fds.into_iter().next();
    if place.host.is_some() != stream.is_some()
        || stream.is_some() != (end == End::Far)
        || (number == peer) != (end == End::Both)
    {
        return Err(Errno::INVAL);
    }
    let terms = Both::of(limits, (from.node, place.node));
    let allowed = policy(from.node, place.node).and_then(|()| policy(place.node, from.node));
    if allowed.is_err() || terms.need_relay() {
        // A rule that came meanwhile forbids the connection, or wants it relayed.
        if let Some(stream) = &stream {
            let _ = shutdown(stream, Shutdown::Both);
        }
        return Ok(revoke(tables, from, number, peer, allowed.err()));
    }
    let link = key(number, peer);
    match tables.links.get(&link).map(|it| (it.claimant, it.nodes_from(number))) {
        Some((Some(claimant), nodes)) if claimant == peer && claimant != number => {
            if nodes != (from.node, place.node) {
                return Ok(revoke(tables, from, number, peer, None));
            }
        }
        Some(_) => return Err(Errno::EXIST),
        None if tables.has_room_for_link(from.node) => {}
        None => return Err(Errno::NOBUFS),
    }
    let slot = tables.slot(from.program, number)?;
    let counts = slot.number;
    if transport != Transport::Datagram {
        tables.set_peer(number, peer);
    }
    let mut done = Done::with(Reply::Connected { end, counts }, Vec::new());
    let is_silent = (tables.silence)(from.node, place.node);
    if is_silent {
        done.notes.push((from.program, Answer::Silenced { number, peer, is_silent }, Vec::new()));
    }
    if let Some(known) = tables.links.get_mut(&link) {
        known.claimant = None;
        known.slots.push(slot);
        return Ok(done);
    }
    if let Some(stream) = &stream {
        // The earlier broker may have left it as it should be no more.
        (tables.still)(stream.as_fd(), is_silent);
    }
    let (first, nodes) =
        if end == End::Second { (peer, (place.node, from.node)) } else { (number, (from.node, place.node)) };
    let claimant = matches!(end, End::First | End::Second).then_some(number);
    let (waiting, relay, slots) = (None, None, vec![slot]);
    let by_device = stream.as_ref().is_some_and(leads_there);
    let known = Link { first, nodes, waiting, slots, stream, by_device, terms, is_silent, relay, claimant };
    tables.links.insert(link, known);
    Ok(done)
}

/// Revokes a queue pair, and its peer where that one has named the connection too.
fn revoke(tables: &mut Tables, from: From, number: u32, peer: u32, reason: Option<Errno>) -> Done {
    let mut done = Done::refused(reason.unwrap_or(Errno::PERM));
    let has_named = tables.links.get(&key(number, peer)).is_some_and(|it| it.claimant == Some(peer));
    if has_named {
        tables.end_links(|known, _| known == key(number, peer));
    }
    for revoked in [Some(number), has_named.then_some(peer)].into_iter().flatten() {
        if let Some(pair) = tables.queue_pairs.get_mut(&revoked) {
            pair.revoked = true;
            pair.peer = None;
            if pair.program != from.program || revoked != number {
                done.notes.push((pair.program, Answer::Revoked { number: revoked }, Vec::new()));
            }
        }
    }
    done
}
