//! Driver `host`: nodes share their host's network namespace. Each still has an address of its own there, reachable from
//! every host, so that programs and MPI host lists work as on any other network.
//!
//! A node's addresses sit on a device `nodesNETWORK.POSITION`, one end of a wire that leads nowhere. Packets between
//! addresses of one namespace take the kernel's loopback path on any device, and MPI libraries skip addresses on `lo`
//! itself. Its other end is in a namespace of the lab's, so that even on this machine's own network (`hosts: machine`)
//! the device goes when the lab goes.
//!
//! Programs see the addresses of all nodes on their host. [`sources`] has them send from their own.

use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use slipway_lab::id::{HostId, NetworkId, NodeId};
use slipway_lab::model::{DriverKind, Interface, Lab};
use slipway_sys::bpf::{SourceAddress, SourceAddresses};
use slipway_sys::cgroup::{Hierarchy, Mode};
use slipway_sys::netlink::{LOCAL_TABLE, Netlink, NewLink, Peer, Request, Rule, SetLink, Veth};

use super::driver::{Driver, End, Port, Probed, hosts_here, hosts_of, members};
use super::error::{NetworkError, Unsupported};
use super::site::Sites;

/// Addresses added at once: the kernel's announcements of them must fit a socket's receive buffer.
const ANNOUNCED: usize = 64;

#[derive(Debug)]
pub(super) struct Host;

impl Driver for Host {
    fn probe(&self) -> Result<Probed, Unsupported> {
        let mechanism = "the host's own network namespace".to_owned();
        let mut notes = vec!["nodes of one host share its ports, and have no link of their own to cut".to_owned()];
        notes.extend(why_no_sources().map(|why| {
            format!("programs send from the first node's address of their host, not their own node's, which Open MPI refuses: {why}")
        }));
        Ok(Probed { driver: DriverKind::Host.into(), mechanism, notes })
    }

    fn prepare(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        for host in hosts_here(lab, network) {
            add_addresses(lab, network, host, sites)?;
        }
        for host in hosts_here(lab, network) {
            add_routes(lab, network, host, sites)?;
            add_sources(lab, network, host, sites)?;
        }
        Ok(())
    }

    fn attach(&mut self, _: &Lab, _: NetworkId, _: &mut Sites, _: &[End<'_>]) -> Result<(), NetworkError> {
        Ok(())
    }

    fn set_carrier(&mut self, _: &Lab, _: Port, _: &mut Sites, _: bool) -> Result<(), NetworkError> {
        Ok(())
    }
}

/// Puts the addresses of a host's nodes on it, each on a device of its own. Some MPI libraries know a node by the last
/// address of a device, and send from the first.
fn add_addresses(lab: &Lab, network: NetworkId, host: HostId, sites: &mut Sites) -> Result<(), NetworkError> {
    let of = &lab.networks[network];
    let local: Vec<_> =
        members(lab, network).filter(|&(there, ..)| there == host).map(|(.., interface)| interface).collect();
    for (some, first) in local.chunks(ANNOUNCED).zip((1..).step_by(ANNOUNCED)) {
        let names: Vec<String> = (first..first + some.len()).map(|position| device(lab, network, position)).collect();
        let near = add_devices(lab, &names, network, host, sites)?;
        let site = &mut sites.hosts[host];
        let watch = site.watch_addresses()?;
        let mut requests = Vec::new();
        for ((interface, name), index) in some.iter().zip(&names).zip(near) {
            if of.ipv6.is_some() {
                site.sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "0")?;
            }
            requests.extend(addresses(lab, network, interface).map(|(address, prefix, _)| {
                // Without a route: the subnet's other addresses are on other devices and hosts, not on this wire.
                Request::AddAddress { index, address, prefix, subnet_route: false }
            }));
        }
        site.netlink.run(&requests).map_err(NetworkError::of(&of.name))?;
        watch.wait(some.iter().filter_map(|interface| interface.ipv6).collect())?;
    }
    Ok(())
}

