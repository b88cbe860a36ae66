//! How links are now, for people and records.

use serde::{Deserialize, Serialize};
use slipway_lab::condition::LinkConditions;
use slipway_lab::id::NodeId;
use slipway_lab::scenario::Groups;
use slipway_wire::PortStats;

use super::choose::Mechanism;

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

impl LinkReport {
    /// Adds another machine's report: the links of `its` nodes. Partitions and overlays are the same on all machines.
    pub fn join(&mut self, there: Self, its: impl Fn(NodeId) -> bool) {
        self.interfaces.retain(|interface| !its(interface.node));
        self.interfaces.extend(there.interfaces.into_iter().filter(|interface| its(interface.node)));
        self.interfaces.sort_by_key(|interface| (interface.node, interface.slot));
        self.wire = match (self.wire, there.wire) {
            (WireState::Dead, _) | (_, WireState::Dead) => WireState::Dead,
            (WireState::Running, _) | (_, WireState::Running) => WireState::Running,
            _ => WireState::Unused,
        };
    }
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
    /// The node.
    pub node: NodeId,
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
    /// The node.
    pub node: NodeId,
    /// What holds.
    pub conditions: LinkConditions,
    /// The pair's own part of `conditions`. A rate in it is in addition to the interface's.
    #[serde(default)]
    pub own: LinkConditions,
}
