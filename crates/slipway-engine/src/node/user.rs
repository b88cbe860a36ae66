//! User namespaces of nodes (ADR 0012).
//!
//! Ids are the same in them as outside. Each belongs to a user of its own, so that the kernel bounds what one node takes of the things
//! that it counts by user, whatever other nodes have. It owns the node's network and nothing else.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use slipway_lab::id::{List, NodeId};
use slipway_lab::model::{DriverKind, Lab, Node};
use slipway_sys::ns::{OwnedNet, create_owned_net, in_first_user_namespace, with_net};

use crate::lack::Lack;

/// The first of the users that own nodes' user namespaces. No user database has them: `systemd` and others end far below.
const OWNERS: u32 = 0xf000_0000;

/// The user that is to own the caller's user namespace: one of its own, so that the kernel counts for each node by itself. `None`
/// where this process is in a user namespace already, which has no such users.
fn owner() -> io::Result<Option<u32>> {
    if !in_first_user_namespace()? {
        return Ok(None);
    }
    // By the number that `/proc` knows: an init's own is 1. No number of a process has a bit of the first.
    let number = fs::read_link("/proc/self")?;
    let number = number.to_str().and_then(|number| number.parse::<u32>().ok());
    Ok(Some(OWNERS | number.ok_or_else(|| io::Error::other("/proc/self is no number"))?))
}

/// Makes a user namespace as nodes get it, and the network that belongs to it.
///
/// # Errors
/// As [`create_owned_net`].
pub(crate) fn make_net() -> io::Result<OwnedNet> {
    create_owned_net(owner()?)
}

/// Whether the kernel bounds each node by itself here.
///
/// # Errors
/// The reason why not, with a hint.
pub(crate) fn is_bounded() -> Result<(), Lack> {
    match owner().and_then(|owner| create_owned_net(owner).map(|_| owner)) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => {
            let lack = Lack::new("in a user namespace there is no user for each node");
            Err(lack.with_hint("run as the machine's root"))
        }
        Err(error) => {
            let hint = "allow user namespaces: `sysctl user.max_user_namespaces`";
            Err(Lack::new(format!("a node gets no user namespace of its own: {error}")).with_hint(hint))
        }
    }
}

/// Whether each node gets one. A node on its host's network gets none, since its network cannot belong to it. Neither does
/// a node whose `sysctls` name a setting that the kernel keeps from such networks. Where the kernel makes none, or would not count
/// for each by itself, only nodes with `capabilities` need one.
pub(crate) fn own(lab: &Lab) -> List<NodeId, bool> {
    let made = if owner().is_ok_and(|owner| owner.is_some()) { make_net().ok() } else { None };
    let can = |node: &Node| made.as_ref().is_some_and(|made| has_settings(made, node));
    lab.nodes.iter().map(|node| node.rules_its_network() || (!on_host(lab, node) && can(node))).collect()
}

fn on_host(lab: &Lab, node: &Node) -> bool {
    node.interfaces.iter().any(|interface| lab.networks[interface.network].driver == DriverKind::Host)
}

fn has_settings(owned: &OwnedNet, node: &Node) -> bool {
    let is_there = |name: &String| Path::new("/proc/sys").join(name.replace('.', "/")).exists();
    node.sysctls.is_empty() || with_net(owned.net.as_fd(), || node.sysctls.keys().all(is_there)).unwrap_or(false)
}
