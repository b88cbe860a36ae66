//! The trait of network drivers, and the drivers that this machine can run.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};
use slipway_lab::model::{DriverKind, Interface, Lab, Network, Node};
use slipway_sys::netlink::{Netlink, NetlinkError, Offload, Refused, Request};
use slipway_sys::ns::{create_net, with_net};

use super::error::NetworkError;
use super::site::Sites;
use super::{bridge, fast, host, macvlan, ovs, sriov, vxlan};

/// Ethernet's own, bytes.
const ETHERNET_MTU: u32 = 1500;
/// Bytes that a VXLAN tunnel over IPv4 adds to a packet: outer IPv4 20, UDP 8, VXLAN 8, inner Ethernet 14 (RFC 7348).
pub(super) const VXLAN_OVERHEAD: u32 = 50;
/// Least MTU of IPv4 (RFC 791) and of IPv6 (RFC 8200), and the most that a packet's length field can say, bytes.
const MTU_IPV4: u32 = 68;
const MTU_IPV6: u32 = 1280;
const MTU_MOST: u32 = 65_535;

/// A driver that cannot run here: what is missing, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsupported {
    /// The driver.
    pub driver: DriverKind,
    /// The missing parts of this machine.
    pub missing: String,
    /// The next step.
    pub hint: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver {} cannot run on this machine: {}\nHint: {}", self.driver, self.missing, self.hint)
    }
}

/// How a driver runs on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// The driver.
    pub driver: DriverKind,
    /// The driver's means, e.g. `veth pairs on an Open vSwitch bridge, userspace datapath`.
    pub mechanism: String,
    /// Notes to read before you trust a measurement.
    pub notes: Vec<String>,
}

/// How a network of a running lab was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mechanism {
    /// The network's name.
    pub network: String,
    /// How its driver runs on this machine.
    #[serde(flatten)]
    pub probed: Probed,
    /// Bytes.
    pub mtu: u32,
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
    pub(super) node: usize,
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

/// A network driver. One serves all networks of its kind in a lab.
pub(super) trait Driver: fmt::Debug {
    /// How this machine would run it, or what is missing.
    fn probe(&self) -> Result<Probed, Unsupported>;

    /// Whether this network can be made here, before anything is.
    fn check(&self, _lab: &Lab, _network: usize) -> Result<(), NetworkError> {
        Ok(())
    }

    /// Makes what the nodes of `network` share. The devices come by [`Site::make`](super::site::Site::make), which notes them.
    fn prepare(&mut self, lab: &Lab, network: usize, sites: &mut Sites) -> Result<(), NetworkError>;

