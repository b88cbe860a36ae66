//! Orders to a running lab. A command, a scenario, the control protocol and other programs use this one type.

use serde::{Deserialize, Serialize};
use slipway_document::units::Seconds;

use super::link::LinkAction;
use crate::change::NodeChange;
use crate::id::NodeId;

/// A change of a running lab. Nodes and networks are ids of the lab's; an interface is a node and its slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Changes what nodes may use.
    Node {
        /// The nodes.
        nodes: Vec<NodeId>,
        /// The new limits.
        change: NodeChange,
    },
    /// Ends nodes.
    Kill {
        /// The nodes.
        nodes: Vec<NodeId>,
        /// The kind of failure.
        how: Kill,
    },
    /// Starts nodes that are stopped or dead.
    Start {
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// Stops every process of nodes where it stands. Their interfaces pass nothing meanwhile.
    Freeze {
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// Lets frozen nodes go on.
    Thaw {
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// Changes links. Written without a word of its own.
    #[serde(untagged)]
    Links(LinkAction),
}

/// The way in which a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kill {
    /// Its programs get SIGTERM and this long to end; then as soft.
    Graceful {
        /// Grace time.
        grace: Seconds,
    },
    /// Every process is ended at once; the kernel closes their connections, and peers see resets.
    Soft,
    /// The links go silent first: no packet leaves, and peers see nothing at all. Then it is gone.
    Hard,
}

impl Order {
    /// The nodes that it names; none where it names interfaces, groups or pairs.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        match self {
            Self::Node { nodes, .. }
            | Self::Kill { nodes, .. }
            | Self::Start { nodes }
            | Self::Freeze { nodes }
            | Self::Thaw { nodes } => nodes,
            Self::Links(_) => &[],
        }
    }

    /// The same order about those nodes alone that `fits` says. Orders about links stay whole: what has no end here is left
    /// alone.
    #[must_use]
    pub fn only(mut self, fits: impl Fn(NodeId) -> bool) -> Self {
        match &mut self {
            Self::Node { nodes, .. }
            | Self::Kill { nodes, .. }
            | Self::Start { nodes }
            | Self::Freeze { nodes }
            | Self::Thaw { nodes } => nodes.retain(|&node| fits(node)),
            Self::Links(_) => {}
        }
        self
    }

    /// How many nodes, interfaces or pairs' ends it is about.
    pub(crate) fn targets(&self) -> usize {
        match self {
            Self::Links(action) => action.targets(),
            others => others.nodes().len(),
        }
    }
}

impl From<LinkAction> for Order {
    fn from(action: LinkAction) -> Self {
        Self::Links(action)
    }
}
