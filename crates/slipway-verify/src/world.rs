//! All that packets of the measured paths pass, and what becomes of trains that are sent through it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};

use slipway_document::units::Fraction;
use slipway_lab::condition::{LinkConditions, Loss};
use slipway_lab::id::NodeId;
use slipway_lab::scenario::Direction;
use slipway_wire::{Peer, Spec};

use super::model::{Damage, Mechanism, Model, Out};
use super::path::{Hop, Route};
use slipway_engine::condition::{self, DirectionReport, LinkReport, Place, Shape};

/// One direction of an interface that does something to packets.
#[derive(Debug)]
struct Port {
    at: (Place, Direction),
    mechanism: Mechanism,
}

/// The ports and conditions that a path passes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Way {
    /// The port, and the packet's receiver where the port distinguishes receivers.
    ports: Vec<(usize, Option<IpAddr>)>,
    /// Conditions that hold on the way, in its order.
    pub(super) asked: Vec<LinkConditions>,
    /// A cut or a partition lets nothing pass.
    pub(super) closed: bool,
    /// Names of the mechanisms that make the conditions.
    pub(super) mechanism: String,
}

/// The ports on some paths.
#[derive(Debug, Default)]
pub(super) struct World {
    ports: Vec<Port>,
    pub(super) ways: Vec<Way>,
}

/// A packet to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sent {
    /// Time of sending, nanoseconds.
    pub(super) at: u64,
    /// On which way.
    pub(super) way: usize,
    /// The packet's number among those of the way.
    pub(super) number: u32,
    /// With all headers.
    pub(super) bytes: u32,
}

/// A packet that arrived.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Arrival {
    pub(super) at: u64,
    pub(super) sent: Sent,
    /// True if it overtook another somewhere.
    pub(super) ahead: bool,
    pub(super) damage: Damage,
}

impl World {
    /// The ports and ways of `routes`, as links are now. `mtu` is a network's.
    pub(super) fn of(links: &LinkReport, routes: &[Route], mtu: &dyn Fn(Place) -> u32) -> Self {
        let mut world = Self::default();
        for route in routes {
            let way = world.way(links, route, mtu);
            world.ways.push(way);
        }
        world
    }

    fn way(&mut self, links: &LinkReport, route: &Route, mtu: &dyn Fn(Place) -> u32) -> Way {
        let find = |place: Place| links.interfaces.iter().find(|at| (at.node, at.slot) == place);
        let parted = |a: NodeId, b: NodeId| {
            links.partitions.iter().any(|groups| {
                let group = |node: NodeId| groups.iter().position(|group| group.contains(&node));
                matches!((group(a), group(b)), (Some(a), Some(b)) if a != b)
            })
        };
        let (origin, target) = (route.from().0, route.to().0);
        let mut way = Way::default();
        let mut made = Vec::new();
        for (number, &Hop { from, to }) in route.hops.iter().enumerate() {
            // A rule between nodes is about the receiver's address on the network: only the last hop has it.
            let peer = (number + 1 == route.hops.len()).then_some(target);
            if let Some(at) = find(from) {
                way.closed |= at.cut;
                made.push(self.add(&mut way, &at.egress, (from, Direction::Egress), peer, mtu(from)));
            }
            if let Some(at) = find(to) {
                way.closed |= at.cut;
                made.push(self.add(&mut way, &at.ingress, (to, Direction::Ingress), None, mtu(to)));
            }
            // Gates compare their node with the other end's address.
            way.closed |= parted(from.0, target) || parted(origin, to.0);
        }
        made.retain(|by| *by != condition::Mechanism::Native);
        let names: Vec<String> = made.iter().map(ToString::to_string).collect();
        way.mechanism = if names.is_empty() { "native".to_owned() } else { names.join(", ") };
        way
    }

    fn add(
        &mut self,
        way: &mut Way,
        report: &DirectionReport,
        at: (Place, Direction),
        peer: Option<NodeId>,
        mtu: u32,
    ) -> condition::Mechanism {
        let own = peer.and_then(|node| report.peers.iter().find(|peer| peer.node == node));
        let asked = own.map_or(&report.now, |peer| &peer.conditions);
        let mechanism = match report.mechanism {
            condition::Mechanism::Native => return report.mechanism,
            condition::Mechanism::Gate if asked.is_natural() => return report.mechanism,
            condition::Mechanism::Gate => Mechanism::Closed,
            condition::Mechanism::Wire => {
                let peers = report.peers.iter().map(|peer| Peer {
                    addresses: vec![address(peer.node)],
                    seed: [0; 32],
                    conditions: peer.own.clone(),
                });
                let (all, peers) = (report.now.clone(), peers.collect());
                Mechanism::Wire(Box::new(Spec { direction: at.1, seed: [0; 32], all, peers, mtu }))
            }
            condition::Mechanism::Netem => Mechanism::of(Shape::netem(&report.now, mtu, [0; 32])),
            condition::Mechanism::Tbf => Mechanism::of(Shape::tbf(&report.now, mtu)),
        };
        let port = self.ports.iter().position(|port| port.at == at).unwrap_or_else(|| {
            self.ports.push(Port { at, mechanism });
            self.ports.len() - 1
        });
        way.ports.push((port, own.map(|peer| address(peer.node))));
        way.asked.push(asked.clone());
        if let Some(rate) = own.and_then(|own| own.own.rate) {
            // Beside the pair's own, the interface's holds.
            let slower = report.now.rate.filter(|all| *all < rate);
            if let (Some(slower), Some(last)) = (slower, way.asked.last_mut()) {
                last.rate = Some(slower);
            }
        }
        report.mechanism
    }

