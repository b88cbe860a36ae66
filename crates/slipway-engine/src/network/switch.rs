//! Linux bridges as switches of a host: what drivers `bridge` and `vxlan` share.
//!
//! One bridge takes at most 1,023 ports (`BR_MAX_PORTS` in the kernel's bridge). A network with more nodes on a host has
//! leaf bridges below a root bridge. Bridges stay down, and forward nothing, until the network is opened.
//!
//! A bridge is told which Ethernet addresses are behind each port. It learns no other, and drops what a node sends under
//! one that is not its own.
//!
//! Where a network is too large for every node to know every other (see [`super::node`]), the bridge answers ARP itself
//! from its own neighbour table, instead of asking every port. Neighbour solicitations go only to their target
//! ([`super::solicit`]).

mod relocate;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use slipway_lab::id::{HostId, NetworkId};
use slipway_lab::model::{DriverKind, Lab};
use slipway_sys::netlink::{self, BridgePort, Forward, Netlink, NewLink, Peer, Request, SetLink, Veth};

use super::device::{settle, switch_offloads_off, try_in_scratch, unless_gone};
use super::driver::{End, Port, hosts_here, members, mtu};
use super::error::{NetworkError, Unsupported};
use super::node::knows_all;
use super::policy::{self, Guard};
use super::site::Sites;
use super::solicit::Solicit;
use crate::kernel;

/// Nodes on one bridge: the kernel's 1,023 ports, less some for what joins it to others.
const LEAF_PORTS: usize = 1000;

/// The first kernel whose bridges keep a port to the addresses behind it (`IFLA_BRPORT_LOCKED`).
const KEEPS: (u32, u32) = (5, 18);

/// All switches of a driver.
#[derive(Debug, Default)]
pub(super) struct Switches {
    /// By network and host.
    by_host: BTreeMap<(NetworkId, HostId), Switch>,
    /// The host's end of each node's interface.
    ports: BTreeMap<Port, u32>,
    /// At the ports of nodes that do not forward.
    guard: Option<Guard>,
    /// By network, where nodes do not know all others.
    solicits: BTreeMap<NetworkId, Solicit>,
}

/// One network's switch on one host.
#[derive(Debug, Default)]
struct Switch {
    /// The root first; with one bridge, that is also the leaf.
    bridges: Vec<u32>,
    /// Bridge ports that lead to another bridge: from the root to each leaf, and from each leaf to the root.
    down: Vec<u32>,
    up: Vec<u32>,
    /// The bridge of a local node, as a position in `bridges`.
    places: BTreeMap<Port, usize>,
    /// Whether its bridges know the ways between them.
    leads: bool,
    /// The root's port that leads to the network's other hosts.
    outside: Option<u32>,
}

/// Whether the kernel can make bridges and veth pairs.
pub(super) fn probe(driver: DriverKind) -> Result<(), Unsupported> {
    let named = |name: &str, index| NewLink { name: name.to_owned(), index: Some(index), ..NewLink::default() };
    let bridge = Request::AddBridge(netlink::Bridge { link: named("bridge", 100) });
    try_in_scratch(driver, "bridge", &[bridge])?;
    let peer = Peer { name: "peer".to_owned(), ..Peer::default() };
    try_in_scratch(driver, "veth", &[Request::AddVeth(Veth { link: named("veth", 101), peer })])
}

/// Whether bridges keep each port to the addresses behind it.
pub(crate) fn keeps_addresses() -> bool {
    kernel::version().is_some_and(|version| version >= KEEPS)
}

/// Notes on bridges of this machine, for `slipway doctor` and `inspect`.
pub(super) fn notes() -> Vec<String> {
    let addresses = (!keeps_addresses())
        .then_some("its kernel is older than 5.18: a node can send under another node's Ethernet address");
    let guard = (!Guard::is_there()).then_some(
        "it runs no tc-BPF filter for this user: a node's router advertisements, redirects and ICMP errors reach others",
    );
    addresses.into_iter().chain(guard).map(str::to_owned).collect()
}

