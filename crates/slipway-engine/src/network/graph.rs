//! The data path of a lab as a typed graph: namespaces, and the devices that drivers made in them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use slipway_lab::id::{HostId, MachineId, NetworkId, NodeId};

/// A network namespace of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Space {
    /// The machine's own.
    Machine,
    /// The one between hosts, with the underlay's bridge.
    Underlay,
    /// A host's own, with its addresses.
    Host(HostId),
    /// The one of a host's bridges and switches.
    Switch(HostId),
    /// The one of a host's tunnels, with their packets.
    Tunnel(HostId),
    /// A node's.
    Node(NodeId),
}

/// A device by its place and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Device {
    /// The namespace.
    pub space: Space,
    /// The device's name there.
    pub name: String,
}

/// The kind of a device, with what only this kind has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// A Linux bridge.
    Bridge,
    /// An Open vSwitch bridge.
    OvsBridge,
    /// One end of a veth pair.
    Veth {
        /// The other end.
        peer: Device,
    },
    /// A macvlan device.
    Macvlan {
        /// The device whose wire it shares.
        parent: Device,
    },
    /// One end of VXLAN tunnels.
    Vxlan {
        /// The tunnels.
        tunnel: Tunnel,
    },
    /// A device whose frames go to user-space netem and come back from it.
    Tap,
    /// A virtual function of a network card.
    Function,
    /// A device of the machine's that was there before the lab.
    Found,
}

/// Tunnels of one end (RFC 7348).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// The network identifier.
    pub vni: u32,
    /// The address of this end.
    pub local: IpAddr,
    /// The addresses of the other ends, in order.
    pub remotes: Vec<IpAddr>,
    /// The UDP port.
    pub port: u16,
    /// The device that the tunnels' packets leave by.
    pub lower: Device,
}

/// The direction of the packets that a program sees, as the device has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Packets that the device sends.
    Egress,
    /// Packets that the device receives.
    Ingress,
}

/// A BPF program at a device (tc-bpf(8)).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program {
    /// The packets that it sees.
    pub direction: Direction,
    /// Its place among the direction's programs, from 1.
    pub order: u16,
    /// Its name, as `tc filter` shows it.
    pub name: String,
}

/// A device that a driver made or uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its place and name.
    #[serde(flatten)]
    pub device: Device,
    /// The interface index, where a driver chose it.
    pub index: Option<u32>,
    /// The network that it is for; `None` for the underlay.
    pub network: Option<NetworkId>,
    /// The kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// The MTU that was asked for, bytes.
    pub mtu: Option<u32>,
    /// The bridge of the same namespace whose port it is.
    pub bridge: Option<String>,
    /// Queueing disciplines, by kind: `clsact` carries programs.
    pub qdiscs: Vec<String>,
    /// BPF programs, in their order.
    pub programs: Vec<Program>,
}

/// A network namespace, with the number by which the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// The namespace.
    pub space: Space,
    /// The inode of `/proc/PID/ns/net`.
    pub inode: u64,
}

/// The data path of a lab on one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    /// The machine.
    pub machine: MachineId,
    /// The namespaces, in order.
    pub namespaces: Vec<Namespace>,
    /// The devices, in order of namespace and name.
    pub links: Vec<Link>,
}

impl Graph {
    /// A device.
    #[must_use]
    pub fn link(&self, device: &Device) -> Option<&Link> {
        self.links.iter().find(|link| link.device == *device)
    }

    /// The devices of one network.
    pub fn of_network(&self, network: NetworkId) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |link| link.network == Some(network))
    }

    /// Leaves the interfaces of one node, and the devices at the other ends of its wires.
    #[must_use]
    pub fn of_node(mut self, node: NodeId) -> Self {
        let own = Space::Node(node);
        let leads = |link: &Link| match &link.kind {
            Kind::Veth { peer } => peer.space == own,
            _ => false,
        };
        self.links.retain(|link| link.device.space == own || leads(link));
        let spaces: Vec<Space> = self.links.iter().map(|link| link.device.space).collect();
        self.namespaces.retain(|namespace| spaces.contains(&namespace.space));
        self
    }
}
