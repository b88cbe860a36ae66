//! How links are now, for people and records.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use slipway_lab::change::Keys as _;
use slipway_lab::condition::LinkConditions;
use slipway_lab::model::Lab;
use slipway_lab::scenario::Groups;
use slipway_wire::PortStats;

use super::choose::Mechanism;
use super::links::Links;
use super::live::Place;
use super::make::{Interface, port};
use super::plan::{BOTH, Plan};

/// A lab's links, as far as they differ from the machine's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The lab's wire.
    pub wire: WireState,
    /// Numbers of the changes that hold for a time.
    pub overlays: Vec<usize>,
    /// Partitions that hold, as groups of nodes' indices.
    pub partitions: Vec<Groups>,
    /// Interfaces that have conditions, or differ from the lab file.
    pub interfaces: Vec<InterfaceReport>,
}

/// The process that carries frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireState {
    /// Nothing has needed it.
    #[default]
    Unused,
    /// It runs.
    Running,
    /// It ended by itself: links that take it are silent until conditions are set again.
    Dead,
}

/// An interface's conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// Index of the node.
    pub node: usize,
    /// Position of the interface among the node's.
    pub slot: usize,
    /// Nothing passes.
    pub cut: bool,
    /// The node is in a partition.
    pub parted: bool,
    /// Of what the node sends.
    pub egress: DirectionReport,
    /// Of what it receives.
    pub ingress: DirectionReport,
}

/// The conditions of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// What the lab file asks for.
    pub asked: LinkConditions,
    /// What holds.
    pub now: LinkConditions,
    /// What holds for packets to some nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerReport>,
    /// What makes it.
    pub mechanism: Mechanism,
    /// Why this mechanism.
    pub why: String,
    /// What the wire counted, where it runs and carries this direction or did.
    pub statistics: Option<PortStats>,
}

/// Conditions of packets to one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerReport {
    /// Index of the node.
    pub node: usize,
    /// What holds.
    pub conditions: LinkConditions,
    /// The pair's own part of `conditions`. A rate in it is in addition to the interface's.
    #[serde(default)]
    pub own: LinkConditions,
}

impl Links {
    /// Nodes at whose interfaces something happens to packets, or will soon: a connection of theirs is better made now where
    /// it can stay then.
    pub(crate) fn altered(&self) -> BTreeSet<usize> {
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
