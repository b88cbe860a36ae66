//! Queue pairs, completion queues and shared receive queues of one device.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::connection::Connection;
use super::memory::Piece;
pub(super) use super::operation::Operation;
use crate::abi::{QpAttr, QpCap, Wc};
use crate::wire::{Gid, Proof, Transport};

/// States of a queue pair (`enum ibv_qp_state`).
pub(super) mod state {
    pub(crate) const RESET: i32 = 0;
    pub(crate) const INIT: i32 = 1;
    pub(crate) const READY_TO_RECEIVE: i32 = 2;
    pub(crate) const READY_TO_SEND: i32 = 3;
    pub(crate) const ERROR: i32 = 6;
}

/// Statuses of completions (`enum ibv_wc_status`).
pub(super) mod status {
    pub(crate) const SUCCESS: i32 = 0;
    pub(crate) const LOCAL_LENGTH: i32 = 1;
    pub(crate) const LOCAL_PROTECTION: i32 = 4;
    pub(crate) const FLUSHED: i32 = 5;
    pub(crate) const INVALID_REQUEST: i32 = 9;
    pub(crate) const REMOTE_ACCESS: i32 = 10;
    pub(crate) const RETRIES_EXCEEDED: i32 = 12;
    pub(crate) const NOT_READY: i32 = 13;
    pub(crate) const GENERAL: i32 = 21;
}

/// A request of the send queue.
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) id: u64,
    pub(super) operation: Operation,
    pub(super) is_signaled: bool,
    pub(super) is_solicited: bool,
    pub(super) immediate: Option<u32>,
    pub(super) pieces: Vec<Piece>,
    /// The bytes of an inline request, where `pieces` lead.
    pub(super) inline: Option<Box<[u8]>>,
    pub(super) length: usize,
    /// Address and key at the peer; a datagram's key of the queue.
    pub(super) address: u64,
    pub(super) key: u32,
    /// A datagram's destination.
    pub(super) to: Option<(Gid, u32)>,
    /// A piece is in no registration.
    pub(super) is_bad: bool,
    /// A piece is in memory that the gateway does not know.
    pub(super) in_lab: bool,
    /// Bytes that are on their way.
    pub(super) done: usize,
    /// It waits until answers of earlier requests have come (`IBV_SEND_FENCE`).
    pub(super) is_fenced: bool,
}

/// An answer that the peer owes.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) pieces: Vec<Piece>,
    /// Bytes that have come.
    pub(super) done: usize,
}

/// A request that the peer has not consumed yet.
#[derive(Debug)]
pub(super) struct Flying {
    /// The counter of requests behind it.
    pub(super) end: u64,
    pub(super) id: u64,
    pub(super) operation: Operation,
    pub(super) length: usize,
    pub(super) is_signaled: bool,
    pub(super) awaited: Option<Awaited>,
}

/// A receive request.
#[derive(Debug)]
pub(super) struct Receive {
    pub(super) id: u64,
    pub(super) pieces: Vec<Piece>,
    pub(super) length: usize,
    pub(super) is_bad: bool,
    /// A piece is in memory that the gateway does not know.
    pub(super) in_lab: bool,
}

/// A message that is being received in parts.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) receive: Receive,
    pub(super) done: usize,
}

/// The place of a connection, for a queue pair whose peer is outside of the lab.
#[derive(Debug)]
pub(super) struct Outside {
    /// How many requests and receives the gateway has at once, and the pieces of each.
    pub(super) requests: usize,
    pub(super) most_receives: usize,
    pub(super) spans: usize,
    /// Receive requests that the gateway has.
    pub(super) receives: VecDeque<Receive>,
}

#[derive(Debug)]
pub(super) struct QueuePair {
    /// Its place in the device.
    pub(super) index: usize,
    pub(super) number: u32,
    pub(super) proof: Proof,
    pub(super) transport: Transport,
    pub(super) domain: u32,
    pub(super) send_cq: usize,
    pub(super) receive_cq: usize,
    pub(super) srq: Option<usize>,
    pub(super) cap: QpCap,
    pub(super) signals_all: bool,
    pub(super) state: i32,
    pub(super) attributes: QpAttr,
    pub(super) sending: VecDeque<Work>,
    pub(super) flying: VecDeque<Flying>,
    /// How many of these await an answer.
    pub(super) asked: usize,
    pub(super) receives: VecDeque<Receive>,
    pub(super) partial: Option<Partial>,
    /// Connections by number; a connected queue pair has number 0 alone.
    pub(super) connections: Vec<Connection>,
    /// The gateway knows the queue pair.
    pub(super) is_told: bool,
    /// Its peer is outside of the lab.
    pub(super) outside: Option<Outside>,
    /// Datagrams' connections by their peer.
    pub(super) by_peer: HashMap<u32, usize>,
    /// Groups that a datagram queue pair is a member of.
    pub(super) groups: Vec<Gid>,
    /// Since when the peer has had no receive request for the oldest message.
    pub(super) not_ready_since: Option<Instant>,
    /// Since when requests have been waiting for a peer that has ended.
    pub(super) closed_since: Option<Instant>,
    /// Bytes of a read that the peer has been answered with.
    pub(super) served: usize,
}

