//! The anchor's report on links.

use std::collections::BTreeMap;

use slipway_lab::change::Keys as _;
use slipway_lab::model::Lab;
use slipway_wire::PortStats;

use super::choose::Mechanism;
use super::interface::{Interface, port};
use super::links::Links;
use super::live::Place;
use super::plan::{BOTH, Plan};
use super::report::{DirectionReport, InterfaceReport, LinkReport, PeerReport};
use crate::bypass::Altered;

impl Links {
    /// Nodes at whose interfaces something happens to packets, or will soon: a connection of theirs is better made now where
    /// it can stay then.
    pub(crate) fn altered(&self, lab: &Lab) -> Altered {
        let mut altered = Altered { nodes: self.coming.keys().copied().collect(), ..Altered::default() };
        altered.shaped.extend(self.coming.iter().filter(|(_, shapes)| **shapes).map(|(&node, _)| node));
        for (&(node, slot), made) in &self.interfaces {
            let Plan { ways, cut, still, side, .. } = &made.plan;
            let is_parted = side.iter().any(|&group| group != 0);
            if *cut || is_parted || ways.iter().any(|way| way.choice.mechanism != Mechanism::Native) {
                altered.nodes.insert(node);
            }
            if ways.iter().any(|way| !way.all.is_natural() || !way.peers.is_empty()) {
                altered.shaped.insert(node);
            }
            if !lab.networks[lab.nodes[node].interfaces[slot].network].bypasses.rdma {
                continue;
            }
            if *cut || *still {
                altered.parted.cut.insert(node);
            }
            if is_parted {
                altered.parted.groups.insert(node, side.to_vec());
            }
        }
        altered
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