    /// How many of the ways pass a port that way `of` passes too and that has a rate.
    pub(super) fn sharing(&self, of: usize) -> usize {
        let mine = self.ways[of].ports.iter().zip(&self.ways[of].asked).filter(|(_, asked)| asked.rate.is_some());
        let ports: Vec<usize> = mine.map(|((port, _), _)| *port).collect();
        let passes = |way: &&Way| way.ports.iter().any(|(port, _)| ports.contains(port));
        self.ways.iter().filter(passes).count().max(1)
    }

    /// Bytes that token buckets on a way let pass at once.
    pub(super) fn burst(&self, way: usize) -> u32 {
        let of = |&(port, _): &(usize, Option<IpAddr>)| match &self.ports[port].mechanism {
            Mechanism::Tbf(tbf) => tbf.burst,
            _ => 0,
        };
        self.ways[way].ports.iter().map(of).max().unwrap_or(0)
    }

    /// Packets of this size that may wait on a way that is asked for a `queue`; the fewest, where there are several.
    pub(super) fn queued(&self, way: usize, bytes: usize) -> Option<u32> {
        let Way { ports, asked, .. } = &self.ways[way];
        let of = |((port, _), asked): (&(usize, Option<IpAddr>), &LinkConditions)| {
            let queue = asked.queue?;
            match &self.ports[*port].mechanism {
                // A token bucket counts bytes.
                Mechanism::Tbf(tbf) => Some(tbf.limit / u32::try_from(bytes).unwrap_or(u32::MAX).max(1)),
                _ => Some(queue),
            }
        };
        ports.iter().zip(asked).filter_map(of).min()
    }

    /// Whether chance has a part in any condition.
    pub(super) fn is_random(&self) -> bool {
        self.ways.iter().flat_map(|way| &way.asked).any(is_random)
    }

    /// Passes packets through the ports, in the order in which they are sent. Tells of arrivals in the order of their
    /// times.
    pub(super) fn simulate(&self, seed: u64, late: u64, sent: &[Sent], arrive: &mut dyn FnMut(Arrival)) {
        let mut models: Vec<Model> = self
            .ports
            .iter()
            .zip(1..)
            .map(|(port, number)| Model::new(&port.mechanism, seed ^ (number << 40), late))
            .collect();
        let mut flying: BinaryHeap<Reverse<Flying>> = BinaryHeap::new();
        let mut out = Vec::new();
        let (mut next, mut order) = (sent.iter().peekable(), 0);
        loop {
            let packet = match (next.peek(), flying.peek()) {
                (Some(sent), Some(Reverse(first))) if first.at <= sent.at => flying.pop().map(|Reverse(first)| first),
                (Some(_), _) => next.next().map(|&sent| Flying::new(sent)),
                (None, _) => flying.pop().map(|Reverse(first)| first),
            };
            let Some(packet) = packet else { return };
            let way = &self.ways[packet.sent.way];
            if way.closed {
                continue;
            }
            let Some(&(port, peer)) = way.ports.get(packet.passed) else {
                let Flying { at, sent, ahead, damage, .. } = packet;
                arrive(Arrival { at, sent, ahead, damage });
                continue;
            };
            models[port].pass(packet.at, packet.sent.bytes, peer, &mut out);
            for Out { due, ahead, damage } in out.drain(..) {
                order += 1;
                flying.push(Reverse(Flying {
                    at: due,
                    order,
                    passed: packet.passed + 1,
                    sent: packet.sent,
                    ahead: packet.ahead || ahead,
                    damage: if damage == Damage::None { packet.damage } else { damage },
                }));
            }
        }
    }
}

/// A packet between two ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flying {
    at: u64,
    order: u64,
    passed: usize,
    sent: Sent,
    ahead: bool,
    damage: Damage,
}

impl Flying {
    fn new(sent: Sent) -> Self {
        Self { at: sent.at, order: 0, passed: 0, sent, ahead: false, damage: Damage::None }
    }
}

impl Ord for Flying {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Mechanism {
    fn of(shape: Shape) -> Self {
        match shape {
            Shape::Tbf(tbf) => Self::Tbf(tbf),
            // The bucket above netem holds nothing back.
            Shape::Netem(_, netem) => {
                let table = netem.distribution.filter(|_| !netem.jitter.is_zero()).map(|shape| shape.table().into());
                Self::Netem(netem, table)
            }
        }
    }
}

/// A name for a node that a model can tell: it need not be the address that it has.
fn address(node: NodeId) -> IpAddr {
    Ipv4Addr::from(u32::try_from(node.index()).unwrap_or(u32::MAX)).into()
}

fn is_set(share: Option<Fraction>) -> bool {
    share.is_some_and(|share| share.0 > 0.0)
}

fn is_random(conditions: &LinkConditions) -> bool {
    loses(conditions) || conditions.jitter.is_some() || is_set(conditions.duplicate) || is_set(conditions.reorder)
}

/// Whether packets vanish, other than from a full queue.
pub(super) fn loses(conditions: &LinkConditions) -> bool {
    let lost = match conditions.loss {
        None => false,
        Some(Loss::Random(share)) => share.0 > 0.0,
        Some(_) => true,
    };
    lost || is_set(conditions.corrupt)
}