impl QueuePair {
    /// A queue pair that is not connected: its number with the broker's proof, its transport with the protection domain, and its
    /// completion queues for requests and receives.
    pub(super) fn new(
        (number, proof): (u32, Proof),
        (transport, domain): (Transport, u32),
        (send_cq, receive_cq): (usize, usize),
        srq: Option<usize>,
        cap: QpCap,
        signals_all: bool,
    ) -> Self {
        Self {
            index: 0,
            number,
            proof,
            transport,
            domain,
            send_cq,
            receive_cq,
            srq,
            cap,
            signals_all,
            state: state::RESET,
            attributes: QpAttr { rnr_retry: 7, ..QpAttr::default() },
            sending: VecDeque::new(),
            flying: VecDeque::new(),
            asked: 0,
            receives: VecDeque::new(),
            partial: None,
            connections: Vec::new(),
            is_told: false,
            outside: None,
            by_peer: HashMap::new(),
            groups: Vec::new(),
            not_ready_since: None,
            closed_since: None,
            served: 0,
        }
    }

    /// How long a peer without receive requests is waited for; `None`: as long as it takes.
    ///
    /// A processor that runs others for a while is no reason to fail, so a time is at least a tenth of a second.
    pub(super) fn patience(&self) -> Option<Duration> {
        let retries = u32::from(self.attributes.rnr_retry);
        let shortest = Duration::from_millis(100);
        (retries < 7).then(|| shortest * retries.max(1))
    }

    /// Time for which a peer that has ended is tried before a request fails, as a device would. Each try takes 4.096 µs times 2 to the
    /// power of `timeout` (InfiniBand specification, 9.9.2.4.4). Programs end with requests in flight, and rely on it.
    pub(super) fn retries(&self) -> Duration {
        let once = Duration::from_nanos(4096 << self.attributes.timeout.min(20));
        (once * (u32::from(self.attributes.retry_cnt) + 1)).min(Duration::from_secs(4))
    }

    /// The number of a connection with this peer: that of an earlier one, which has ended, or the next.
    pub(super) fn place_for(&self, peer: u32) -> usize {
        let next = if self.transport == Transport::Datagram { self.connections.len() } else { 0 };
        self.by_peer.get(&peer).copied().unwrap_or(next)
    }

    /// Puts a connection into its place.
    pub(super) fn put(&mut self, number: usize, connection: Connection, epoll: &OwnedFd) {
        self.by_peer.insert(connection.peer.1, number);
        match self.connections.get_mut(number) {
            Some(place) => {
                // A child of the program may have its socket too, and the set would hear of its end on and on.
                let _ = epoll::delete(epoll, place.bell());
                *place = connection;
            }
            None => self.connections.push(connection),
        }
    }

    pub(super) fn wants_head(&self) -> bool {
        !self.sending.is_empty() || self.flying.iter().any(|it| it.is_signaled)
    }
}

/// When a completion queue rings its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Armed {
    No,
    /// At the next completion that is solicited, or an error.
    Solicited,
    Any,
}

#[derive(Debug)]
pub(super) struct CompletionQueue {
    pub(super) completions: VecDeque<Wc>,
    pub(super) queue_pairs: Vec<usize>,
    pub(super) armed: Armed,
    /// The channel's descriptor, and the pointer that libibverbs reads there.
    pub(super) channel: Option<(i32, u64)>,
    pub(super) events: u32,
    pub(super) empty_polls: u32,
    /// Polls in a row that did not look at the queue pairs.
    pub(super) passed: u32,
}

impl CompletionQueue {
    /// How many queue pairs a poll for so many completions looks at: none where there are enough of them. Peers wait for a few polls
    /// at most.
    pub(super) fn due(&mut self, wanted: usize) -> usize {
        const MOST: u32 = 8;
        if self.completions.len() >= wanted && self.passed < MOST {
            self.passed += 1;
            return 0;
        }
        self.passed = 0;
        self.queue_pairs.len()
    }
}

#[derive(Debug)]
pub(super) struct SharedQueue {
    pub(super) receives: VecDeque<Receive>,
    pub(super) max: u32,
    pub(super) max_sge: u32,
    pub(super) limit: u32,
    /// The pointer that libibverbs reads in an event.
    pub(super) handle: u64,
}
