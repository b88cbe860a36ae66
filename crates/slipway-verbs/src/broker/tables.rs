//! Objects of nodes: queue pairs, regions, connections.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::counts::{Page, Traffic};
use super::limits::{Both, Limited, Limits, shares};
use super::members::Groups;
use super::objects::{Ask, Held, Link, Place, QueuePair, Seal, Silence, Slot, Still, Unnamed, all_hear, key};
use super::relay::{Limit, Relay, Side};
use super::{Caps, LinkStatus, NodeStatus, PeerTraffic};
use crate::untrusted::Untrusted;
use crate::wire::Gid;

/// The first queue pair's number: 0 and 1 are those of management (InfiniBand specification, 3.5.10).
const FIRST: u32 = 16;
/// Numbers of queue pairs have 24 bits.
const LAST: u32 = 0x00ff_fffe;

/// Pairs of nodes whose ended connections have counts of their own; all other pairs of a node share one.
const PAIRS: usize = 1024;

pub(super) struct Tables {
    caps: Caps,
    nodes: BTreeMap<u32, Vec<Gid>>,
    /// Most queue pairs and regions of nodes that have caps of their own.
    own_caps: BTreeMap<u32, (Option<u32>, Option<u32>)>,
    pub(super) queue_pairs: BTreeMap<u32, QueuePair>,
    /// By node and key: a gateway's device gives each of its nodes keys that another broker's may be like.
    pub(super) regions: BTreeMap<(u32, u32), Held>,
    pub(super) links: BTreeMap<(u32, u32), Link>,
    pages: BTreeMap<u64, Page>,
    /// The relay, once a connection needed it, and the limits that it has.
    pub(super) relay: Option<Relay>,
    paced: BTreeMap<u64, Limit>,
    /// Traffic of ended connections, by the node that counted and its peer.
    ended: BTreeMap<(u32, Option<u32>), Traffic>,
    /// Nodes of other virtual hosts.
    pub(super) far: BTreeMap<Gid, Place>,
    /// Questions to other hosts' brokers, by ticket.
    pub(super) asks: BTreeMap<u64, Ask>,
    /// Numbers of queue pairs that this broker gives: no other broker of the lab gives these.
    pub(super) numbers: RangeInclusive<u32>,
    pub(super) next: u32,
    tickets: u64,
    pub(super) silence: Silence,
    pub(super) still: Still,
    /// Makes proofs; none where no other broker will take this one's place.
    pub(super) seal: Option<Seal>,
    pub(super) groups: Groups,
    pub(super) unnamed: Unnamed,
}

/// The share of queue pairs' numbers that one of so many hosts has. A lab's queue pairs differ by number alone.
pub(super) fn numbers_of(host: u32, hosts: u32) -> RangeInclusive<u32> {
    let share = (LAST - FIRST + 1) / hosts.max(1);
    let first = FIRST + host.saturating_mul(share).min(LAST - FIRST);
    first..=(first + share.saturating_sub(1)).min(LAST)
}

impl Tables {
    pub(super) fn new(caps: Caps) -> Self {
        let (nodes, queue_pairs, regions, links, far, asks) = Default::default();
        let (pages, ended, paced) = Default::default();
        let (numbers, next, tickets) = (FIRST..=LAST, FIRST, 0);
        Self {
            caps,
            own_caps: BTreeMap::new(),
            nodes,
            queue_pairs,
            regions,
            links,
            pages,
            relay: None,
            paced,
            ended,
            far,
            asks,
            numbers,
            next,
            tickets,
            silence: all_hear(),
            still: Box::new(|_, _| ()),
            seal: None,
            groups: Groups::default(),
            unnamed: Unnamed::default(),
        }
    }

    /// Takes the share of queue pairs' numbers that one of so many hosts has.
    pub(super) fn share_numbers(&mut self, host: u32, hosts: u32) {
        self.numbers = numbers_of(host, hosts);
        self.next = *self.numbers.start();
    }

    /// A number for a question, that no question had before.
    pub(super) fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    pub(super) fn caps(&self) -> Caps {
        self.caps
    }

