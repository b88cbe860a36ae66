//! Nodes that do not run, moved to other virtual hosts (docs/adr/0063).

use std::fs;
use std::path::Path;

use slipway_document::cpus::Cpus;
use slipway_lab::id::{HostId, NodeId};
use slipway_lab::model::{Interface, Lab};
use slipway_sys::clone::SingleThread;
use slipway_sys::ns::with_net;

use super::{AnchorError, Blueprint, Nodes, net_of};
use crate::network::moves;
use crate::state::NodeStatus;
use crate::sysctl;

impl Nodes {
    /// Has a node on another host from its next start on. The lab's record changes last, and whole; where something fails
    /// before, the node is where it was.
    pub(in crate::anchor) fn relocate(
        &mut self,
        alone: SingleThread,
        blueprint: &mut Blueprint,
        index: NodeId,
        to: HostId,
    ) -> Result<(), AnchorError> {
        let from = blueprint.lab.nodes[index].host;
        if from == to {
            return Ok(());
        }
        let refuse = |reason: String| AnchorError::Move { node: blueprint.lab.nodes[index].name.clone(), reason };
        if self.state.nodes[index].status == NodeStatus::Running {
            return Err(refuse("it runs\nHint: stop it first, with `slipway stop` or `--stop`".to_owned()));
        }
        check(&blueprint.lab, index, to).map_err(refuse)?;
        let mut after = blueprint.lab.clone();
        put(&mut after, index, to);
        let mut written = blueprint.dir.read_lab()?;
        put(&mut written, index, to);
        self.fabric.relocate(&blueprint.lab, &after, index)?;
        if let Err(error) = blueprint.dir.write_lab(&written) {
            self.fabric.relocate(&after, &blueprint.lab, index)?;
            return Err(error.into());
        }
        let before = std::mem::replace(&mut blueprint.lab, after);
        self.leave_settings(&before, &blueprint.lab, index);
        let moved = self.with_bypasses(alone, blueprint, |bypasses, near| bypasses.relocated(near, index, from));
        self.write_routers(blueprint);
        Ok(moved?)
    }

    /// Gives the node's network the new host's values of settings that the old host alone had asked for.
    fn leave_settings(&self, before: &Lab, after: &Lab, index: NodeId) {
        let (Some(net), node) = (net_of(&self.slots, index), &after.nodes[index]) else { return };
        let left = before.nodes[index].sysctls.keys().filter(|name| !node.sysctls.contains_key(*name));
        for name in left {
            let path = Path::new("/proc/sys").join(name.replace('.', "/"));
            let value = with_net(self.fabric.host_net(node.host), || fs::read_to_string(&path));
            if let Ok(Ok(value)) = value {
                // A kernel that has taken another value there takes this one.
                let _ = with_net(net, || sysctl::attempt(name, value.trim()));
            }
        }
    }
}

/// Whether the node can be on that host.
///
/// # Errors
/// The reason why not, with a hint.
fn check(lab: &Lab, index: NodeId, to: HostId) -> Result<(), String> {
    let node = &lab.nodes[index];
    let Some(host) = lab.hosts.get(to) else {
        return Err(format!("the lab has no host number {to}"));
    };
    if host.machine != lab.machine_of(index) {
        let name = &host.name;
        return Err(format!("host {name} is on another machine\nHint: a node moves between hosts of one machine"));
    }
    // Other machines have ways to hosts that a network had from the beginning.
    let has = |one: &Interface| {
        let there = lab.nodes.iter().filter(|other| other.host == to);
        there.flat_map(|other| &other.interfaces).any(|other| other.network == one.network)
    };
    if let Some(one) = node.interfaces.iter().find(|one| lab.is_spread() && !has(one)) {
        return Err(format!(
            "host {} has no node of network {}\nHint: in a lab over several machines, a node moves to a host that has one",
            host.name, lab.networks[one.network].name
        ));
    }
    for network in node.networks(lab) {
        moves(network.driver).map_err(|why| {
            format!(
                "network {} ties it to its host: {why}\nHint: nodes on drivers bridge, vxlan and fast move",
                network.name
            )
        })?;
    }
    let Some(theirs) = &host.cpus else { return Ok(()) };
    let fits = |own: &String| Some(own.parse::<Cpus>().ok()?.within(&theirs.parse::<Cpus>().ok()?));
    match &node.limits.cpuset {
        Some(own) if fits(own) == Some(true) => Ok(()),
        own => Err(format!(
            "host {} may use processors {theirs} alone, and the node {}\nHint: its limits stay as they are; give the hosts the same `cpus`",
            host.name,
            own.as_ref().map_or_else(|| "all".to_owned(), |own| format!("uses {own}"))
        )),
    }
}

/// Has a node on a host, with the kernel settings of that.
fn put(lab: &mut Lab, index: NodeId, to: HostId) {
    let (old, new) = (&lab.hosts[lab.nodes[index].host].tune, &lab.hosts[to].tune);
    let node = &mut lab.nodes[index];
    node.sysctls.retain(|name, value| old.get(name) != Some(value));
    for (name, value) in new {
        node.sysctls.entry(name.clone()).or_insert_with(|| value.clone());
    }
    node.host = to;
}
