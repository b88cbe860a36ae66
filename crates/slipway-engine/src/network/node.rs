//! A node's own side of its networks: run by the node's init, inside its network namespace, while others do the same.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::model::{DriverKind, Lab};
use slipway_sys::mount::set_sysctl;
use slipway_sys::netlink::{AddrGenMode, AddressWatch, Netlink, Request, SetLink};

use super::device::{settle, switch_offloads_off};
use super::driver::members;
use super::error::NetworkError;
use super::site::LOOPBACK;

/// Up to this many members of a network, each node has a permanent neighbour entry for every other. Entries cost about
/// 0.5 KiB of kernel memory each, so with more members they would outgrow the nodes themselves.
const KNOWN_NEIGHBOURS: usize = 256;
/// The same limit where Linux bridges answer for the nodes. A bridge needs one entry a node. The nodes' own entries for
/// each other would take a third of the time to make 100 nodes.
const KNOWN_BESIDE_A_BRIDGE: usize = 64;
/// Milliseconds: an hour. How long a node waits before it repeats that it listens to its own multicast groups.
const REPORT_INTERVAL: &str = "3600000";

/// A new namespace has the machine's own settings. A node routes where the lab says that it is a gateway, and its routes are
/// the lab's: nobody else on its networks may give it others. Its own `sysctls` may ask for what they like.
const CLOSED: [(&str, &str); 4] = [
    // First: to change it sets the others anew.
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv4/conf/all/accept_source_route", "0"),
];

/// Whether every node of a network has a neighbour entry for every other.
pub(super) fn knows_all(lab: &Lab, network: NetworkId) -> bool {
    let most = match lab.networks[network].driver {
        DriverKind::Bridge | DriverKind::Vxlan => KNOWN_BESIDE_A_BRIDGE,
        DriverKind::Host | DriverKind::Ovs | DriverKind::Macvlan | DriverKind::Sriov => KNOWN_NEIGHBOURS,
    };
    members(lab, network).nth(most).is_none()
}

/// Settles a new network namespace before it has interfaces, the node's own kernel settings last. `proc` is a mount of `/proc` that
/// may be written to. The kernel looks a setting up among those of all namespaces that went by the same mount, so each node
/// has its own.
///
/// The lab gives out a node's addresses, so nothing needs to probe, solicit or announce them. By default, each new node
/// would send six multicast packets to every other.
///
/// # Errors
/// When a sysctl cannot be written.
pub fn prepare_node(lab: &Lab, node: NodeId, proc: BorrowedFd<'_>) -> Result<(), NetworkError> {
    let node = &lab.nodes[node];
    let mut settings = CLOSED.to_vec();
    if node.interfaces.iter().any(|interface| interface.ipv6.is_some()) {
        settings.push(("net/ipv6/conf/default/accept_dad", "0"));
        settings.push(("net/ipv6/conf/default/router_solicitations", "0"));
        settings.push(("net/ipv6/conf/default/accept_ra", "0"));
        settings.push(("net/ipv6/conf/default/accept_redirects", "0"));
        settings.push(("net/ipv6/conf/default/mldv2_unsolicited_report_interval", REPORT_INTERVAL));
        if node.gateway {
            settings.push(("net/ipv6/conf/all/forwarding", "1"));
        }
    } else {
        settings.push(("net/ipv6/conf/default/disable_ipv6", "1"));
    }
    if node.gateway {
        settings[0].1 = "1";
        settings.push(("net/ipv4/conf/all/send_redirects", "0"));
        settings.push(("net/ipv4/conf/default/send_redirects", "0"));
    }
    let own = node.sysctls.iter().map(|(name, value)| (name.replace('.', "/"), value.as_str()));
    for (name, value) in settings.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(own) {
        let what = format!("set /proc/sys/{name} to {value}");
        set_sysctl(proc, &name, value).map_err(NetworkError::system(what))?;
    }
    Ok(())
}

/// Sets the node's interfaces up: addresses, neighbours, routes. It corrects settings that are there already, so that
/// it can configure a stopped node again. Nothing to do for a node on driver host.
///
/// # Errors
/// When an interface is missing, or the kernel refuses a part.
pub fn configure_node(lab: &Lab, node: NodeId) -> Result<(), NetworkError> {
    let this = &lab.nodes[node];
    if this.interfaces.iter().any(|interface| lab.networks[interface.network].driver == DriverKind::Host) {
        return Ok(());
    }
    let mut netlink = Netlink::open().map_err(NetworkError::system("open a netlink socket"))?;
    // A node that was stopped may have carriers that are on their way back.
    for interface in &this.interfaces {
        settle(&netlink, &interface.name)?;
    }
    let links = netlink.links()?;
    let set = |index| SetLink { index, ..SetLink::default() };
    let mut requests = vec![Request::SetLink(SetLink { up: Some(true), ..set(LOOPBACK) })];
    for interface in &this.interfaces {
        let network = &lab.networks[interface.network];
        let missing =
            || NetworkError::impossible(&network.name, format!("node {} has no {}", this.name, interface.name));
        let index = links.iter().find(|link| link.name == interface.name).ok_or_else(missing)?.index;
        let address = |address, prefix| Request::AddAddress { index, address, prefix, subnet_route: true };
        if interface.ipv6.is_none() {
            requests.push(Request::SetLink(SetLink { addr_gen_mode: Some(AddrGenMode::None), ..set(index) }));
        }
        requests.push(Request::SetLink(SetLink { up: Some(true), ..set(index) }));
        requests.push(address(interface.ipv4.into(), network.ipv4.prefix_len()));
        let ipv6 = interface.ipv6.zip(network.ipv6);
        requests.extend(ipv6.map(|(ipv6, subnet)| address(ipv6.into(), subnet.prefix_len())));
        if knows_all(lab, interface.network) {
            for (_, _, other) in members(lab, interface.network).filter(|(_, port, _)| port.node != node) {
                let neighbour = |address| Request::AddNeighbour { index, address, mac: other.mac };
                requests.push(neighbour(other.ipv4.into()));
                requests.extend(other.ipv6.map(IpAddr::from).map(neighbour));
            }
        }
    }
    for route in &this.routes {
        let (to, prefix, via) = (route.to.network(), route.to.prefix_len(), Some(route.via));
        requests.push(Request::AddRoute { to, prefix, via, index: None, source: None });
    }
    let watch = AddressWatch::open().map_err(NetworkError::system("listen for addresses"))?;
    netlink.run(&requests)?;
    watch.wait(this.interfaces.iter().filter_map(|interface| interface.ipv6).collect())?;
    for interface in &this.interfaces {
        settle(&netlink, &interface.name)?;
        if !lab.networks[interface.network].offloads {
            switch_offloads_off(&netlink, &interface.name)?;
        }
    }
    Ok(())
}