/// The device of a node, by its position on its host. (On this machine's own network, names of other labs' devices are in use.)
fn device(lab: &Lab, network: NetworkId, position: usize) -> String {
    let of_process = of_process(std::process::id());
    if lab.machine {
        format!("{of_process}{:x}.{position:x}", network.index())
    } else {
        format!("nodes{network}.{position}")
    }
}

/// How the names of devices begin that a lab's anchor has on this machine's own network.
fn of_process(anchor: u32) -> String {
    format!("s{anchor:x}-")
}

/// Waits until this machine's own network has none of the devices that an anchor made, which has ended. The kernel removes
/// them with the namespace that holds their other ends, a little later.
pub fn wait_until_gone(anchor: u32, patience: Duration) -> Result<(), NetworkError> {
    let prefix = of_process(anchor);
    let left = slipway_sys::netlink::wait_until_gone(|link| link.name.starts_with(&prefix), patience)
        .map_err(NetworkError::Watch)?;
    if left.is_empty() { Ok(()) } else { Err(NetworkError::Remain(left)) }
}

/// Makes devices, and gives their interface indices. The far ends of their wires are up too: UCX passes by what has no carrier.
fn add_devices(
    lab: &Lab,
    names: &[String],
    network: NetworkId,
    host: HostId,
    sites: &mut Sites,
) -> Result<Vec<u32>, NetworkError> {
    let between = sites.between()?;
    let nowhere = between.net().try_clone_to_owned().map_err(NetworkError::system("keep a namespace"))?;
    let far: Vec<String> = names.iter().map(|_| format!("nowhere{}", between.index())).collect();
    let pairs = names.iter().zip(&far).map(|(name, far)| {
        let link = NewLink { name: name.clone(), up: true, ..NewLink::default() };
        let peer = Peer { name: far.clone(), net: Some(nowhere.as_fd()), ..Peer::default() };
        Request::AddVeth(Veth { link, peer })
    });
    let site = &mut sites.hosts[host];
    site.make(Some(network), &pairs.collect::<Vec<_>>()).map_err(NetworkError::of(&lab.networks[network].name))?;
    let near = set_up(&mut site.netlink, names)?;
    set_up(&mut sites.between()?.netlink, &far)?;
    Ok(near)
}

/// Sets devices up, and gives their interface indices.
fn set_up(netlink: &mut Netlink, names: &[String]) -> Result<Vec<u32>, NetworkError> {
    let links = netlink.links()?;
    let index = |name: &String| links.iter().find(|link| link.name == *name).map(|link| link.index);
    let indices: Vec<u32> = names.iter().filter_map(index).collect();
    let up = |&index: &u32| Request::SetLink(SetLink { index, up: Some(true), ..SetLink::default() });
    netlink.run(&indices.iter().map(up).collect::<Vec<_>>())?;
    Ok(indices)
}

/// Tells a host where the nodes of the others are.
fn add_routes(lab: &Lab, network: NetworkId, host: HostId, sites: &mut Sites) -> Result<(), NetworkError> {
    let Some((.., own)) = members(lab, network).find(|&(there, ..)| there == host) else { return Ok(()) };
    let mut requests = Vec::new();
    for (there, _, interface) in members(lab, network).filter(|&(there, ..)| there != host) {
        for ((to, _, bits), (source, ..)) in addresses(lab, network, interface).zip(addresses(lab, network, own)) {
            let next = &lab.hosts[there];
            let via = if to.is_ipv4() { next.ipv4.map(IpAddr::from) } else { next.ipv6.map(IpAddr::from) };
            requests.push(Request::AddRoute { to, prefix: bits, via, index: None, source: Some(source) });
        }
    }
    sites.hosts[host].netlink.run(&requests).map_err(NetworkError::of(&lab.networks[network].name))
}

/// Up to this many members of a network, each has routes of its own to all others. More would be slow to make.
const OWN_ROUTES: usize = 128;
/// Where routing rules are moved that must not come first, and where ours come.
const OWN_RULES: u32 = 100;

