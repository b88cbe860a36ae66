//! Placement of nodes on hosts. A rule of order only: the same file gives the same places everywhere.

use std::ops::RangeFrom;

use slipway_document::errors::Report;

use super::host::Hosts;
use super::node::Group;
use super::room::{Need, Placed, Room};
use crate::file::Placement;
use crate::id::{HostId, List, MachineId, NetworkId};
use crate::model::{DriverKind, Machine, Network, Node};

/// Sets every node's host, and the processors that it has from there. Where machines say what they offer, a node goes to the
/// host that has room for it.
pub(super) fn place(
    rule: Placement,
    groups: &[Group],
    machines: &List<MachineId, Machine>,
    hosts: &Hosts,
    nodes: &mut [Node],
    report: &mut Report,
) {
    let is_free = |group: &&Group| group.host.is_none() && group.spec.needs.is_none();
    let free = groups.iter().filter(is_free).map(|group| group.count).sum::<usize>();
    let run = free.div_ceil(hosts.list.len());
    let mut placed = 0..;
    let mut seats = Seats::new(machines, hosts);
    let hosted = groups.iter().flat_map(|group| std::iter::repeat_n(group.host, group.count));
    for (node, host) in nodes.iter().zip(hosted) {
        if let (Some(host), Some(seats)) = (host, &mut seats) {
            seats.take(host, Need::of(&node.limits));
        }
    }
    let mut rest = nodes;
    for group in groups {
        let (mine, others) = rest.split_at_mut(group.count.min(rest.len()));
        rest = others;
        let suitable = suitable(group, machines, hosts, report);
        let mut own = 0..;
        for node in mine.iter_mut() {
            node.host = group.host.unwrap_or_else(|| {
                let usual = match &suitable {
                    None => HostId(turn(rule, &mut placed, run, hosts.list.len())),
                    Some(some) => some[turn(rule, &mut own, group.count.div_ceil(some.len()), some.len())],
                };
                let Some(seats) = &mut seats else { return usual };
                let need = Need::of(&node.limits);
                let may = |host: HostId| suitable.as_ref().is_none_or(|some| some.contains(&host));
                let found = match rule {
                    Placement::Spread => seats.emptiest(need, may),
                    Placement::Pack => seats.first_from(usual, need, may),
                };
                if found.is_none() && report.is_empty() {
                    let which = if suitable.is_none() { "no machine" } else { "no machine with its labels" };
                    let message = format!("{which} has room for node `{}`: {need}", node.name);
                    report.add(group.name.at, message, "lower the limits of nodes, or add a machine");
                }
                let host = found.unwrap_or(usual);
                seats.take(host, need);
                host
            });
        }
        confine(group, hosts, mine, report);
    }
}

/// The next place of a rule, among so many: in turn, or `run` at a time.
fn turn(rule: Placement, count: &mut RangeFrom<usize>, run: usize, among: usize) -> usize {
    let i = count.next().unwrap_or_default();
    match rule {
        Placement::Spread => i % among,
        Placement::Pack => i / run,
    }
}

/// The hosts on machines with all labels that a group needs. `None` where it needs none, or no host has them.
fn suitable(
    group: &Group,
    machines: &List<MachineId, Machine>,
    hosts: &Hosts,
    report: &mut Report,
) -> Option<Vec<HostId>> {
    let needs = group.spec.needs.as_ref()?;
    let has = |machine: MachineId| needs.iter().all(|need| machines[machine].labels.contains(&need.value));
    let fits = hosts.placed.enumerate().filter(|(_, machine)| machine.is_some_and(has));
    let found: Vec<HostId> = fits.map(|(host, _)| host).collect();
    let lacks = group.host.is_some_and(|host| !found.contains(&host));
    if found.is_empty() || lacks {
        let wanted: Vec<&str> = needs.iter().map(|need| need.value.as_str()).collect();
        let which = if lacks { "the machine of its host does not have" } else { "no machine with a host has" };
        let message = format!("node `{}`: {which} all labels that it needs: {}", group.name.value, wanted.join(", "));
        let at = needs.first().map_or(group.name.at, |need| need.at);
        report.add(at, message, "write `labels` of machines, and `machine` of hosts");
        return None;
    }
    Some(found)
}

/// The room of machines, seen from their hosts.
struct Seats<'a> {
    placed: &'a Placed,
    rooms: List<MachineId, Room>,
    /// Nodes of each host.
    counts: List<HostId, usize>,
}

impl<'a> Seats<'a> {
    /// `None` where no machine says what it offers, and where hosts find their machines after their nodes.
    fn new(machines: &List<MachineId, Machine>, hosts: &'a Hosts) -> Option<Self> {
        let rooms = Room::of(machines);
        let is_known = rooms.iter().any(Room::is_known) && hosts.placed.iter().all(Option::is_some);
        is_known.then(|| Self { placed: &hosts.placed, rooms, counts: vec![0; hosts.list.len()].into() })
    }

    fn take(&mut self, host: HostId, need: Need) {
        self.counts[host] += 1;
        if let Some(machine) = self.placed[host] {
            self.rooms[machine].take(need);
        }
    }

    fn room(&self, host: HostId) -> Option<&Room> {
        self.placed[host].map(|machine| &self.rooms[machine])
    }

    /// The host on the emptiest machine in which there is room. Of equals, the one with the fewest nodes, then the first.
    fn emptiest(&self, need: Need, may: impl Fn(HostId) -> bool) -> Option<HostId> {
        let fits = |&host: &HostId| may(host) && self.room(host).is_some_and(|room| room.fits(need));
        self.counts
            .ids()
            .filter(fits)
            .min_by_key(|&host| (self.room(host).map(|room| room.load(need)), self.counts[host]))
    }

    /// The first host from this one on, round and round, on whose machine there is room.
    fn first_from(&self, from: HostId, need: Need, may: impl Fn(HostId) -> bool) -> Option<HostId> {
        let all = self.counts.len();
        let mut round = (0..all).map(|step| HostId((from.index() + step) % all));
        round.find(|&host| may(host) && self.room(host).is_some_and(|room| room.fits(need)))
    }
}

/// A node has the kernel settings of its host, where it has no other values. One on driver host has its host's network.
pub(super) fn tune(hosts: &Hosts, networks: &List<NetworkId, Network>, nodes: &mut [Node]) {
    let shares = |node: &Node| node.interfaces.iter().any(|at| networks[at.network].driver == DriverKind::Host);
    for node in nodes.iter_mut().filter(|node| !shares(node)) {
        for (name, value) in &hosts.list[node.host].tune {
            node.sysctls.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// A node's processors are among its host's; without any of its own it has all of them.
fn confine(group: &Group, hosts: &Hosts, nodes: &mut [Node], report: &mut Report) {
    let own = group.spec.cpuset.as_ref();
    for node in nodes {
        let of_host = hosts.cpus[node.host];
        node.limits.cpuset = own.map(|own| &own.value.0).or(of_host).map(|cpus| cpus.text.clone());
        if let (Some(own), Some(of_host)) = (own, of_host)
            && !of_host.contains(&own.value.0)
        {
            let message = format!("host `{}` has only processors {}", hosts.list[node.host].name, of_host.text);
            report.add(own.at, message, "choose among them, or place the node on another host");
            return;
        }
    }
}