impl Switches {
    /// Makes the bridges of a network on each of its hosts.
    pub(super) fn build(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        if !knows_all(lab, network) && lab.networks[network].ipv6.is_some() {
            self.solicits.extend(Solicit::of(lab, network).map(|solicit| (network, solicit)));
        }
        if self.guard.is_none() && Guard::is_there() {
            let says = NetworkError::system("keep nodes from sending what only routers may send");
            self.guard = Some(Guard::of(lab).map_err(std::io::Error::other).map_err(says)?);
        }
        for host in hosts_here(lab, network) {
            self.build_on(lab, network, host, sites)?;
        }
        Ok(())
    }

    /// Makes the bridges of a network on a host, unless they are there.
    pub(super) fn build_on(
        &mut self,
        lab: &Lab,
        network: NetworkId,
        host: HostId,
        sites: &mut Sites,
    ) -> Result<(), NetworkError> {
        if let Entry::Vacant(none) = self.by_host.entry((network, host)) {
            none.insert(Switch::build(lab, network, host, sites)?);
        }
        Ok(())
    }

    /// The hosts that have bridges of a network, in order. Such a host may have lost its last node by a move.
    pub(super) fn hosts(&self, network: NetworkId) -> Vec<HostId> {
        self.by_host.keys().filter(|(of, _)| *of == network).map(|&(_, host)| host).collect()
    }

    /// Whether a host's bridges lead to the network's other hosts.
    pub(super) fn leads_outside(&self, network: NetworkId, host: HostId) -> bool {
        self.by_host.get(&(network, host)).is_some_and(|switch| switch.outside.is_some())
    }

    /// Makes `index`, a device of the host that leads to the network's other hosts, a port of the root bridge.
    pub(super) fn join_outside(
        &mut self,
        lab: &Lab,
        network: NetworkId,
        host: HostId,
        sites: &mut Sites,
        index: u32,
    ) -> Result<(), NetworkError> {
        let Some(switch) = self.by_host.get_mut(&(network, host)) else { return Ok(()) };
        switch.outside = Some(index);
        let answers = !knows_all(lab, network);
        let mut requests =
            vec![Request::SetLink(SetLink { index, master: Some(switch.bridges[0]), ..SetLink::default() })];
        requests.push(keep(index, answers));
        for (_, _, interface) in members(lab, network).filter(|&(there, ..)| there != host) {
            let leads = |index: u32| Request::AddForwarding { index, mac: interface.mac, to: Forward::Port };
            requests.push(leads(index));
            requests.extend(switch.up.iter().map(|&up| leads(up)));
        }
        sites.switches[host].make(Some(network), &requests).map_err(NetworkError::of(&lab.networks[network].name))
    }

