//! The model of a link, without clock or I/O: it decides about each packet.
//!
//! The order is that of `netem_enqueue` (`net/sched/sch_netem.c`): copy, loss, damage, limit, then ahead of the others or
//! delayed, then the rate, behind the packets before. Its time is nanoseconds on any clock that does not go back.

use std::net::IpAddr;

use slipway_document::units::Rate;
use slipway_lab::condition::LinkConditions;

use crate::Direction;
use crate::frame;
use crate::packet::Queue;
pub use crate::packet::{Packet, PeerIndex};
use crate::peers::{Pair, Peers};
use crate::process::{Chance, Delays, Losses, Reorder};
use crate::random::Kind;
use crate::spec::{Spec, is_per_packet};
use crate::transmitter::Transmitter;

/// One copy of a packet, on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delivery {
    /// The time at which it leaves the link, in nanoseconds.
    pub due: u64,
    /// The bit to invert, as a share of the frame's bits.
    pub damage: Option<f64>,
    way: Way,
}

impl Delivery {
    /// Whether it may go out together with one that came just before it: intact both, and held up alike. With a rate it is
    /// due later than that one, by the time that it takes itself.
    #[must_use]
    pub fn joins(&self, before: &Self) -> bool {
        let alike = match (before.way, self.way) {
            (Way::Ahead, Way::Ahead) => true,
            (Way::DelayThenRate { from: before }, Way::DelayThenRate { from }) => before == from,
            (Way::RateThenDelay { delay: before, .. }, Way::RateThenDelay { delay, .. }) => before == delay,
            _ => false,
        };
        alike && before.damage.is_none() && self.damage.is_none()
    }

    /// Whether it goes ahead of those that are delayed.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        self.way == Way::Ahead
    }
}

/// How `due` came about, for when a rate changes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// Ahead of the others.
    Ahead,
    /// Delayed, and at the port's transmitter from `from` on.
    DelayThenRate { from: u64 },
    /// At the port's transmitter from `from` until `sent`, delayed, and then at its pair's.
    RateThenDelay { from: u64, sent: u64, delay: u64 },
}

/// The result for a packet: at most a copy, and itself. Each that is there counts as waiting until [`Link::leave`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Verdict {
    /// A further one, queued before the packet itself.
    pub copy: Option<Delivery>,
    /// The packet.
    pub itself: Option<Delivery>,
}

/// Counts of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lost as asked.
    pub lost: u64,
    /// Damaged as asked.
    pub corrupted: u64,
    /// Copied as asked.
    pub duplicated: u64,
    /// Ahead of the others as asked.
    pub reordered: u64,
    /// Dropped because as many as may wait did.
    pub over_limit: u64,
}

/// One direction of an interface.
#[derive(Debug)]
pub struct Link {
    direction: Direction,
    processes: Processes,
    transmitter: Transmitter,
    peers: Peers,
    limit: Queue,
    per_packet: bool,
    /// As [`Self::waited_since`] says; `u64::MAX` is not at all.
    since: u64,
    /// The port's, and those of the peers in their order.
    rates: Vec<Option<Rate>>,
    counts: Counts,
}

/// How much time a rate makes up for at most, nanoseconds: twice what the kernel takes from real-time processes at once when
/// others starve (`sched(7)`, `sched_rt_runtime_us`). A machine that is later than that is of no use for measurements.
const LATEST: u64 = 100_000_000;

/// The processes that hold for frames of no particular peer.
#[derive(Debug)]
struct Processes {
    loss: Losses,
    corrupt: Chance,
    duplicate: Chance,
    reorder: Reorder,
    delay: Delays,
}

/// The random decisions about a packet. Everything is drawn for every packet, so that a loss does not shift the delays
/// of the packets after it.
#[derive(Debug, Clone, Copy)]
struct Fate {
    lost: bool,
    damage: Option<f64>,
    delay: u64,
}

impl Link {
    /// A link on which nothing waits.
    #[must_use]
    pub fn new(spec: &Spec) -> Self {
        let seed = spec.seed;
        let mut link = Self {
            direction: spec.direction,
            processes: Processes {
                loss: Losses::new(seed),
                corrupt: Chance::new(seed, Kind::Corrupt),
                duplicate: Chance::new(seed, Kind::Duplicate),
                reorder: Reorder::new(seed),
                delay: Delays::new(seed),
            },
            transmitter: Transmitter::default(),
            peers: Peers::default(),
            limit: Queue::default(),
            per_packet: false,
            since: u64::MAX,
            rates: Vec::new(),
            counts: Counts::default(),
        };
        link.set(0, spec, []);
        link
    }

    /// Whether conditions have other rates than those that hold, and so change when waiting packets are due.
    #[must_use]
    pub fn changes_rates(&self, spec: &Spec) -> bool {
        !rates(spec).eq(self.rates.iter().copied())
    }

