//! The schedule: every event that follows from a scenario and a seed.

use serde::{Deserialize, Serialize};

use super::link::LinkAction;
use super::order::Order;
use crate::id::NodeId;

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
    /// The action of the event.
    pub action: Action,
}

/// The action of an event.
#[expect(clippy::large_enum_variant, reason = "nearly every one is an order")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Takes back what an earlier event changed, whose time (`for`) is over.
    Restore {
        /// The number of that event.
        event: usize,
    },
    /// Runs a program in nodes, and does not wait for it.
    Run {
        /// The nodes.
        nodes: Vec<NodeId>,
        /// argv.
        command: Vec<String>,
    },
    /// Changes the lab. Written without a word of its own.
    #[serde(untagged)]
    Order(Order),
}

impl From<Order> for Action {
    fn from(order: Order) -> Self {
        Self::Order(order)
    }
}

impl From<LinkAction> for Action {
    fn from(action: LinkAction) -> Self {
        Self::Order(Order::Links(action))
    }
}

impl Action {
    /// How many nodes, interfaces or pairs' ends it is about.
    pub(crate) fn targets(&self) -> usize {
        match self {
            Self::Order(order) => order.targets(),
            Self::Run { nodes, .. } => nodes.len(),
            Self::Restore { .. } => 0,
        }
    }
}
