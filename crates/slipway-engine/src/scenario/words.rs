//! Events in words, for the log and for people.

use std::collections::BTreeSet;
use std::time::SystemTime;

use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_lab::scenario::{Action, LinkAction, Order, Schedule};

/// A word for what an action does, the same for like actions.
#[must_use]
pub fn kind(action: &Action) -> &'static str {
    match action {
        Action::Order(Order::Links(action)) => match action {
            LinkAction::Link { .. } => "link",
            LinkAction::Pair(_) => "pair",
            LinkAction::Cut { .. } => "cut",
            LinkAction::Heal { .. } => "heal",
            LinkAction::Partition { .. } => "partition",
            LinkAction::Join => "join",
        },
        Action::Order(Order::Node { .. }) => "node",
        Action::Order(Order::Kill { .. }) => "kill",
        Action::Order(Order::Start { .. }) => "start",
        Action::Order(Order::Freeze { .. }) => "freeze",
        Action::Order(Order::Thaw { .. }) => "thaw",
        Action::Restore { .. } => "restore",
        Action::Run { .. } => "run",
    }
}

/// The nodes that an action is about, in order.
#[must_use]
pub fn nodes(schedule: &Schedule, action: &Action) -> Vec<NodeId> {
    let nodes: BTreeSet<NodeId> = match action {
        Action::Order(Order::Links(action)) => action.nodes(),
        Action::Order(order) => order.nodes().iter().copied().collect(),
        Action::Run { nodes, .. } => nodes.iter().copied().collect(),
        Action::Restore { event } => match schedule.events.get(*event) {
            // Of a restore it would be itself; a schedule has none of those.
            Some(event) if !matches!(event.action, Action::Restore { .. }) => {
                return self::nodes(schedule, &event.action);
            }
            _ => BTreeSet::new(),
        },
    };
    nodes.into_iter().collect()
}

/// What an action does, in words.
#[must_use]
pub fn what(lab: &Lab, schedule: &Schedule, action: &Action) -> String {
    let Action::Restore { event } = action else { return action.words(lab) };
    match schedule.events.get(*event).map(|event| &event.action) {
        Some(restored) if !matches!(restored, Action::Restore { .. }) => {
            format!("end of event {event}: {}", restored.words(lab))
        }
        _ => format!("end of event {event}"),
    }
}

/// RFC 3339 with nanoseconds, UTC.
pub(super) fn wall(time: SystemTime) -> String {
    humantime::format_rfc3339_nanos(time).to_string()
}
