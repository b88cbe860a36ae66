//! The node and interface of every virtual address of a lab.

use serde::{Deserialize, Serialize};
use slipway_lab::id::{HostId, NetworkId, NodeId};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// A node's interface on a fast network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The node.
    pub node: NodeId,
    /// The virtual host that it is on.
    pub host: HostId,
    /// The network.
    pub network: NetworkId,
}

/// The interfaces of all virtual addresses.
#[derive(Debug, Clone, Default)]
pub struct AddressMap {
    by_address: HashMap<IpAddr, Interface>,
    by_interface: HashMap<(NodeId, NetworkId, bool), IpAddr>,
    exact: HashSet<NetworkId>,
    ruling: HashSet<NodeId>,
}

impl AddressMap {
    /// The interface of an address.
    #[must_use]
    pub fn of(&self, ip: IpAddr) -> Option<Interface> {
        self.by_address.get(&ip).copied()
    }

    /// A node's address on a network, of one family.
    #[must_use]
    pub fn address(&self, node: NodeId, network: NetworkId, ipv6: bool) -> Option<IpAddr> {
        self.by_interface.get(&(node, network, ipv6)).copied()
    }

    /// This map, with exact networks: connections on these are of TCP within a host too.
    #[must_use]
    pub fn with_exact(self, networks: impl IntoIterator<Item = NetworkId>) -> Self {
        Self { exact: networks.into_iter().collect(), ..self }
    }

    /// Whether connections on this network are of TCP within a host too.
    #[must_use]
    pub fn is_exact(&self, network: NetworkId) -> bool {
        self.exact.contains(&network)
    }

    /// This map, with nodes that have rules of their own on their networks, which a fast connection would bypass.
    #[must_use]
    pub fn with_ruling(self, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        Self { ruling: nodes.into_iter().collect(), ..self }
    }

    /// Whether a node may have rules of its own.
    #[must_use]
    pub fn is_ruling(&self, node: NodeId) -> bool {
        self.ruling.contains(&node)
    }

    /// The number of nodes, as far as any is on a fast network.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.by_address.values().map(|place| place.node.index() + 1).max().unwrap_or(0)
    }

    /// A node's addresses, on all networks.
    pub fn addresses(&self, node: NodeId) -> impl Iterator<Item = IpAddr> {
        self.by_address.iter().filter(move |(_, place)| place.node == node).map(|(ip, _)| *ip)
    }
}

impl FromIterator<(IpAddr, Interface)> for AddressMap {
    fn from_iter<I: IntoIterator<Item = (IpAddr, Interface)>>(all: I) -> Self {
        let mut address_map = Self::default();
        for (ip, place) in all {
            address_map.by_address.insert(ip, place);
            address_map.by_interface.insert((place.node, place.network, ip.is_ipv6()), ip);
        }
        address_map
    }
}
