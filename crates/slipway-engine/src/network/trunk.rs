//! Trunks: what joins the bridges between hosts on one machine to those on the lab's other machines.
//!
//! A trunk is a VXLAN tunnel (RFC 7348) of the machine's own network, unicast, with static entries. Its frames come out in
//! the lab's namespace between hosts; its packets leave by the machine's interface. So drivers see one wire between hosts,
//! however many machines it spans, and a `vxlan` network has two tunnels between machines: its own, and the trunk.
//! ADR 0067 says why.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use slipway_lab::defaults::derived_mac;
use slipway_lab::id::{HostId, MachineId, NetworkId};
use slipway_lab::model::Lab;
use slipway_sys::netlink::Mac;

use super::members::{hosts_of, members};

/// The registered UDP port of VXLAN.
pub const TUNNEL_PORT: u16 = 4789;
/// The entry for frames that no other entry names.
const EVERY: Mac = [0; 6];

/// A bridge between hosts that spans machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trunk {
    /// The underlay.
    Underlay,
    /// The wire of tunnels.
    Tunnels,
    /// The wire of a network.
    Network(NetworkId),
}

impl Trunk {
    /// Its position among the lab's trunks, of which each has a VXLAN network identifier of its own.
    fn number(self) -> u32 {
        match self {
            Self::Underlay => 0,
            Self::Tunnels => 1,
            Self::Network(network) => 2 + u32::try_from(network.index()).unwrap_or(u32::MAX / 2),
        }
    }

    pub(super) fn name(self) -> String {
        format!("trunk{}", self.number())
    }

    /// The network whose wire it is.
    pub(super) fn network(self) -> Option<NetworkId> {
        if let Self::Network(network) = self { Some(network) } else { None }
    }

    /// Its VXLAN network identifier.
    pub(super) fn vni(self, lab: &Lab) -> u32 {
        lab.part.first_vni(lab.tunnels()) + self.number()
    }

    /// The static entries of this machine's end: an Ethernet address, and the machine behind which it is. Empty where all
    /// hosts that it joins are here.
    pub(super) fn entries(self, lab: &Lab) -> Vec<(Mac, IpAddr)> {
        let machines: BTreeSet<MachineId> = self.hosts(lab).into_iter().map(|host| lab.hosts[host].machine).collect();
        let others: BTreeMap<MachineId, IpAddr> = machines
            .into_iter()
            .filter(|&machine| machine != lab.part.machine)
            .filter_map(|machine| Some((machine, lab.machines.get(machine)?.address.into())))
            .collect();
        let every = others.values().map(|&to| (EVERY, to));
        let places = self.members(lab).into_iter();
        let away = places.filter_map(|(host, mac)| Some((mac, *others.get(&lab.hosts[host].machine)?)));
        every.chain(away).collect()
    }

    /// The hosts that it joins.
    fn hosts(self, lab: &Lab) -> BTreeSet<HostId> {
        match self {
            Self::Underlay | Self::Tunnels => lab.hosts.ids().collect(),
            Self::Network(network) => hosts_of(lab, network),
        }
    }

    /// The Ethernet addresses behind it, each with its host.
    fn members(self, lab: &Lab) -> Vec<(HostId, Mac)> {
        match self {
            Self::Underlay | Self::Tunnels => lab.hosts.ids().map(|host| (host, mac(lab, self, host))).collect(),
            Self::Network(network) => members(lab, network).map(|(host, _, interface)| (host, interface.mac)).collect(),
        }
    }
}

/// The Ethernet address of a host on the underlay or the wire of tunnels, which every machine finds alike.
pub(super) fn mac(lab: &Lab, trunk: Trunk, host: HostId) -> Mac {
    derived_mac(&lab.name, &trunk.name(), &lab.hosts[host].name)
}