    /// Changes conditions at `now`. Random streams, loss models that stay the same and what waits go on; the seed stays
    /// the first.
    ///
    /// Where rates change, `waiting` must be all waiting packets, in their order of arrival: they are then due by the
    /// new rates. netem leaves their times alone, so a link that was slow for a moment would stay slow until the last
    /// packet of that moment is through.
    pub fn set<'a>(&mut self, now: u64, spec: &Spec, waiting: impl IntoIterator<Item = (Packet, &'a mut Delivery)>) {
        let had_pairs = !self.peers.is_empty();
        let changes_rates = self.changes_rates(spec);
        self.direction = spec.direction;
        self.processes.set(&spec.all);
        self.transmitter.set(spec.all.rate, spec.all.queue);
        self.limit.set(spec.limit(), spec.mtu);
        self.peers.set(spec);
        self.per_packet = is_per_packet(&spec.all) || spec.peers.iter().any(|peer| is_per_packet(&peer.conditions));
        self.rates = rates(spec).collect();
        // Between a link with pairs and one without, the rate's place differs: what waits stays due when it was.
        if changes_rates && had_pairs != self.peers.is_empty() {
            self.transmitter.clear();
            self.peers.clear();
            for (packet, delivery) in waiting {
                self.again(now, packet, delivery);
            }
        }
    }

    fn again(&mut self, now: u64, packet: Packet, delivery: &mut Delivery) {
        match &mut delivery.way {
            Way::Ahead => {}
            Way::DelayThenRate { from } => {
                delivery.due = self.transmitter.again(now, *from, delivery.due, packet);
            }
            Way::RateThenDelay { from, sent, delay } => {
                *sent = self.transmitter.again(now, *from, *sent, packet);
                let from = sent.saturating_add(*delay);
                let pair = self.peers.get(packet.peer);
                delivery.due = pair.map_or(from, |pair| pair.again(now, from, (*sent, delivery.due), packet));
            }
        }
    }

    /// The peer of a frame, if it is one that has conditions of its own.
    #[must_use]
    pub fn peer(&self, frame: &[u8]) -> Option<PeerIndex> {
        if self.peers.is_empty() {
            return None;
        }
        self.peers.find(frame::peer(frame, self.direction)?)
    }

    /// The peer with an address, if it has conditions of its own.
    #[must_use]
    pub fn peer_at(&self, address: IpAddr) -> Option<PeerIndex> {
        self.peers.find(address)
    }

    /// Whether something is drawn for each packet by itself.
    #[must_use]
    pub fn is_per_packet(&self) -> bool {
        self.per_packet
    }

    /// The counts until now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Packets and bytes that wait.
    #[must_use]
    pub fn waiting(&self) -> (u64, u64) {
        (self.limit.packets, self.limit.bytes)
    }

    /// Tells that packets which pass from now on may have come as early as `since`, because nobody looked. A rate then makes
    /// up for the time; delays are counted from when packets pass all the same.
    pub fn waited_since(&mut self, since: u64) {
        self.since = since;
    }

    /// Decides about a packet that comes at `now`, or about a segment as if it were one.
    pub fn pass(&mut self, now: u64, packet: Packet) -> Verdict {
        let verdict = self.decide(now, packet);
        self.skip_rest(packet);
        verdict
    }

    fn decide(&mut self, now: u64, packet: Packet) -> Verdict {
        let packets = u64::from(packet.packets);
        let copied =
            held(self.peers.get(packet.peer), |pair| &mut pair.duplicate, &mut self.processes.duplicate).next();
        let fate = self.draw(packet);
        // A copy makes up for a loss (`netem_enqueue`, `count`).
        if fate.lost && copied.is_none() {
            self.counts.lost += packets;
            self.skip_order(packet, 1);
            return Verdict::default();
        }
        if !self.admit(packet) {
            self.skip_order(packet, 1);
            return Verdict::default();
        }
        let mut copy = None;
        if copied.is_some() && !fate.lost {
            let fate = self.draw(packet);
            if fate.lost {
                self.counts.lost += packets;
                self.skip_order(packet, 1);
            } else if self.admit(packet) {
                copy = self.queue(now, packet, fate);
                self.counts.duplicated += packets * u64::from(copy.is_some());
            } else {
                self.skip_order(packet, 1);
            }
        }
        Verdict { copy, itself: self.queue(now, packet, fate) }
    }

    /// Sends an admitted packet on its way, where it finds room to wait for the rates.
    fn queue(&mut self, now: u64, packet: Packet, fate: Fate) -> Option<Delivery> {
        let delivery = self.schedule(now, packet, fate);
        let packets = u64::from(packet.packets);
        if delivery.is_some() {
            self.counts.corrupted += packets * u64::from(fate.damage.is_some());
        } else {
            self.leave(packet);
            self.counts.over_limit += packets;
        }
        delivery
    }

    /// To be said of each delivery once it went out, or never will.
    pub fn leave(&mut self, packet: Packet) {
        self.limit.leave(packet);
        if let Some(pair) = self.peers.get(packet.peer) {
            pair.queue.leave(packet);
        }
    }

    fn draw(&mut self, packet: Packet) -> Fate {
        let mut pair = self.peers.get(packet.peer);
        let port = &mut self.processes;
        Fate {
            lost: held(pair.as_deref_mut(), |pair| &mut pair.loss, &mut port.loss).next(),
            damage: held(pair.as_deref_mut(), |pair| &mut pair.corrupt, &mut port.corrupt).next(),
            delay: held(pair, |pair| &mut pair.delay, &mut port.delay).next(),
        }
    }

    fn skip_order(&mut self, packet: Packet, packets: u32) {
        held(self.peers.get(packet.peer), |pair| &mut pair.reorder, &mut self.processes.reorder).skip(packets);
    }

    /// Goes past the packets of a segment behind its first: each keeps its place in the streams, drawn for or not.
    fn skip_rest(&mut self, packet: Packet) {
        let rest = packet.packets - 1;
        if rest == 0 {
            return;
        }
        let mut pair = self.peers.get(packet.peer);
        let port = &mut self.processes;
        held(pair.as_deref_mut(), |pair| &mut pair.duplicate, &mut port.duplicate).skip(rest);
        held(pair.as_deref_mut(), |pair| &mut pair.loss, &mut port.loss).skip(rest);
        held(pair.as_deref_mut(), |pair| &mut pair.corrupt, &mut port.corrupt).skip(rest);
        held(pair, |pair| &mut pair.delay, &mut port.delay).skip(rest);
        self.skip_order(packet, rest);
    }

    fn admit(&mut self, packet: Packet) -> bool {
        let pair = self.peers.get(packet.peer);
        let room = self.limit.has_room(packet)
            && pair.as_ref().is_none_or(|pair| !pair.is_limited || pair.queue.has_room(packet));
        if room {
            self.limit.enter(packet);
            if let Some(pair) = pair {
                pair.queue.enter(packet);
            }
        } else {
            self.counts.over_limit += u64::from(packet.packets);
        }
        room
    }

    fn schedule(&mut self, now: u64, packet: Packet, fate: Fate) -> Option<Delivery> {
        let late = now.saturating_sub(self.since).min(LATEST);
        let pair = self.peers.get(packet.peer);
        let (due, way) = if held(pair, |pair| &mut pair.reorder, &mut self.processes.reorder).next() {
            self.counts.reordered += u64::from(packet.packets);
            (now, Way::Ahead)
        } else if self.peers.is_empty() {
            let from = now.saturating_add(fate.delay);
            if !self.transmitter.has_room(from, packet) {
                return None;
            }
            (self.transmitter.pass(from, late, packet), Way::DelayThenRate { from })
        } else {
            // Where delays differ by peer, the port's rate comes before them, as a network card's does. Behind them, a
            // packet to a far peer would hold up those to near ones.
            let mut pair = self.peers.get(packet.peer);
            if !self.transmitter.has_room(now, packet)
                || pair.as_deref_mut().is_some_and(|pair| !pair.has_room_before(now, packet))
            {
                return None;
            }
            let sent = self.transmitter.pass(now, late, packet);
            let from = sent.saturating_add(fate.delay);
            let due = pair.map_or(Some(from), |pair| pair.pass(from, late, sent, packet))?;
            (due, Way::RateThenDelay { from: now, sent, delay: fate.delay })
        };
        Some(Delivery { due, damage: fate.damage, way })
    }
}

fn rates(spec: &Spec) -> impl Iterator<Item = Option<Rate>> {
    std::iter::once(spec.all.rate).chain(spec.peers.iter().map(|peer| peer.conditions.rate))
}

impl Processes {
    fn set(&mut self, asked: &LinkConditions) {
        self.loss.set(asked);
        self.corrupt.set(asked.corrupt);
        self.duplicate.set(asked.duplicate);
        self.reorder.set(asked);
        self.delay.set(asked);
    }
}

/// The process that holds for a packet: its pair's, or else the port's.
fn held<'a, T>(
    pair: Option<&'a mut Pair>,
    of: impl FnOnce(&'a mut Pair) -> &'a mut Option<Box<T>>,
    port: &'a mut T,
) -> &'a mut T {
    pair.and_then(|pair| of(pair).as_deref_mut()).unwrap_or(port)
}
