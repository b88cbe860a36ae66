//! The trait of network drivers, and what they ask of a lab.

use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};
use slipway_lab::id::{HostId, NetworkId, NodeId};
use slipway_lab::model::{DriverKind, DriverWord, Interface, Lab};

use super::error::{NetworkError, Unsupported};
use super::site::Sites;

/// Ethernet's own, bytes.
const ETHERNET_MTU: u32 = 1500;
/// Bytes that a VXLAN tunnel over IPv4 adds to a packet: outer IPv4 20, UDP 8, VXLAN 8, inner Ethernet 14 (RFC 7348).
pub(super) const VXLAN_OVERHEAD: u32 = 50;

/// How a driver runs on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// The driver, or the driver and its bypasses, by the word for them.
    pub driver: DriverWord,
    /// The driver's means, e.g. `veth pairs on an Open vSwitch bridge, userspace datapath`.
    pub mechanism: String,
    /// Notes to read before you trust a measurement.
    pub notes: Vec<String>,
}

/// A node's interface, to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct End<'a> {
    pub(super) port: Port,
    pub(super) interface: &'a Interface,
    pub(super) netns: BorrowedFd<'a>,
}

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

/// The way of a node's interface from one host to another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relocation<'a> {
    /// The lab as it was.
    pub(super) before: &'a Lab,
    /// The lab as it is to be: the node is on its new host.
    pub(super) after: &'a Lab,
    pub(super) port: Port,
}

impl Relocation<'_> {
    pub(super) fn from(&self) -> HostId {
        self.before.nodes[self.port.node].host
    }

    pub(super) fn to(&self) -> HostId {
        self.after.nodes[self.port.node].host
    }

    pub(super) fn interface(&self) -> &Interface {
        &self.after.nodes[self.port.node].interfaces[self.port.slot]
    }

    pub(super) fn network(&self) -> NetworkId {
        self.interface().network
    }
}

/// A network driver. One serves all networks of its kind in a lab.
pub(super) trait Driver: fmt::Debug {
    /// How this machine would run it, or what is missing.
    fn probe(&self) -> Result<Probed, Unsupported>;

    /// Whether this network can be made here, before anything is.
    fn check(&self, _lab: &Lab, _network: NetworkId) -> Result<(), NetworkError> {
        Ok(())
    }

    /// Makes what the nodes of `network` share. The devices come by [`Site::make`](super::site::Site::make), which notes them.
    fn prepare(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError>;

    /// Makes interfaces of some of its nodes.
    fn attach(
        &mut self,
        lab: &Lab,
        network: NetworkId,
        sites: &mut Sites,
        ends: &[End<'_>],
    ) -> Result<(), NetworkError>;

    /// Takes a node's interface away. Only those of nodes that may do so themselves are.
    fn detach(&mut self, _lab: &Lab, _port: Port, _sites: &mut Sites) -> Result<(), NetworkError> {
        Ok(())
    }

    /// Has an interface of a node that does not run on another host from now on. It is made there, but for its carrier, and
    /// the network's other hosts send there. Only drivers of [`moves`](super::moves) are asked.
    fn relocate(&mut self, _way: &Relocation<'_>, _sites: &mut Sites) -> Result<(), NetworkError> {
        Ok(())
    }

    /// Lets packets pass. Harmless when they do already.
    fn open(&mut self, _lab: &Lab, _network: NetworkId, _sites: &mut Sites) -> Result<(), NetworkError> {
        Ok(())
    }

    /// The device at the host's end of an interface, where it has one of its own.
    fn host_end(&self, _port: Port) -> Option<u32> {
        None
    }

    /// The helper process of this number, in words, if it is one of this driver's. It has ended.
    fn helper(&self, _lab: &Lab, _pid: i32) -> Option<String> {
        None
    }

    /// Takes an interface's carrier away, or gives it back.
    fn set_carrier(&mut self, lab: &Lab, port: Port, sites: &mut Sites, up: bool) -> Result<(), NetworkError>;
}

/// A network's MTU, bytes: asked for, or right for the driver.
pub(super) fn mtu(lab: &Lab, network: NetworkId) -> u32 {
    let network = &lab.networks[network];
    network.mtu.unwrap_or_else(|| match (network.driver, &lab.underlay) {
        (DriverKind::Vxlan, Some(underlay)) => underlay.mtu.saturating_sub(VXLAN_OVERHEAD),
        (DriverKind::Vxlan, None) => ETHERNET_MTU - VXLAN_OVERHEAD,
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

/// The hosts that have nodes on a network, in order.
pub(super) fn hosts_of(lab: &Lab, network: NetworkId) -> BTreeSet<HostId> {
    members(lab, network).map(|(host, ..)| host).collect()
}