    /// Makes interfaces of some of its nodes.
    fn attach(&mut self, lab: &Lab, network: usize, sites: &mut Sites, ends: &[End<'_>]) -> Result<(), NetworkError>;

    /// Takes a node's interface away. Only those of nodes that may do so themselves are.
    fn detach(&mut self, _lab: &Lab, _port: Port, _sites: &mut Sites) -> Result<(), NetworkError> {
        Ok(())
    }

    /// Lets packets pass. Harmless when they do already.
    fn open(&mut self, _lab: &Lab, _network: usize, _sites: &mut Sites) -> Result<(), NetworkError> {
        Ok(())
    }

    /// The device at the host's end of an interface, where it has one of its own.
    fn host_end(&self, _port: Port) -> Option<u32> {
        None
    }

    /// Takes an interface's carrier away, or gives it back.
    fn set_carrier(&mut self, lab: &Lab, port: Port, sites: &mut Sites, up: bool) -> Result<(), NetworkError>;
}

/// The driver of a kind. Nobody asks for the driver of a fast network: its base network is [`Network::beneath`] it.
pub(super) fn driver(kind: DriverKind) -> Box<dyn Driver> {
    match kind {
        DriverKind::Host => Box::new(host::Host),
        DriverKind::Bridge | DriverKind::Fast => Box::new(bridge::Bridge::default()),
        DriverKind::Ovs => Box::new(ovs::Ovs::default()),
        DriverKind::Macvlan => Box::new(macvlan::Macvlan::default()),
        DriverKind::Vxlan => Box::new(vxlan::Vxlan::default()),
        DriverKind::Sriov => Box::new(sriov::Sriov::default()),
    }
}

/// How this machine would run each driver, or what it lacks.
#[must_use]
pub fn survey() -> Vec<Result<Probed, Unsupported>> {
    DriverKind::ALL.into_iter().map(probe).collect()
}

fn probe(kind: DriverKind) -> Result<Probed, Unsupported> {
    let probed = driver(kind).probe();
    if kind == DriverKind::Fast { fast::over(probed) } else { probed }
}

/// How this machine would make each of a lab's networks. Changes nothing.
///
/// # Errors
/// The first network that cannot be made here, with what is missing or wrong.
pub fn plan(lab: &Lab) -> Result<Vec<Mechanism>, NetworkError> {
    let plan_one = |(number, network): (usize, &Network)| {
        let driver = driver(network.beneath());
        let probed = if network.is_fast() { fast::over(driver.probe()) } else { driver.probe() };
        let probed = probed.map_err(|reason| NetworkError::Unsupported { network: network.name.clone(), reason })?;
        check_mtu(network)?;
        driver.check(lab, number)?;
        Ok(Mechanism { network: network.name.clone(), probed, mtu: mtu(lab, number) })
    };
    lab.networks.iter().enumerate().map(plan_one).collect()
}

fn check_mtu(network: &Network) -> Result<(), NetworkError> {
    let (least, why) = if network.ipv6.is_some() { (MTU_IPV6, "with IPv6") } else { (MTU_IPV4, "for IPv4") };
    match network.mtu {
        Some(mtu) if !(least..=MTU_MOST).contains(&mtu) => {
            let reason = format!("its MTU is {mtu} bytes\nHint: an MTU is between {least} ({why}) and {MTU_MOST}");
            Err(NetworkError::impossible(&network.name, reason))
        }
        _ => Ok(()),
    }
}

/// A network's MTU, bytes: asked for, or right for the driver.
pub(super) fn mtu(lab: &Lab, network: usize) -> u32 {
    let network = &lab.networks[network];
    network.mtu.unwrap_or_else(|| match (network.beneath(), &lab.underlay) {
        (DriverKind::Vxlan, Some(underlay)) => underlay.mtu.saturating_sub(VXLAN_OVERHEAD),
        (DriverKind::Vxlan, None) => ETHERNET_MTU - VXLAN_OVERHEAD,
        _ => ETHERNET_MTU,
    })
}

/// A network's places, with the host of each.
pub(super) fn members(lab: &Lab, network: usize) -> impl Iterator<Item = (usize, Port, &Interface)> {
    lab.nodes.iter().enumerate().flat_map(move |(node, of)| {
        let mine = of.interfaces.iter().enumerate().filter(move |(_, interface)| interface.network == network);
        mine.map(move |(slot, interface)| (of.host, Port { node, slot }, interface))
    })
}

/// The hosts that have nodes on a network, in order.
pub(super) fn hosts_of(lab: &Lab, network: usize) -> BTreeSet<usize> {
    members(lab, network).map(|(host, ..)| host).collect()
}

/// Switches every offload of a device off that it can switch.
pub(super) fn switch_offloads_off(netlink: &Netlink, name: &str) -> Result<(), NetworkError> {
    for offload in Offload::ALL {
        match netlink.set_offload(name, offload, false) {
            // A device without the offload, or with it wired off, does what is asked.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            other => other.map_err(NetworkError::system(format!("switch offloads of {name} off")))?,
        }
    }
    Ok(())
}

/// Takes a node's port that is gone for a success: the node has deleted its end of the wire.
pub(super) fn unless_gone(node: &Node, done: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    let gone = |refused: &Refused| refused.error.raw_os_error() == Some(libc::ENODEV);
    match done {
        Err(NetlinkError::Refused(refused)) if node.rules_its_network() && refused.iter().all(gone) => Ok(()),
        done => done,
    }
}

/// Has the kernel act on a device's new carrier now, and says whether there is one. By itself the kernel acts a little
/// later, and drops packets until then.
pub(super) fn settle(netlink: &Netlink, name: &str) -> Result<bool, NetworkError> {
    netlink.has_carrier(name).map_err(NetworkError::system(format!("look at the carrier of {name}")))
}

/// Tries requests in a namespace that is thrown away: whether the kernel can is told by the kernel.
pub(super) fn try_in_scratch(driver: DriverKind, module: &str, requests: &[Request<'_>]) -> Result<(), Unsupported> {
    let cannot = |missing: String, hint: String| Unsupported { driver, missing, hint };
    let tried = create_net().and_then(|net| {
        use std::os::fd::AsFd;
        with_net(net.as_fd(), || Netlink::open().map(|mut netlink| netlink.run(requests)))?
    });
    match tried {
        Ok(Ok(())) => Ok(()),
        Ok(Err(NetlinkError::Refused(refused)))
            if refused.iter().any(|one| one.error.kind() == io::ErrorKind::Unsupported) =>
        {
            let missing = format!("the kernel has no {module} devices");
            Err(cannot(missing, format!("load its module (modprobe {module}) or boot a kernel that has it")))
        }
        Ok(Err(error)) => Err(cannot(format!("a trial failed to {error}"), "see slipway doctor".to_owned())),
        Err(error) => Err(cannot(
            format!("no network namespace can be made: {error}"),
            "run slipway as root, or in a user namespace of your own".to_owned(),
        )),
    }
}
