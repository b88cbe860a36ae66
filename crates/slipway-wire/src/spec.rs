//! The specification of a port.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use slipway_document::units::{Fraction, Rate, Seconds};
use slipway_lab::change::Keys as _;
use slipway_lab::condition::{LinkConditions, UNSHAPED};
use slipway_lab::scenario::Direction;

/// The conditions of one direction of one interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The direction of the port's frames. The peer of a frame that the node sends is its receiver; of one that it
    /// receives, its sender.
    pub direction: Direction,
    /// Every draw of the port derives from it.
    pub seed: [u8; 32],
    /// Conditions of every frame.
    pub all: LinkConditions,
    /// Conditions of the frames of some peers instead.
    pub peers: Vec<Peer>,
    /// The interface's, bytes.
    pub mtu: u32,
}

/// Conditions between the port's node and one other, over [`Spec::all`] key by key: other keys are `all`'s. Only `rate`
/// is in addition: the peer's frames pass a rate of their own, and the port's with all the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// The other's, of both families. An address that several peers name is the last one's.
    pub addresses: Vec<IpAddr>,
    /// Every draw of the pair derives from it.
    pub seed: [u8; 32],
    /// The conditions in force.
    pub conditions: LinkConditions,
}

/// Segments pass whole where the largest, on the wire, takes less than this many nanoseconds: it comes at once where its
/// packets would come one by one.
const SEGMENT_NS: u64 = 500_000;
/// Bits of the largest segment.
const SEGMENT_BITS: u64 = 65_536 * 8;
const NS: u64 = 1_000_000_000;

impl Spec {
    /// Whether segments larger than the MTU may come whole: where the rates are high, and queues long. Otherwise the kernel
    /// is to cut them before they come.
    #[must_use]
    pub fn takes_segments(&self) -> bool {
        std::iter::once(&self.all)
            .chain(self.peers.iter().map(|peer| &peer.conditions))
            .all(|of| is_fast(of.rate) && is_long(of.limit, self.mtu) && is_long(of.queue, self.mtu))
    }

    /// Packets that may wait: as asked or, where that is left out, what the pair needs that needs the most.
    pub(crate) fn limit(&self) -> u32 {
        let pairs = self.peers.iter().map(|peer| default_limit(&peer.conditions.over(&self.all), self.mtu));
        self.all.limit.unwrap_or_else(|| pairs.fold(default_limit(&self.all, self.mtu), u32::max))
    }
}

/// Whether something is drawn, or counted, for each packet by itself.
pub(crate) fn is_per_packet(conditions: &LinkConditions) -> bool {
    let set = |share: Option<Fraction>| share.is_some_and(|share| share.0 > 0.0);
    conditions.loss.is_some()
        || set(conditions.corrupt)
        || set(conditions.duplicate)
        || set(conditions.reorder)
        || conditions.gap.is_some_and(|gap| gap > 0)
}

fn is_fast(rate: Option<Rate>) -> bool {
    rate.is_none_or(|rate| rate.0 / NS.div_euclid(SEGMENT_NS) > SEGMENT_BITS)
}

/// Whether several segments fit a queue: packets of one come at once, and a short queue would lose some that one by one it
/// would not.
fn is_long(limit: Option<u32>, mtu: u32) -> bool {
    const SEGMENTS: u64 = 4;
    limit.is_none_or(|limit| u64::from(limit) * u64::from(mtu) * 8 >= SEGMENTS * SEGMENT_BITS)
}

/// Packets of netem's queue when nothing is said (`tc-netem(8)`, `limit`).
const NETEM_LIMIT: u64 = 1000;

/// The number of packets that may wait where `limit` is not set. That is netem's 1000, or the number of `queue`, and
/// those that are under way, because netem and the wire both count delayed packets as waiting.
#[must_use]
pub fn default_limit(conditions: &LinkConditions, mtu: u32) -> u32 {
    let under_way = nanoseconds(conditions.delay).saturating_add(nanoseconds(conditions.jitter));
    let rate = conditions.rate.unwrap_or(UNSHAPED).min(UNSHAPED).0;
    let bits = u128::from(rate) * u128::from(under_way) / u128::from(NS);
    let packets = u64::try_from(bits.div_ceil(u128::from(mtu.max(64)) * 8)).unwrap_or(u64::MAX);
    let queued = conditions.queue.map_or(NETEM_LIMIT, |queue| NETEM_LIMIT.max(queue.into()));
    u32::try_from(packets.saturating_add(queued)).unwrap_or(u32::MAX)
}

/// Nanoseconds of a duration; none is zero.
pub(crate) fn nanoseconds(time: Option<Seconds>) -> u64 {
    time.map_or(0, |time| u64::try_from(time.duration().as_nanos()).unwrap_or(u64::MAX))
}
