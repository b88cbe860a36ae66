//! Changes of links. Scenarios, commands and other programs order them alike.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::change::LinkChange;
use crate::id::{NetworkId, NodeId};

/// A node's place on a network: the node, and the index of its interface.
pub type Port = (NodeId, usize);

/// A direction of an interface, seen from its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Packets that the node sends.
    Egress,
    /// Packets that it receives.
    Ingress,
}

/// A change of links. Nodes and networks are ids of the lab's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkAction {
    /// Changes conditions of interfaces.
    Link {
        /// The interfaces.
        interfaces: Vec<Port>,
        /// The direction of the packets.
        direction: Direction,
        /// The new conditions.
        change: LinkChange,
    },
    /// Changes conditions of packets that some nodes send to others. A key that is cleared is again that of the sender's interface.
    Pair(Pair),
    /// Nothing passes these interfaces any more, either way; nobody is told.
    Cut {
        /// The interfaces.
        interfaces: Vec<Port>,
    },
    /// Ends cuts.
    Heal {
        /// The interfaces.
        interfaces: Vec<Port>,
    },
    /// Nodes of different groups no longer reach each other.
    Partition {
        /// The groups. A node in none of them reaches all.
        groups: Groups,
    },
    /// Ends every partition.
    Join,
}

/// The groups of a partition.
pub type Groups = Vec<Vec<NodeId>>;

/// A change of conditions of packets that some nodes send to others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Senders.
    pub from: Vec<NodeId>,
    /// Receivers.
    pub to: Vec<NodeId>,
    /// The network; `None` for all that both are on.
    pub network: Option<NetworkId>,
    /// The new conditions.
    pub change: LinkChange,
}

impl Pair {
    /// Whether it is about what this node sends on this network. Its senders are in order.
    #[must_use]
    pub fn is_from(&self, node: NodeId, network: NetworkId) -> bool {
        self.network.is_none_or(|only| only == network) && self.from.binary_search(&node).is_ok()
    }
}

impl LinkAction {
    /// The same, its lists in order: they are searched for every interface that anything else changes.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        match &mut self {
            Self::Link { interfaces, .. } | Self::Cut { interfaces } | Self::Heal { interfaces } => {
                interfaces.sort_unstable();
            }
            Self::Pair(pair) => {
                pair.from.sort_unstable();
                pair.to.sort_unstable();
            }
            Self::Partition { .. } | Self::Join => {}
        }
        self
    }

    /// The interfaces that it names.
    #[must_use]
    pub fn interfaces(&self) -> &[Port] {
        match self {
            Self::Link { interfaces, .. } | Self::Cut { interfaces } | Self::Heal { interfaces } => interfaces,
            Self::Pair(_) | Self::Partition { .. } | Self::Join => &[],
        }
    }

    /// How many interfaces, nodes of groups or ends of pairs it is about.
    pub(crate) fn targets(&self) -> usize {
        match self {
            Self::Link { interfaces, .. } | Self::Cut { interfaces } | Self::Heal { interfaces } => interfaces.len(),
            Self::Pair(Pair { from, to, .. }) => from.len() + to.len(),
            Self::Partition { groups } => groups.iter().map(Vec::len).sum(),
            Self::Join => 0,
        }
    }

    /// The nodes whose links it is about, in order. None are named by the end of all partitions.
    #[must_use]
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        match self {
            Self::Link { interfaces, .. } | Self::Cut { interfaces } | Self::Heal { interfaces } => {
                interfaces.iter().map(|&(node, _)| node).collect()
            }
            Self::Pair(Pair { from, to, .. }) => from.iter().chain(to).copied().collect(),
            Self::Partition { groups } => groups.iter().flatten().copied().collect(),
            Self::Join => BTreeSet::new(),
        }
    }
}

impl Direction {
    /// For so many.
    pub(crate) fn verb(self, count: usize) -> &'static str {
        match (self, count) {
            (Self::Egress, 1) => "sends",
            (Self::Egress, _) => "send",
            (Self::Ingress, 1) => "receives",
            (Self::Ingress, _) => "receive",
        }
    }
}
