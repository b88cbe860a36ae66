//! The trait of network drivers, and what they ask of a lab.

use std::fmt;
use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};
use slipway_lab::id::{HostId, NetworkId};
use slipway_lab::model::{DriverWord, Interface, Lab};

use super::error::{NetworkError, Unsupported};
pub(super) use super::members::{Port, VXLAN_OVERHEAD, hosts_here, hosts_of, members, mtu};
use super::site::Sites;

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
