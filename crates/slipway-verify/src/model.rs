//! Models of what makes conditions, in virtual time: what the mechanism in use does to a packet, and not what a user may
//! have hoped for. The wire's is the wire's own code; those of the kernel's queueing disciplines follow its source.

mod bucket;
mod netem;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::sync::Arc;

use slipway_sys::netlink::{Netem, Tbf};
use slipway_wire::Spec;
use slipway_wire::link::{Link, Packet};

/// The mechanism at one direction of an interface.
#[derive(Debug, Clone)]
pub(super) enum Mechanism {
    /// Slipway's own wire.
    Wire(Box<Spec>),
    /// The kernel's netem, and the table of its jitter's shape.
    Netem(Box<Netem>, Option<Arc<[i16]>>),
    /// The kernel's token bucket.
    Tbf(Tbf),
    /// A gate that lets nothing pass.
    Closed,
}

/// A packet as it leaves a mechanism.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Out {
    /// Nanoseconds.
    pub(super) due: u64,
    /// True if it overtook another.
    pub(super) ahead: bool,
    /// The damage that was done to it.
    pub(super) damage: Damage,
}

/// The effect on the receiver of a bit that is turned over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Damage {
    /// None was.
    #[default]
    None,
    /// In the sender's Ethernet address: only switches may mind.
    Address,
    /// A checksum or an address shows it: the packet is dropped.
    Deadly,
}

/// A mechanism at work, on which nothing waits at first.
#[derive(Debug)]
pub(super) enum Model {
    Wire { link: Box<Link>, leaving: BinaryHeap<Reverse<(u64, u32, Option<IpAddr>)>>, late: u64 },
    Netem(Box<netem::Model>),
    Tbf(bucket::Model),
    Closed,
}

impl Model {
    /// `seed` is for everything that is drawn. Packets leave their queue `late` nanoseconds after they are due, as a busy
    /// machine has it: it matters where a queue is full.
    pub(super) fn new(mechanism: &Mechanism, seed: u64, late: u64) -> Self {
        match mechanism {
            Mechanism::Wire(spec) => {
                let mut spec = spec.as_ref().clone();
                spec.seed = wide(seed);
                for (peer, number) in spec.peers.iter_mut().zip(1..) {
                    peer.seed = wide(mix(seed ^ number));
                }
                Self::Wire { link: Box::new(Link::new(&spec)), leaving: BinaryHeap::new(), late }
            }
            Mechanism::Netem(netem, shape) => {
                Self::Netem(Box::new(netem::Model::new(netem, shape.clone(), seed, late)))
            }
            Mechanism::Tbf(tbf) => Self::Tbf(bucket::Model::new(*tbf)),
            Mechanism::Closed => Self::Closed,
        }
    }

    /// Passes a packet of `bytes` that comes at `now`, for the node with the address `peer`.
    pub(super) fn pass(&mut self, now: u64, bytes: u32, peer: Option<IpAddr>, out: &mut Vec<Out>) {
        match self {
            Self::Wire { link, leaving, late } => {
                let packet = |bytes, peer| Packet { peer, bytes, packets: 1 };
                let index = |link: &Link, peer: Option<IpAddr>| peer.and_then(|address| link.peer_at(address));
                while let Some(&Reverse((_, bytes, peer))) = leaving.peek().filter(|Reverse((due, ..))| *due <= now) {
                    leaving.pop();
                    let peer = index(link, peer);
                    link.leave(packet(bytes, peer));
                }
                let verdict = link.pass(now, packet(bytes, index(link, peer)));
                for delivery in verdict.copy.into_iter().chain(verdict.itself) {
                    leaving.push(Reverse((delivery.due.saturating_add(*late), bytes, peer)));
                    // The wire spares the Ethernet header.
                    let damage = if delivery.damage.is_some() { Damage::Deadly } else { Damage::None };
                    out.push(Out { due: delivery.due, ahead: delivery.is_ahead(), damage });
                }
            }
            Self::Netem(model) => model.pass(now, bytes, out),
            Self::Tbf(model) => {
                out.extend(model.pass(now, bytes).map(|due| Out { due, ahead: false, damage: Damage::None }));
            }
            Self::Closed => {}
        }
    }
}

/// A number that looks random, for each number (`SplitMix64`: Steele, Lea and Flood, 2014).
pub(super) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn wide(seed: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (at, part) in bytes.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&mix(seed.wrapping_add(at as u64)).to_le_bytes());
    }
    bytes
}
