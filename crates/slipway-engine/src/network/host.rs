//! Driver `host`: nodes share their host's network namespace. Each still has an address of its own there, reachable from
//! every host, so that programs and MPI host lists work as on any other network.
//!
//! The addresses sit on a device `nodesN`, one end of a wire that leads nowhere: packets between addresses of one
//! namespace take the kernel's loopback path whatever device the addresses are on, and MPI libraries skip addresses that
//! are on `lo` itself. Its other end is in a namespace of the lab's, so that even on this machine's own network
//! (`hosts: machine`) the device goes when the lab goes.

use std::net::IpAddr;
use std::os::fd::AsFd as _;

use slipway_lab::model::{DriverKind, Interface, Lab};
use slipway_sys::netlink::{NewLink, Peer, Request, SetLink, Veth};

use super::driver::{Driver, End, Port, Probed, Unsupported, hosts_of, members};
use super::error::NetworkError;
use super::site::Sites;

/// Addresses added at once: the kernel's announcements of them must fit a socket's receive buffer.
const ANNOUNCED: usize = 64;

#[derive(Debug)]
pub(super) struct Host;

impl Driver for Host {
    fn probe(&self) -> Result<Probed, Unsupported> {
        let mechanism = "the host's own network namespace".to_owned();
        let notes = vec!["nodes of one host share its ports, and have no link of their own to cut".to_owned()];
        Ok(Probed { driver: DriverKind::Host, mechanism, notes })
    }

    fn prepare(&mut self, lab: &Lab, network: usize, sites: &mut Sites) -> Result<Vec<String>, NetworkError> {
        let mut devices = Vec::new();
        for host in hosts_of(lab, network) {
            let name = add_addresses(lab, network, host, sites)?;
            devices.push(format!("{}: {name}", lab.hosts[host].name));
        }
        for host in hosts_of(lab, network) {
            add_routes(lab, network, host, sites)?;
        }
        Ok(devices)
    }

    fn attach(&mut self, _: &Lab, _: usize, _: &mut Sites, _: &[End<'_>]) -> Result<(), NetworkError> {
        Ok(())
    }

    fn set_carrier(&mut self, _: &Lab, _: Port, _: &mut Sites, _: bool) -> Result<(), NetworkError> {
        Ok(())
    }
}

/// Puts the addresses of a host's nodes on it.
fn add_addresses(lab: &Lab, network: usize, host: usize, sites: &mut Sites) -> Result<String, NetworkError> {
    let of = &lab.networks[network];
    // On this machine's own network names of other labs' devices are in use too.
    let name = if lab.machine { format!("sw{}-{network}", std::process::id()) } else { format!("nodes{network}") };
    let nowhere = sites.between()?.net().try_clone_to_owned().map_err(NetworkError::system("keep a namespace"))?;
    let site = &mut sites.hosts[host];
    let link = NewLink { name: name.clone(), up: true, ..NewLink::default() };
    let peer = Peer { name: format!("nowhere{network}.{host}"), net: Some(nowhere.as_fd()), ..Peer::default() };
    site.netlink.run(&[Request::AddVeth(Veth { link, peer })]).map_err(NetworkError::of(&of.name))?;
    if of.ipv6.is_some() {
        site.sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "0")?;
    }
    let index = site.netlink.link(&name)?.index;
    site.netlink.run(&[Request::SetLink(SetLink { index, up: Some(true), ..SetLink::default() })])?;
    let local: Vec<_> =
        members(lab, network).filter(|&(there, ..)| there == host).map(|(.., interface)| interface).collect();
    for some in local.chunks(ANNOUNCED) {
        let watch = site.watch_addresses()?;
        let requests =
            some.iter().flat_map(|interface| addresses(lab, network, interface)).map(|(address, prefix, _)| {
                // Without a route: the subnet's other addresses are on other hosts, not on this wire.
                Request::AddAddress { index, address, prefix, subnet_route: false }
            });
        site.netlink.run(&requests.collect::<Vec<_>>()).map_err(NetworkError::of(&of.name))?;
        watch.wait(some.iter().filter_map(|interface| interface.ipv6).collect())?;
    }
    Ok(name)
}

/// Tells a host where the nodes of the others are.
fn add_routes(lab: &Lab, network: usize, host: usize, sites: &mut Sites) -> Result<(), NetworkError> {
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

/// A node's addresses, each with its subnet's prefix length and the address's own length, bits.
fn addresses(lab: &Lab, network: usize, interface: &Interface) -> impl Iterator<Item = (IpAddr, u8, u8)> {
    let of = &lab.networks[network];
    let v4 = (IpAddr::from(interface.ipv4), of.ipv4.prefix_len(), 32);
    let v6 = interface.ipv6.zip(of.ipv6).map(|(address, subnet)| (IpAddr::from(address), subnet.prefix_len(), 128));
    std::iter::once(v4).chain(v6)
}
