//! Hosts on machines, by the room that their nodes need.

use slipway_document::errors::Report;

use super::host::Hosts;
use super::room::{Need, Room, emptiest};
use crate::id::{HostId, List, MachineId};
use crate::model::{Machine, Node};

/// Puts the hosts that are on no machine yet where most room is for their nodes, and checks that all machines have enough.
pub(super) fn balance(machines: &List<MachineId, Machine>, hosts: &mut Hosts, nodes: &[Node], report: &mut Report) {
    if machines.is_empty() || hosts.machine {
        return;
    }
    let mut rooms = Room::of(machines);
    let mut needs: List<HostId, Need> = vec![Need::default(); hosts.list.len()].into();
    for node in nodes {
        needs[node.host] = needs[node.host].plus(Need::of(&node.limits));
    }
    for (host, machine) in hosts.placed.enumerate() {
        if let Some(machine) = machine {
            rooms[*machine].take(needs[host]);
        }
    }
    for (host, _) in hosts.placed.enumerate().filter(|(_, machine)| machine.is_none()) {
        // Hosts with nothing to do go to machines without one.
        let found = emptiest(&rooms, needs[host]).unwrap_or_else(|| {
            let message = format!("no machine has room for host `{}`: {}", hosts.list[host].name, needs[host]);
            report.add(hosts.at, message, "lower the limits of its nodes, or make more hosts with fewer nodes each");
            MachineId::default()
        });
        rooms[found].take(needs[host]);
        hosts.list[host].machine = found;
    }
    let full = rooms.enumerate().find(|(_, room)| !room.fits(Need::default()));
    if let Some((at, room)) = full.filter(|_| report.is_empty()) {
        let message =
            format!("machine `{}` offers {}, and its nodes may take {}", machines[at].name, room.offer(), room.taken());
        report.add(hosts.at, message, "lower the limits of nodes, or place some on another machine");
    }
    let idle = machines.enumerate().find(|&(machine, _)| hosts.list.iter().all(|host| host.machine != machine));
    if let Some((_, idle)) = idle {
        let help = "give each machine a host, or leave the machine out";
        report.add(hosts.at, format!("machine `{}` has no host", idle.name), help);
    }
}