    pub(super) fn add(&mut self, node: u32, gids: Vec<Gid>) {
        self.nodes.insert(node, gids);
    }

    pub(super) fn cap(&mut self, node: u32, queue_pairs: Option<u32>, regions: Option<u32>) {
        self.own_caps.insert(node, (queue_pairs, regions));
    }

    /// Most queue pairs and regions of a node.
    pub(super) fn caps_of(&self, node: u32) -> (usize, usize) {
        let (queue_pairs, regions) = self.own_caps.get(&node).copied().unwrap_or_default();
        let most = |own: Option<u32>, all: usize| own.map_or(all, |own| usize::try_from(own).unwrap_or(usize::MAX));
        (most(queue_pairs, self.caps.queue_pairs), most(regions, self.caps.regions))
    }

    pub(super) fn remove(&mut self, node: u32) {
        self.nodes.remove(&node);
        self.own_caps.remove(&node);
    }

    /// The page that a program counts in, made where there is none.
    pub(super) fn page(&mut self, program: u64) -> Result<&mut Page, Errno> {
        // A connection within a node has both its ends there.
        let slots = self.caps.links.saturating_mul(2);
        match self.pages.entry(program) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) => Ok(vacant.insert(Page::new(slots)?)),
        }
    }

    /// A place for the counts of an end of a connection.
    pub(super) fn slot(&mut self, program: u64, queue_pair: u32) -> Result<Slot, Errno> {
        Ok(Slot { queue_pair, program, number: self.page(program)?.take()? })
    }

    fn traffic(&self, slot: &Slot) -> Traffic {
        self.pages.get(&slot.program).map(|page| page.read(slot.number)).unwrap_or_default()
    }

    /// Takes the descriptors that wait for an end, and a place for its counts.
    pub(super) fn take_waiting(
        &mut self,
        program: u64,
        number: u32,
        link: (u32, u32),
    ) -> Result<(Slot, Vec<OwnedFd>), Errno> {
        let slot = self.slot(program, number)?;
        let known = self.links.get_mut(&link).ok_or(Errno::NOTCONN)?;
        known.slots.push(slot);
        let waiting = known.waiting.take().ok_or(Errno::NOTCONN)?;
        Ok((slot, waiting.into_iter().map(Untrusted::trusted).collect()))
    }

    /// Ends connections: their counts stay, and their slots are free again.
    pub(super) fn end_links(&mut self, is_due: impl Fn((u32, u32), &Link) -> bool) -> Vec<(u32, u32)> {
        self.end_links_by(false, is_due)
    }

    fn end_links_by(&mut self, is_revoked: bool, is_due: impl Fn((u32, u32), &Link) -> bool) -> Vec<(u32, u32)> {
        let due: Vec<_> = self.links.iter().filter(|(key, it)| is_due(**key, it)).map(|(key, _)| *key).collect();
        for link in due.iter().filter_map(|key| self.links.remove(key)).collect::<Vec<_>>() {
            if let Some(stream) = &link.stream {
                // Both programs see its end, whatever they hold.
                let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Both);
            }
            for slot in &link.slots {
                let (node, peer) = link.nodes_from(slot.queue_pair);
                let pair = (node, Some(peer));
                let known = self.ended.len() < PAIRS || self.ended.contains_key(&pair);
                let traffic = self.traffic(slot);
                self.ended.entry(if known { pair } else { (node, None) }).or_default().add(&traffic);
                if let Some(page) = self.pages.get_mut(&slot.program) {
                    page.give_back(slot.number);
                }
            }
            if let (Some(id), Some(relay)) = (link.relay, &mut self.relay) {
                relay.remove(id, is_revoked);
                self.paced.remove(&id);
            }
        }
        due
    }

    /// Has a connection relayed, at first without a limit: [`repace`](Self::repace) sets it.
    pub(super) fn relay(&mut self, sides: [Side; 2], limit: Limit) -> Result<u64, Errno> {
        let relay = match &mut self.relay {
            Some(relay) => relay,
            none => none.insert(Relay::start()?),
        };
        let id = relay.add(sides, limit);
        self.paced.insert(id, limit);
        Ok(id)
    }

    /// All connections, as far as limits are about them.
    pub(super) fn limited(&self) -> impl Iterator<Item = Limited> + Clone {
        self.links.values().map(Link::limited)
    }

    /// Gives connections that share a rate even parts of it.
    pub(super) fn repace(&mut self) {
        let Some(relay) = &self.relay else { return };
        let shares = shares(&self.limited());
        for (id, limit) in shares {
            if self.paced.insert(id, limit) != Some(limit) {
                relay.limit(id, limit);
            }
        }
    }

    /// Takes other limits up. Gives pairs of nodes with connections past the relay that are now under a limit.
    pub(super) fn limit_anew(&mut self, limits: &mut Limits) -> BTreeSet<(u32, u32)> {
        let mut unkept = BTreeSet::new();
        for link in self.links.values_mut() {
            link.terms = Both::of(limits, link.nodes);
            if link.relay.is_none() && link.terms.need_relay() {
                unkept.insert(link.nodes);
            }
        }
        unkept
    }

    /// Whether the connection of two queue pairs is relayed.
    pub(super) fn is_relayed(&self, one: u32, other: u32) -> bool {
        self.links.get(&key(one, other)).is_some_and(|link| link.relay.is_some())
    }

    pub(super) fn gids(&self, node: u32) -> &[Gid] {
        self.nodes.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The node with this address.
    pub(super) fn node_at(&self, gid: &Gid) -> Option<Place> {
        let here = self.nodes.iter().find(|(_, gids)| gids.contains(gid)).map(|(node, _)| *node);
        here.map(|node| Place { node, host: None }).or_else(|| self.far.get(gid).copied())
    }

    /// A queue pair of a program's own.
    pub(super) fn own(&self, program: u64, number: u32) -> Result<&QueuePair, Errno> {
        self.queue_pairs.get(&number).filter(|it| it.program == program).ok_or(Errno::INVAL)
    }

    pub(super) fn set_peer(&mut self, number: u32, peer: u32) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(&number) {
            queue_pair.peer = Some(peer);
        }
    }

    pub(super) fn add_queue_pair(&mut self, queue_pair: QueuePair) -> Result<u32, Errno> {
        let node = queue_pair.node;
        if self.queue_pairs.values().filter(|it| it.node == node).count() >= self.caps_of(node).0 {
            return Err(Errno::NOMEM);
        }
        let number = self.free_number().ok_or(Errno::NOMEM)?;
        self.queue_pairs.insert(number, queue_pair);
        Ok(number)
    }

    /// The next number, so that a number that has just ended is not at once another's.
    fn free_number(&mut self) -> Option<u32> {
        for _ in 0..=self.queue_pairs.len() {
            let number = self.next;
            self.next = if number >= *self.numbers.end() { *self.numbers.start() } else { number + 1 };
            if !self.queue_pairs.contains_key(&number) {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn remove_queue_pair(&mut self, number: u32) {
        self.queue_pairs.remove(&number);
        self.end_links(|(one, other), _| one == number || other == number);
        self.asks.retain(|_, it| it.number != number);
        self.groups.leave(number);
    }

    /// Whether a node may have one more region.
    pub(super) fn admit_region(&self, node: u32) -> Result<(), Errno> {
        let count = self.regions.values().filter(|it| it.node == node).count();
        if count >= self.caps_of(node).1 { Err(Errno::NOMEM) } else { Ok(()) }
    }

    /// Holds a region under a key that nobody can guess in a few thousand tries.
    pub(super) fn add_region(&mut self, held: Held) -> Result<u32, Errno> {
        self.admit_region(held.node)?;
        loop {
            let mut bytes = [0; 4];
            rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
            let key = u32::from_ne_bytes(bytes);
            // Programs take 0 for "no key".
            if key != 0 && !self.regions.contains_key(&(held.node, key)) {
                self.regions.insert((held.node, key), held);
                return Ok(key);
            }
        }
    }

    pub(super) fn has_room_for_link(&self, node: u32) -> bool {
        self.links.values().filter(|it| it.has_end_at(node)).count() < self.caps.links
    }

    /// Forgets all that a program had.
    pub(super) fn forget(&mut self, program: u64) {
        let gone: BTreeSet<u32> =
            self.queue_pairs.iter().filter(|(_, it)| it.program == program).map(|(it, _)| *it).collect();
        self.queue_pairs.retain(|_, it| it.program != program);
        self.regions.retain(|_, it| it.program != program);
        self.asks.retain(|_, it| it.program != program);
        self.end_links(|(one, other), _| gone.contains(&one) || gone.contains(&other));
        for number in gone {
            self.groups.leave(number);
        }
        self.groups.forget(program);
        self.unnamed.forget(program);
        self.pages.remove(&program);
    }

    /// Pairs of nodes with connections.
    pub(super) fn pairs(&self) -> BTreeSet<(u32, u32)> {
        self.links.values().map(|it| it.nodes).collect()
    }

    /// Ends the connections of such pairs of nodes. Gives how many, and the queue pairs to tell.
    pub(super) fn revoke(&mut self, is_due: impl Fn(u32, u32) -> bool) -> (usize, Vec<(u64, u32)>) {
        // An end that has not said that it has a connection is not revoked for what the other end says.
        let is_claimed_by = |(key, it): (&(u32, u32), &Link)| it.claimant.map(|claimant| (*key, claimant));
        let claimants: BTreeMap<_, _> = self.links.iter().filter_map(is_claimed_by).collect();
        let due = self.end_links_by(true, |_, it| is_due(it.nodes.0, it.nodes.1));
        let mut told = BTreeSet::new();
        for link in &due {
            for number in [link.0, link.1] {
                if claimants.get(link).is_none_or(|claimant| *claimant == number)
                    && let Some(queue_pair) = self.queue_pairs.get_mut(&number)
                {
                    queue_pair.revoked = true;
                    queue_pair.peer = None;
                    told.insert((queue_pair.program, number));
                }
            }
        }
        (due.len(), told.into_iter().collect())
    }

    pub(super) fn status(&self) -> Vec<NodeStatus> {
        self.nodes.keys().map(|node| self.status_of(*node)).collect()
    }

    fn status_of(&self, node: u32) -> NodeStatus {
        let regions = || self.regions.values().filter(|it| it.node == node);
        let mut links = Vec::new();
        let mut totals: BTreeMap<Option<u32>, Traffic> = BTreeMap::new();
        for ((_, peer), traffic) in self.ended.range((node, None)..=(node, Some(u32::MAX))) {
            totals.insert(*peer, *traffic);
        }
        for ((one, other), link) in &self.links {
            let mut ends = vec![(*one, *other), (*other, *one)];
            ends.dedup();
            for (queue_pair, peer) in ends {
                let (here, peer_node) = link.nodes_from(queue_pair);
                if here != node || !link.is_of(queue_pair) {
                    continue;
                }
                let slot = link.slots.iter().find(|it| it.queue_pair == queue_pair);
                let traffic = slot.map(|it| self.traffic(it)).unwrap_or_default();
                let known = totals.len() < PAIRS || totals.contains_key(&Some(peer_node));
                totals.entry(known.then_some(peer_node)).or_default().add(&traffic);
                let joined = link.waiting.is_none() && link.claimant.is_none();
                let (relayed, by_device) = (link.relay.is_some(), link.by_device);
                links.push(LinkStatus { queue_pair, peer_node, peer, joined, relayed, by_device, traffic });
            }
        }
        NodeStatus {
            node,
            programs: 0,
            queue_pairs: self.queue_pairs.values().filter(|it| it.node == node).count(),
            regions: regions().count(),
            registered: regions().fold(0, |sum, it| sum.saturating_add(it.region.length)),
            links,
            totals: totals.into_iter().map(|(peer_node, traffic)| PeerTraffic { peer_node, traffic }).collect(),
        }
    }
}
