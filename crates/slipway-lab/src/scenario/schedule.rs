//! The schedule: every event that follows from a scenario and a seed.

use serde::{Deserialize, Serialize};

use crate::change::{LinkChange, NodeChange};
use crate::units::Seconds;

/// Nanoseconds since the scenario began. Integers, so that a schedule prints the same on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Due(pub u64);

/// Every event of a scenario, in the order in which they are due; those due together in file order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The seed that it was drawn with.
    pub seed: u64,
    /// When the scenario is over, which may be later than its last event.
    pub length: Due,
    /// The events.
    pub events: Vec<Event>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Position in the schedule, from 0: what the log calls it.
    pub number: usize,
    /// When it is due.
    pub due: Due,
    /// Which entry of the scenario's `events` it came from, from 0.
    pub entry: usize,
    /// What happens.
    pub action: Action,
}

/// What an event does. Nodes, networks and interfaces are indices into the lab; an interface is a node and its slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Changes conditions of interfaces.
    Link {
        /// Which.
        interfaces: Vec<(usize, usize)>,
        /// Of which direction.
        direction: Direction,
        /// What changes.
        change: LinkChange,
    },
    /// Changes conditions between nodes.
    Pair {
        /// Senders.
        from: Vec<usize>,
        /// Receivers.
        to: Vec<usize>,
        /// The network; `None` for all that both are on.
        network: Option<usize>,
        /// What changes.
        change: LinkChange,
    },
    /// Changes what nodes may use.
    Node {
        /// Which.
        nodes: Vec<usize>,
        /// What changes.
        change: NodeChange,
    },
    /// Takes everything off the wire that interfaces send or receive; nobody is told.
    Cut {
        /// Which.
        interfaces: Vec<(usize, usize)>,
    },
    /// Ends a cut.
    Heal {
        /// Which.
        interfaces: Vec<(usize, usize)>,
    },
    /// Nodes of different groups no longer reach each other.
    Partition {
        /// The groups, as indices of nodes. A node in none of them reaches all.
        groups: Vec<Vec<usize>>,
    },
    /// Ends every partition.
    Join,
    /// Ends nodes.
    Kill {
        /// Which.
        nodes: Vec<usize>,
        /// How.
        how: Kill,
    },
    /// Starts nodes that are stopped or dead.
    Start {
        /// Which.
        nodes: Vec<usize>,
    },
    /// Stops every process of nodes where it stands.
    Freeze {
        /// Which.
        nodes: Vec<usize>,
    },
    /// Lets frozen nodes go on.
    Thaw {
        /// Which.
        nodes: Vec<usize>,
    },
    /// Takes back what an earlier event changed, whose time (`for`) is over.
    Restore {
        /// The number of that event.
        event: usize,
    },
    /// Runs a program in nodes, and does not wait for it.
    Run {
        /// Which.
        nodes: Vec<usize>,
        /// argv.
        command: Vec<String>,
    },
}

/// A direction of an interface, seen from its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// What the node sends.
    Egress,
    /// What it receives.
    Ingress,
}

/// How a node ends.
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

impl Action {
    /// How many nodes, interfaces or pairs' ends it is about.
    pub(super) fn targets(&self) -> usize {
        match self {
            Self::Link { interfaces, .. } | Self::Cut { interfaces } | Self::Heal { interfaces } => interfaces.len(),
            Self::Pair { from, to, .. } => from.len() + to.len(),
            Self::Partition { groups } => groups.iter().map(Vec::len).sum(),
            Self::Node { nodes, .. }
            | Self::Kill { nodes, .. }
            | Self::Start { nodes }
            | Self::Freeze { nodes }
            | Self::Thaw { nodes }
            | Self::Run { nodes, .. } => nodes.len(),
            Self::Join | Self::Restore { .. } => 0,
        }
    }
}

impl Direction {
    /// For so many.
    pub(super) fn verb(self, count: usize) -> &'static str {
        match (self, count) {
            (Self::Egress, 1) => "sends",
            (Self::Egress, _) => "send",
            (Self::Ingress, 1) => "receives",
            (Self::Ingress, _) => "receive",
        }
    }
}
