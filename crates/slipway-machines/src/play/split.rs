//! The part of a schedule that a machine plays.

use std::collections::BTreeSet;

use slipway_engine::scenario::nodes;
use slipway_lab::id::{MachineId, NodeId};
use slipway_lab::model::Lab;
use slipway_lab::scenario::{Action, Event, Schedule};

/// The same schedule about the nodes of one machine. Events keep their numbers. One about nodes of other machines has none
/// left, and nothing to do. Changes of links stay whole: a machine makes them at its own interfaces.
pub(super) fn own(schedule: &Schedule, lab: &Lab, here: MachineId) -> Schedule {
    let is_here = |node: NodeId| lab.machine_of(node) == here;
    let action = |action: &Action| match action {
        Action::Restore { event } => Action::Restore { event: *event },
        Action::Run { nodes, command } => Action::Run {
            nodes: nodes.iter().copied().filter(|&node| is_here(node)).collect(),
            command: command.clone(),
        },
        Action::Order(order) => Action::Order(order.clone().only(is_here)),
    };
    let events = schedule.events.iter().map(|event| Event { action: action(&event.action), ..*event }).collect();
    Schedule { events, ..*schedule }
}

/// The machines that carry an event out: those of its nodes; all where it names none, as the end of partitions.
pub(super) fn concerned(schedule: &Schedule, lab: &Lab, action: &Action) -> BTreeSet<MachineId> {
    let named: BTreeSet<MachineId> = nodes(schedule, action).into_iter().map(|node| lab.machine_of(node)).collect();
    if named.is_empty() { lab.machines.ids().collect() } else { named }
}

#[cfg(test)]
mod tests {
    use slipway_lab::scenario::{Due, Kill, LinkAction, Order};

    use super::*;

    const FILE: &str = "machines: {a: 192.0.2.1, b: 192.0.2.2}\nnodes: {n: {count: 3}}\n";

    #[test]
    fn a_machine_plays_what_is_about_its_nodes() {
        let lab = slipway_lab::parse("lab.yaml", FILE, std::path::Path::new("/")).unwrap();
        let all: Vec<NodeId> = lab.nodes.ids().collect();
        let event = |number, action| Event { number, due: Due(5), entry: 0, action };
        let events = vec![
            event(0, Order::Kill { nodes: all.clone(), how: Kill::Soft }.into()),
            event(1, Action::Run { nodes: vec![NodeId(1)], command: vec!["true".to_owned()] }),
            event(2, LinkAction::Join.into()),
            event(3, Action::Restore { event: 1 }),
        ];
        let schedule = Schedule { seed: 1, length: Due(9), events };
        let (a, b) = (MachineId(0), MachineId(1));
        let here = own(&schedule, &lab, a);
        assert_eq!(
            here.events[0].action,
            Action::from(Order::Kill { nodes: vec![NodeId(0), NodeId(2)], how: Kill::Soft })
        );
        assert_eq!(here.events[1].action, Action::Run { nodes: Vec::new(), command: vec!["true".to_owned()] });
        assert_eq!(here.events[2..], schedule.events[2..]);
        let of = |number: usize| -> Vec<MachineId> {
            concerned(&schedule, &lab, &schedule.events[number].action).into_iter().collect()
        };
        assert_eq!((of(0), of(1), of(2), of(3)), (vec![a, b], vec![b], vec![a, b], vec![b]));
    }
}
