//! Objects of nodes: queue pairs, regions, connections.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::{Caps, LinkStatus, NodeStatus};
use crate::wire::{Gid, Region, Transport};

/// The first queue pair's number: 0 and 1 are those of management (InfiniBand specification, 3.5.10).
const FIRST: u32 = 16;
/// Numbers of queue pairs have 24 bits.
const LAST: u32 = 0x00ff_fffe;

pub(super) struct QueuePair {
    pub(super) program: u64,
    pub(super) node: u32,
    pub(super) transport: Transport,
    pub(super) domain: u32,
    /// The queue pair that this one is joined with; none for datagrams.
    pub(super) peer: Option<u32>,
    pub(super) revoked: bool,
}

pub(super) struct Held {
    pub(super) program: u64,
    pub(super) node: u32,
    pub(super) domain: u32,
    pub(super) region: Region,
    pub(super) file: Option<OwnedFd>,
}

/// A connection. Its key is both queue pairs' numbers, the lower first.
pub(super) struct Link {
    /// The queue pair that asked first.
    pub(super) first: u32,
    pub(super) nodes: (u32, u32),
    /// The memory and the socket of the end that has not asked yet.
    pub(super) waiting: Option<(OwnedFd, OwnedFd)>,
}

pub(super) struct Tables {
    caps: Caps,
    nodes: BTreeMap<u32, Vec<Gid>>,
    pub(super) queue_pairs: BTreeMap<u32, QueuePair>,
    pub(super) regions: BTreeMap<u32, Held>,
    pub(super) links: BTreeMap<(u32, u32), Link>,
    next: u32,
}

/// The key of a connection.
pub(super) fn key(one: u32, other: u32) -> (u32, u32) {
    (one.min(other), one.max(other))
}

impl Tables {
    pub(super) fn new(caps: Caps) -> Self {
        let (nodes, queue_pairs, regions, links) = Default::default();
        Self { caps, nodes, queue_pairs, regions, links, next: FIRST }
    }

    pub(super) fn caps(&self) -> Caps {
        self.caps
    }

    pub(super) fn add(&mut self, node: u32, gids: Vec<Gid>) {
        self.nodes.insert(node, gids);
    }

    pub(super) fn remove(&mut self, node: u32) {
        self.nodes.remove(&node);
    }

    pub(super) fn gids(&self, node: u32) -> &[Gid] {
        self.nodes.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The node with this address.
    pub(super) fn node_at(&self, gid: &Gid) -> Option<u32> {
        self.nodes.iter().find(|(_, gids)| gids.contains(gid)).map(|(node, _)| *node)
    }

    pub(super) fn add_queue_pair(&mut self, queue_pair: QueuePair) -> Result<u32, Errno> {
        let node = queue_pair.node;
        if self.queue_pairs.values().filter(|it| it.node == node).count() >= self.caps.queue_pairs {
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
            self.next = if number >= LAST { FIRST } else { number + 1 };
            if !self.queue_pairs.contains_key(&number) {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn remove_queue_pair(&mut self, number: u32) {
        self.queue_pairs.remove(&number);
        self.links.retain(|(one, other), _| *one != number && *other != number);
    }

    /// Holds a region under a key that nobody can guess in a few thousand tries.
    pub(super) fn add_region(&mut self, held: Held) -> Result<u32, Errno> {
        if self.regions.values().filter(|it| it.node == held.node).count() >= self.caps.regions {
            return Err(Errno::NOMEM);
        }
        loop {
            let mut bytes = [0; 4];
            rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
            let key = u32::from_ne_bytes(bytes);
            // Programs take 0 for "no key".
            if key != 0 && !self.regions.contains_key(&key) {
                self.regions.insert(key, held);
                return Ok(key);
            }
        }
    }

    pub(super) fn has_room_for_link(&self, node: u32) -> bool {
        self.links.values().filter(|it| it.nodes.0 == node || it.nodes.1 == node).count() < self.caps.links
    }

    /// Forgets all that a program had.
    pub(super) fn forget(&mut self, program: u64) {
        let gone: BTreeSet<u32> =
            self.queue_pairs.iter().filter(|(_, it)| it.program == program).map(|(it, _)| *it).collect();
        self.queue_pairs.retain(|_, it| it.program != program);
        self.regions.retain(|_, it| it.program != program);
        self.links.retain(|(one, other), _| !gone.contains(one) && !gone.contains(other));
    }

    /// Pairs of nodes with connections.
    pub(super) fn pairs(&self) -> BTreeSet<(u32, u32)> {
        self.links.values().map(|it| it.nodes).collect()
    }

    /// Ends the connections of such pairs of nodes. Gives how many, and the queue pairs to tell.
    pub(super) fn revoke(&mut self, is_due: impl Fn(u32, u32) -> bool) -> (usize, Vec<(u64, u32)>) {
        let due: Vec<(u32, u32)> =
            self.links.iter().filter(|(_, it)| is_due(it.nodes.0, it.nodes.1)).map(|(it, _)| *it).collect();
        let mut told = BTreeSet::new();
        for link in &due {
            self.links.remove(link);
            for number in [link.0, link.1] {
                if let Some(queue_pair) = self.queue_pairs.get_mut(&number) {
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
        for ((one, other), link) in &self.links {
            let second = if link.first == *one { *other } else { *one };
            let joined = link.waiting.is_none();
            let (from, to) = link.nodes;
            if from == node {
                links.push(LinkStatus { queue_pair: link.first, peer_node: to, peer: second, joined });
            }
            if to == node {
                links.push(LinkStatus { queue_pair: second, peer_node: from, peer: link.first, joined });
            }
        }
        NodeStatus {
            node,
            programs: 0,
            queue_pairs: self.queue_pairs.values().filter(|it| it.node == node).count(),
            regions: regions().count(),
            registered: regions().map(|it| it.region.length).sum(),
            links,
        }
    }
}
