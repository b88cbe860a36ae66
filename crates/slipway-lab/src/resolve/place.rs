//! Placement of nodes on hosts. A rule of order only: the same file gives the same places everywhere.

use slipway_document::errors::Report;

use super::host::Hosts;
use super::node::Group;
use crate::file::Placement;
use crate::id::{HostId, List, NetworkId};
use crate::model::{DriverKind, Network, Node};

/// Sets every node's host, and the processors that it has from there.
pub(super) fn place(rule: Placement, groups: &[Group], hosts: &Hosts, nodes: &mut [Node], report: &mut Report) {
    let free = groups.iter().filter(|group| group.host.is_none()).map(|group| group.count).sum::<usize>();
    let run = free.div_ceil(hosts.list.len());
    let mut placed = 0..;
    let mut rest = nodes;
    for group in groups {
        let (mine, others) = rest.split_at_mut(group.count.min(rest.len()));
        rest = others;
        for node in mine.iter_mut() {
            node.host = group.host.unwrap_or_else(|| match (rule, placed.next().unwrap_or_default()) {
                (Placement::Spread, i) => HostId(i % hosts.list.len()),
                (Placement::Pack, i) => HostId(i / run),
            });
        }
        confine(group, hosts, mine, report);
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
