//! Which host a node is on. A rule of order only: the same file gives the same places everywhere.

use super::host::{Hosts, cpu_list};
use super::node::Group;
use crate::errors::Report;
use crate::file::Placement;
use crate::model::Node;

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
                (Placement::Spread, i) => i % hosts.list.len(),
                (Placement::Pack, i) => i / run,
            });
        }
        confine(group, hosts, mine, report);
    }
}

/// A node's processors are among its host's; without any of its own it has all of them.
fn confine(group: &Group, hosts: &Hosts, nodes: &mut [Node], report: &mut Report) {
    let own = group.spec.cpuset.as_ref().and_then(|written| Some((written, cpu_list(written, report)?)));
    for node in nodes {
        let host = &hosts.list[node.host];
        let Some((written, own)) = &own else {
            node.limits.cpuset.clone_from(&host.cpus);
            continue;
        };
        node.limits.cpuset = Some(written.value.0.clone());
        let outside = |cpus: &String| !own.iter().cloned().flatten().all(|cpu| contains(cpus, cpu));
        if let Some(cpus) = host.cpus.as_ref().filter(|cpus| outside(cpus)) {
            let message = format!("host `{}` has only processors {cpus}", host.name);
            report.add(written.at, message, "choose among them, or place the node on another host");
            return;
        }
    }
}

/// Whether a list that was checked before holds a processor.
fn contains(list: &str, cpu: u32) -> bool {
    list.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (first.parse::<u32>().unwrap_or(u32::MAX)..=last.parse().unwrap_or_default()).contains(&cpu)
    })
}
