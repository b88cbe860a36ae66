//! The anchor's report on links.

use std::collections::{BTreeMap, BTreeSet};

use slipway_lab::change::Keys as _;
use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_wire::PortStats;

use super::choose::Mechanism;
use super::interface::{Interface, port};
use super::links::Links;
use super::live::Place;
use super::plan::{BOTH, Plan};
use super::report::{DirectionReport, InterfaceReport, LinkReport, PeerReport};

impl Links {
    /// Nodes at whose interfaces something happens to packets, or will soon: a connection of theirs is better made now where
    /// it can stay then.
    pub(crate) fn altered(&self) -> BTreeSet<NodeId> {
        let is_altered = |made: &Interface| {
            let Plan { ways, cut, side, .. } = &made.plan;
            *cut || side.iter().any(|&group| group != 0)
                || ways.iter().any(|way| way.choice.mechanism != Mechanism::Native)
        };
        let altered = self.interfaces.iter().filter(|(_, made)| is_altered(made));
        altered.map(|(&(node, _), _)| node).chain(self.coming.iter().copied()).collect()
    }

    /// How links are now.
    pub(crate) fn report(&mut self, lab: &Lab) -> LinkReport {
        let stats = self.wire.as_mut().and_then(|wire| wire.stats().ok()).unwrap_or_default();
        let stats: BTreeMap<u32, PortStats> = stats.into_iter().map(|of| (of.port, of)).collect();
        LinkReport {
            wire: self.wire_state,
            overlays: self.live.overlays(),
            partitions: self.lanes.iter().flatten().cloned().collect(),
            interfaces: self.interfaces.iter().map(|(&place, made)| interface(lab, place, made, &stats)).collect(),
        }
    }
}

fn interface(lab: &Lab, (node, slot): Place, made: &Interface, stats: &BTreeMap<u32, PortStats>) -> InterfaceReport {
    let asked = &lab.nodes[node].interfaces[slot].conditions;
    let [egress, ingress] = [(0, &asked.egress), (1, &asked.ingress)].map(|(at, asked)| {
        let way = &made.plan.ways[at];
        DirectionReport {
            asked: asked.clone(),
            now: way.all.clone(),
            peers: way
                .peers
                .iter()
                .map(|(&node, peer)| PeerReport { node, conditions: peer.over(&way.all), own: peer.clone() })
                .collect(),
            mechanism: way.choice.mechanism,
            why: way.choice.why.to_owned(),
            statistics: stats.get(&port(made.number, BOTH[at])).cloned(),
        }
    });
    let parted = made.plan.side.iter().any(|&group| group != 0);
    InterfaceReport { node, slot, cut: made.plan.cut, parted, egress, ingress }
}
