//! The members of networks: interfaces of nodes, and the hosts that they are on.

use std::collections::BTreeSet;

use slipway_lab::id::{HostId, NetworkId, NodeId};
use slipway_lab::model::{DriverKind, Interface, Lab};

/// Ethernet's own, bytes.
const ETHERNET_MTU: u32 = 1500;
/// Bytes that a VXLAN tunnel over IPv4 adds to a packet: outer IPv4 20, UDP 8, VXLAN 8, inner Ethernet 14 (RFC 7348).
pub const VXLAN_OVERHEAD: u32 = 50;

/// The interface of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub(super) node: NodeId,
    /// Position among the node's interfaces.
    pub(super) slot: usize,
}

impl Port {
    /// The name of the host's end of it: `NODE.SLOT`. A node's name cannot begin with `_`, so the shorter form for names
    /// too long for a device (15 bytes) cannot meet another.
    pub(super) fn name(self, lab: &Lab) -> String {
        let name = format!("{}.{}", lab.nodes[self.node].name, self.slot);
        if name.len() < 16 { name } else { format!("_{}.{}", self.node, self.slot) }
    }
}

/// A network's MTU, bytes: asked for, or right for the driver.
pub(super) fn mtu(lab: &Lab, network: NetworkId) -> u32 {
    let network = &lab.networks[network];
    network.mtu.unwrap_or_else(|| match (network.driver, &lab.underlay) {
        (DriverKind::Vxlan, Some(underlay)) => underlay.mtu.saturating_sub(VXLAN_OVERHEAD),
        (DriverKind::Vxlan, None) => ETHERNET_MTU - VXLAN_OVERHEAD,
        // Between machines its frames are in tunnels too.
        (DriverKind::Bridge | DriverKind::Ovs | DriverKind::Macvlan, _)
            if lab.is_spread() && network.parent.is_none() =>
        {
            ETHERNET_MTU - VXLAN_OVERHEAD
        }
        _ => ETHERNET_MTU,
    })
}

/// A network's places, with the host of each.
pub(super) fn members(lab: &Lab, network: NetworkId) -> impl Iterator<Item = (HostId, Port, &Interface)> {
    lab.nodes.enumerate().flat_map(move |(node, of)| {
        let mine = of.interfaces.iter().enumerate().filter(move |(_, interface)| interface.network == network);
        mine.map(move |(slot, interface)| (of.host, Port { node, slot }, interface))
    })
}

/// The hosts that have nodes on a network, in order, on whichever machine.
pub(super) fn hosts_of(lab: &Lab, network: NetworkId) -> BTreeSet<HostId> {
    members(lab, network).map(|(host, ..)| host).collect()
}

/// Those of them that are on this machine.
pub(super) fn hosts_here(lab: &Lab, network: NetworkId) -> BTreeSet<HostId> {
    hosts_of(lab, network).into_iter().filter(|&host| lab.is_here(host)).collect()
}
