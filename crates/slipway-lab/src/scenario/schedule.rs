//! The schedule: every event that follows from a scenario and a seed.

use serde::{Deserialize, Serialize};

use super::link::LinkAction;
use crate::change::NodeChange;
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
    /// The time at which it is due.
    pub due: Due,
    /// The index of its entry in the scenario's `events`, from 0.
    pub entry: usize,
    /// The change.
    pub action: Action,
}

/// The change that an event makes. Nodes, networks and interfaces are indices into the lab; an interface is a node and
/// its slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Changes what nodes may use.
    Node {
        /// The nodes.
        nodes: Vec<usize>,
        /// The new limits.
        change: NodeChange,
    },
    /// Ends nodes.
    Kill {
        /// The nodes.
        nodes: Vec<usize>,
        /// The kind of failure.
        how: Kill,
    },
    /// Starts nodes that are stopped or dead.
    Start {
        /// The nodes.
        nodes: Vec<usize>,
    },
    /// Stops every process of nodes where it stands.
    Freeze {
        /// The nodes.
        nodes: Vec<usize>,
    },
    /// Lets frozen nodes go on.
    Thaw {
        /// The nodes.
        nodes: Vec<usize>,
    },
    /// Takes back what an earlier event changed, whose time (`for`) is over.
    Restore {
        /// The number of that event.
        event: usize,
    },
    /// Runs a program in nodes, and does not wait for it.
    Run {
        /// The nodes.
        nodes: Vec<usize>,
        /// argv.
        command: Vec<String>,
    },
    /// Changes links. Written without a word of its own.
    #[serde(untagged)]
    Links(LinkAction),
}

impl From<LinkAction> for Action {
    fn from(action: LinkAction) -> Self {
        Self::Links(action)
    }
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

impl Action {
    /// How many nodes, interfaces or pairs' ends it is about.
    pub(super) fn targets(&self) -> usize {
        match self {
            Self::Links(action) => action.targets(),
            Self::Node { nodes, .. }
            | Self::Kill { nodes, .. }
            | Self::Start { nodes }
            | Self::Freeze { nodes }
            | Self::Thaw { nodes }
            | Self::Run { nodes, .. } => nodes.len(),
            Self::Restore { .. } => 0,
        }
    }
}