    pub(super) fn attach(
        &mut self,
        lab: &Lab,
        network: NetworkId,
        sites: &mut Sites,
        ends: &[End<'_>],
    ) -> Result<(), NetworkError> {
        let of = &lab.networks[network];
        let mtu = Some(mtu(lab, network));
        let Self { by_host: switches, ports, guard, solicits } = self;
        let (guard, solicits) = (guard.as_ref(), &*solicits);
        let mut by_host = BTreeMap::<HostId, Vec<Request<'_>>>::new();
        for &End { port, interface, netns } in ends {
            let host = lab.nodes[port.node].host;
            let switch = &switches[&(network, host)];
            // One that is made again is what its conditions lead to: it keeps its number.
            let known = ports.get(&port).copied();
            let index = known.unwrap_or_else(|| sites.switches[host].index());
            let master = Some(switch.bridges[switch.places[&port]]);
            let link = NewLink { name: port.name(lab), index: Some(index), mtu, master, up: true, mac: None };
            let peer =
                Peer { name: interface.name.clone(), mac: Some(interface.mac), mtu, net: Some(netns), index: None };
            let requests = by_host.entry(host).or_default();
            requests.push(Request::NumberNet { net: netns, number: sites.switches[host].net_number() });
            requests.push(Request::AddVeth(Veth { link, peer }));
            requests.extend(furnish(guard, solicits, lab, port, index));
            ports.insert(port, index);
        }
        for (host, requests) in by_host {
            sites.switches[host].make(Some(network), &requests).map_err(NetworkError::of(&of.name))?;
        }
        if !of.offloads {
            for End { port, .. } in ends {
                switch_offloads_off(&sites.switches[lab.nodes[port.node].host].netlink, &port.name(lab))?;
            }
        }
        Ok(())
    }

    /// The host's end of a node's interface.
    pub(super) fn port(&self, port: Port) -> Option<u32> {
        self.ports.get(&port).copied()
    }

    /// Sets the network's bridges up.
    pub(super) fn open(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        for (host, port, _) in members(lab, network).filter(|(_, port, _)| self.ports.contains_key(port)) {
            settle_port(&sites.switches[host].netlink, lab, port)?;
        }
        for host in hosts_here(lab, network) {
            let Some(switch) = self.by_host.get_mut(&(network, host)) else { continue };
            let mut requests = Vec::new();
            if !std::mem::replace(&mut switch.leads, true) {
                switch.lead(lab, network, &mut requests);
            }
            let up = |&index: &u32| Request::SetLink(SetLink { index, up: Some(true), ..SetLink::default() });
            requests.extend(switch.bridges.iter().map(up));
            sites.switches[host].netlink.run(&requests).map_err(NetworkError::of(&lab.networks[network].name))?;
        }
        Ok(())
    }

    pub(super) fn set_carrier(
        &mut self,
        lab: &Lab,
        port: Port,
        sites: &mut Sites,
        up: bool,
    ) -> Result<(), NetworkError> {
        let Some(&index) = self.ports.get(&port) else { return Ok(()) };
        let node = &lab.nodes[port.node];
        let netlink = &mut sites.switches[node.host].netlink;
        let set = netlink.run(&[Request::SetLink(SetLink { index, up: Some(up), ..SetLink::default() })]);
        unless_gone(node, set)?;
        settle_port(netlink, lab, port)
    }

    /// Takes a node's interface away.
    pub(super) fn detach(&mut self, lab: &Lab, port: Port, sites: &mut Sites) -> Result<(), NetworkError> {
        let Some(&index) = self.ports.get(&port) else { return Ok(()) };
        let node = &lab.nodes[port.node];
        let network = node.interfaces[port.slot].network;
        Ok(unless_gone(node, sites.switches[node.host].make(Some(network), &[Request::DeleteLink(index)]))?)
    }
}

/// Everything that a device needs as the port of a node's interface, but for its bridge.
fn furnish<'a>(
    guard: Option<&'a Guard>,
    solicits: &'a BTreeMap<NetworkId, Solicit>,
    lab: &Lab,
    port: Port,
    index: u32,
) -> Vec<Request<'a>> {
    let node = &lab.nodes[port.node];
    let interface = &node.interfaces[port.slot];
    let network = interface.network;
    let mut requests = vec![keep(index, !knows_all(lab, network))];
    requests.push(Request::AddForwarding { index, mac: interface.mac, to: Forward::Port });
    let solicit = solicits.get(&network);
    let guard = guard.filter(|_| !policy::forwards(node));
    if lab.networks[network].keeps_policy() || node.rules_its_network() {
        requests.push(Request::AddClsact(index));
    } else if solicit.is_some() || guard.is_some() {
        // Half the cost: the kernel goes through all such places for each new one (`flow_indr_dev_setup_offload`).
        requests.push(Request::AddIngress(index));
    }
    requests.extend(guard.map(|guard| guard.on(index)));
    requests.extend(solicit.map(|solicit| solicit.on(index)));
    requests
}

/// As [`settle`], for a port that a node may have deleted.
fn settle_port(netlink: &Netlink, lab: &Lab, port: Port) -> Result<(), NetworkError> {
    match settle(netlink, &port.name(lab)) {
        Err(_) if lab.nodes[port.node].rules_its_network() => Ok(()),
        settled => settled.map(drop),
    }
}