/// Has sockets of nodes send from their node's address whatever they are bound to, by routes of each node's own. This machine's own
/// rules stay as they are: there, `SourceAddresses` alone serves.
fn add_sources(lab: &Lab, network: NetworkId, host: HostId, sites: &mut Sites) -> Result<(), NetworkError> {
    let of = &lab.networks[network];
    if lab.machine || members(lab, network).nth(OWN_ROUTES).is_some() {
        return Ok(());
    }
    let mut requests = Vec::new();
    for ipv6 in [false].into_iter().chain(of.ipv6.map(|_| true)) {
        let first = |priority| Rule { ipv6, priority, mark: None, table: LOCAL_TABLE };
        // Once for all networks of a host.
        if network == first_network(lab, host) {
            requests.extend([Request::AddRule(first(2 * OWN_RULES)), Request::DeleteRule(first(0))]);
        }
        for (_, port, own) in members(lab, network).filter(|&(there, ..)| there == host) {
            let table = table(port.node);
            requests.push(Request::AddRule(Rule { ipv6, priority: OWN_RULES, mark: Some(mark(port.node)), table }));
            let Some((source, ..)) = addresses(lab, network, own).find(|(address, ..)| address.is_ipv6() == ipv6)
            else {
                continue;
            };
            for (there, _, other) in members(lab, network) {
                let Some((to, ..)) = addresses(lab, network, other).find(|(to, ..)| to.is_ipv6() == ipv6) else {
                    continue;
                };
                let next = &lab.hosts[there];
                let via = if ipv6 { next.ipv6.map(IpAddr::from) } else { next.ipv4.map(IpAddr::from) };
                let via = via.filter(|_| there != host);
                requests.push(Request::AddOwnRoute { table, to, via, source });
            }
        }
    }
    sites.hosts[host].netlink.run(&requests).map_err(NetworkError::of(&of.name))
}

/// The first network of driver `host` that a host has nodes on.
fn first_network(lab: &Lab, host: HostId) -> NetworkId {
    let is = |&network: &NetworkId| {
        lab.networks[network].driver == DriverKind::Host
            && hosts_of(lab, network).into_iter().any(|there| there == host)
    };
    lab.networks.ids().find(is).unwrap_or_default()
}

/// The mark on the sockets of a node.
#[must_use]
pub fn mark(node: NodeId) -> u32 {
    0x5e00_0000 | u32::try_from(node.index() + 1).unwrap_or(0)
}

/// The routing table of a node.
fn table(node: NodeId) -> u32 {
    1000 + u32::try_from(node.index()).unwrap_or(0)
}

/// The addresses that a node's programs are to send from; none for a node that is not on driver `host`.
#[must_use]
pub fn sources(lab: &Lab, node: NodeId) -> Vec<SourceAddress> {
    let on_host = |interface: &&Interface| lab.networks[interface.network].driver == DriverKind::Host;
    let interfaces = lab.nodes[node].interfaces.iter().filter(on_host);
    let all = interfaces.flat_map(|interface| addresses(lab, interface.network, interface));
    all.map(|(address, prefix, _)| SourceAddress { address, prefix }).collect()
}

/// The reason that this machine cannot have programs send from these addresses; `None` where it can.
fn why_no_sources() -> Option<String> {
    match Hierarchy::detect() {
        Ok(hierarchy) if hierarchy.mode() == Mode::V1 => Some("control groups of version 2 are not mounted".to_owned()),
        Ok(_) => SourceAddresses::probe().err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// A node's addresses, each with its subnet's prefix length and the address's own length, bits.
fn addresses(lab: &Lab, network: NetworkId, interface: &Interface) -> impl Iterator<Item = (IpAddr, u8, u8)> {
    let of = &lab.networks[network];
    let v4 = (IpAddr::from(interface.ipv4), of.ipv4.prefix_len(), 32);
    let v6 = interface.ipv6.zip(of.ipv6).map(|(address, subnet)| (IpAddr::from(address), subnet.prefix_len(), 128));
    std::iter::once(v4).chain(v6)
}
