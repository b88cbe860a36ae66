//! Events in words, for the log and for people.

use std::collections::BTreeSet;
use std::time::SystemTime;

use slipway_lab::model::Lab;
use slipway_lab::scenario::{Action, Direction, Kill, Schedule};

/// A word for what an action does, the same for like actions.
#[must_use]
pub fn kind(action: &Action) -> &'static str {
    match action {
        Action::Link { .. } => "link",
        Action::Pair { .. } => "pair",
        Action::Node { .. } => "node",
        Action::Cut { .. } => "cut",
        Action::Heal { .. } => "heal",
        Action::Partition { .. } => "partition",
        Action::Join => "join",
        Action::Kill { .. } => "kill",
        Action::Start { .. } => "start",
        Action::Freeze { .. } => "freeze",
        Action::Thaw { .. } => "thaw",
        Action::Restore { .. } => "restore",
        Action::Run { .. } => "run",
    }
}

/// The nodes that an action is about, in order.
#[must_use]
pub fn nodes(schedule: &Schedule, action: &Action) -> Vec<usize> {
    let nodes: BTreeSet<usize> = match action {
        Action::Link { interfaces, .. } | Action::Cut { interfaces } | Action::Heal { interfaces } => {
            interfaces.iter().map(|(node, _)| *node).collect()
        }
        Action::Pair { from, to, .. } => from.iter().chain(to).copied().collect(),
        Action::Node { nodes, .. }
        | Action::Kill { nodes, .. }
        | Action::Start { nodes }
        | Action::Freeze { nodes }
        | Action::Thaw { nodes }
        | Action::Run { nodes, .. } => nodes.iter().copied().collect(),
        Action::Partition { groups } => groups.iter().flatten().copied().collect(),
        Action::Join => BTreeSet::new(),
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

/// What an action does.
#[must_use]
pub fn what(lab: &Lab, schedule: &Schedule, action: &Action) -> String {
    let interfaces = |interfaces: &[(usize, usize)]| {
        let names = interfaces.iter().map(|&(node, slot)| {
            let node = &lab.nodes[node];
            format!("{}:{}", node.name, node.interfaces[slot].name)
        });
        list(names.collect())
    };
    let names = |nodes: &[usize]| list(nodes.iter().map(|&node| lab.nodes[node].name.clone()).collect());
    match action {
        Action::Link { interfaces: which, direction, change } => {
            let direction = match direction {
                Direction::Egress => "egress",
                Direction::Ingress => "ingress",
            };
            format!("set {} {direction} {}", interfaces(which), change)
        }
        Action::Pair { from, to, change, .. } => {
            format!("set {} to {} {}", names(from), names(to), change)
        }
        Action::Node { nodes, change } => format!("set {} {}", names(nodes), change),
        Action::Cut { interfaces: which } => format!("cut {}", interfaces(which)),
        Action::Heal { interfaces: which } => format!("heal {}", interfaces(which)),
        Action::Partition { groups } => {
            let groups: Vec<String> = groups.iter().map(|group| names(group)).collect();
            format!("partition {}", groups.join(" | "))
        }
        Action::Join => "join".to_owned(),
        Action::Kill { nodes, how } => match how {
            Kill::Graceful { grace } => format!("kill {} gracefully, {grace} of grace", names(nodes)),
            Kill::Soft => format!("kill {} softly", names(nodes)),
            Kill::Hard => format!("kill {} hard", names(nodes)),
        },
        Action::Start { nodes } => format!("start {}", names(nodes)),
        Action::Freeze { nodes } => format!("freeze {}", names(nodes)),
        Action::Thaw { nodes } => format!("thaw {}", names(nodes)),
        Action::Run { nodes, command } => format!("run {} in {}", command.join(" "), names(nodes)),
        Action::Restore { event } => match schedule.events.get(*event).map(|event| &event.action) {
            Some(restored) if !matches!(restored, Action::Restore { .. }) => {
                format!("end of {event}: {}", what(lab, schedule, restored))
            }
            _ => format!("end of {event}"),
        },
    }
}

/// Enough names to know what is meant.
fn list(mut names: Vec<String>) -> String {
    const SHOWN: usize = 8;
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let names = names.join(",");
    if more > 0 { format!("{names} and {more} more") } else { names }
}

/// RFC 3339 with nanoseconds, UTC.
pub(super) fn wall(time: SystemTime) -> String {
    humantime::format_rfc3339_nanos(time).to_string()
}