impl Switch {
    fn build(lab: &Lab, network: NetworkId, host: HostId, sites: &mut Sites) -> Result<Self, NetworkError> {
        let local: Vec<_> = members(lab, network).filter(|&(there, ..)| there == host).collect();
        let leaves = local.len().div_ceil(LEAF_PORTS);
        let site = &mut sites.switches[host];
        let mut switch = Self::default();
        let mtu = Some(mtu(lab, network));
        let mut requests = Vec::new();
        for number in 0..if leaves > 1 { leaves + 1 } else { 1 } {
            let index = site.index();
            let name = if number == 0 { format!("br{network}") } else { format!("br{network}.{number}") };
            // An address of its own: with one borrowed from a port it would change as ports come, and each change empties
            // the bridge's neighbour table.
            let mac = Some(bridge_mac(index));
            let link = NewLink { name: name.clone(), index: Some(index), mac, mtu, ..NewLink::default() };
            requests.push(Request::AddBridge(netlink::Bridge { link }));
            switch.bridges.push(index);
            if number > 0 {
                let (down, up) = (site.index(), site.index());
                let link = NewLink {
                    name: format!("{name}d"),
                    index: Some(down),
                    mtu,
                    master: Some(switch.bridges[0]),
                    up: true,
                    mac: None,
                };
                let peer = Peer { name: format!("{name}u"), index: Some(up), mtu, ..Peer::default() };
                requests.push(Request::AddVeth(Veth { link, peer }));
                requests.push(Request::SetLink(SetLink {
                    index: up,
                    master: Some(index),
                    up: Some(true),
                    ..SetLink::default()
                }));
                switch.down.push(down);
                switch.up.push(up);
            }
        }
        let first_leaf = usize::from(leaves > 1);
        switch.places =
            local.iter().enumerate().map(|(i, &(_, port, _))| (port, first_leaf + i / LEAF_PORTS)).collect();
        if !knows_all(lab, network) {
            switch.answers(lab, network, &mut requests);
        }
        site.make(Some(network), &requests).map_err(NetworkError::of(&lab.networks[network].name))?;
        for leaf in 1..switch.bridges.len() {
            for end in ["d", "u"] {
                settle(&site.netlink, &format!("br{network}.{leaf}{end}"))?;
            }
        }
        Ok(switch)
    }

    /// Entries that let the bridges answer for every node of the network.
    fn answers(&self, lab: &Lab, network: NetworkId, requests: &mut Vec<Request<'_>>) {
        requests.extend(self.down.iter().chain(&self.up).map(|&index| answer(index)));
        for (_, _, interface) in members(lab, network) {
            let (address, mac) = (interface.ipv4.into(), interface.mac);
            requests.extend(self.bridges.iter().map(|&index| Request::AddNeighbour { index, address, mac }));
        }
    }

    /// Entries for the way from each bridge to every local node that is on another. The kernel goes through all entries of a bridge
    /// as it gets a port (`br_manage_promisc`), so they come once the ports are there. (Ways to a node's own port come with
    /// the port; ways to other hosts with [`Switches::join_outside`].)
    fn lead(&self, lab: &Lab, network: NetworkId, requests: &mut Vec<Request<'_>>) {
        for (_, port, interface) in members(lab, network) {
            let mac = interface.mac;
            let Some(&place) = self.places.get(&port).filter(|_| !self.up.is_empty()) else { continue };
            for (leaf, (&down, &up)) in self.down.iter().zip(&self.up).enumerate() {
                let index = if leaf + 1 == place { down } else { up };
                requests.push(Request::AddForwarding { index, mac, to: Forward::Port });
            }
        }
    }
}

/// Locally administered, and different for every bridge of a host.
fn bridge_mac(index: u32) -> netlink::Mac {
    let [a, b, c, d] = index.to_be_bytes();
    [0x02, 0xb0, a, b, c, d]
}

/// Frames come in by this port from the addresses that it is told are behind it, and from no other: the bridge learns nothing.
/// It may answer ARP requests for them too.
fn keep(index: u32, answers: bool) -> Request<'static> {
    let answer_arp = answers.then_some(true);
    Request::SetBridgePort(BridgePort {
        index,
        locked: Some(true),
        learning: Some(false),
        answer_arp,
        ..BridgePort::default()
    })
}

/// The bridge answers ARP requests for nodes behind this port.
fn answer(index: u32) -> Request<'static> {
    Request::SetBridgePort(BridgePort { index, answer_arp: Some(true), ..BridgePort::default() })
}
