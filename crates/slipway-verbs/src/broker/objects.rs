//! Objects that the broker holds, one by one.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use super::limits::{Both, Limited};
use crate::untrusted::{Untrusted, untrusted};
use crate::wire::{Proof, Region, Request, Transport};

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
    /// The descriptors of the end that has not asked yet: memory and socket, or a stream.
    pub(super) waiting: Option<Vec<Untrusted>>,
    /// Where the ends that have joined count.
    pub(super) slots: Vec<Slot>,
    /// A copy of the stream to another host's program, by which the broker ends it.
    pub(super) stream: Option<Untrusted>,
    /// Whether its stream leads to a carrier, and so to a device of the machine.
    pub(super) by_device: bool,
    pub(super) terms: Both,
    /// Whether its nodes do not hear one another, so that it stands still.
    pub(super) is_silent: bool,
    /// Its number at the relay; `None`: both ends share memory, or have a stream.
    pub(super) relay: Option<u64>,
    /// The queue pair that alone has named this connection, which another broker made. The other end has not said so.
    pub(super) claimant: Option<u32>,
}

/// A question to another host's broker that has no answer yet.
pub(super) struct Ask {
    pub(super) program: u64,
    pub(super) number: u32,
    pub(super) node: u32,
    pub(super) peer: u32,
    pub(super) to: u32,
    /// The other broker has asked at the same time: its stream will come until then.
    pub(super) crossed: Option<Instant>,
}

/// Connections to queue pairs that may yet be named.
#[derive(Debug, Default)]
pub(super) struct Unnamed {
    /// The end of the time for names; `None` where none are to come.
    pub(super) until: Option<Instant>,
    /// The request of each program that waits.
    pub(super) waiting: BTreeMap<u64, Request>,
}

/// The node of an address, and its host.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) node: u32,
    /// Its virtual host, where that is another.
    pub(super) host: Option<u32>,
}

/// A place where a program counts an end of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) queue_pair: u32,
    pub(super) program: u64,
    pub(super) number: u32,
}

impl Link {
    /// A connection within the host, whose other end may have to wait for its descriptors.
    pub(super) fn near(
        first: u32,
        nodes: (u32, u32),
        terms: Both,
        relay: Option<u64>,
        (waiting, slots): (Option<Vec<OwnedFd>>, Vec<Slot>),
    ) -> Self {
        let (stream, claimant, by_device, is_silent) = Default::default();
        let waiting = waiting.map(untrusted);
        Self { first, nodes, waiting, slots, stream, by_device, terms, is_silent, relay, claimant }
    }

    /// The node of this end, and that of the other.
    pub(super) fn nodes_from(&self, queue_pair: u32) -> (u32, u32) {
        let (first, second) = self.nodes;
        if queue_pair == self.first { (first, second) } else { (second, first) }
    }

    /// Whether this queue pair's program has, or awaits, this connection.
    pub(super) fn is_of(&self, queue_pair: u32) -> bool {
        self.claimant.is_none_or(|claimant| claimant == queue_pair)
    }

    /// Whether this node has one of the two ends, as far as ends have said so.
    pub(super) fn has_end_at(&self, node: u32) -> bool {
        match self.claimant {
            Some(claimant) => self.nodes_from(claimant).0 == node,
            None => self.nodes.0 == node || self.nodes.1 == node,
        }
    }

    /// The connection, as far as limits are about it.
    pub(super) fn limited(&self) -> Limited {
        Limited { terms: self.terms, nodes: self.nodes, relay: self.relay }
    }
}

/// The key of a connection.
pub(super) fn key(one: u32, other: u32) -> (u32, u32) {
    (one.min(other), one.max(other))
}

/// Whether two nodes do not hear one another.
pub type Silence = Box<dyn Fn(u32, u32) -> bool + Send>;

/// Has a stream hear nothing, or hear again.
pub type Still = Box<dyn Fn(BorrowedFd<'_>, bool) + Send>;

/// Kinds of numbers that a proof is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A queue pair's.
    QueuePair,
    /// A region's key.
    Region,
}

/// Makes the proof that a number of a kind is a node's: a keyed hash, by a key that brokers of a host have one after the other.
pub type Seal = Box<dyn Fn(u32, Kind, u32) -> Proof + Send>;

/// A host whose nodes all hear one another.
pub(super) fn all_hear() -> Silence {
    Box::new(|_, _| false)
}
