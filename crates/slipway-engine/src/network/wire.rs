//! Wires between hosts: each layer-2 network that spans hosts has one of its own, like a VLAN.

use slipway_lab::id::{HostId, NetworkId};
use slipway_lab::model::Lab;
use slipway_sys::netlink::{Bridge, Forward, NewLink, Request};

use super::device::switch_offloads_off;
use super::driver::{hosts_here, mtu};
use super::error::NetworkError;
use super::site::{Room, Sites, far_end};
use super::trunk::Trunk;

/// The device of a network's wire, on every host.
pub(super) fn name(network: NetworkId) -> String {
    format!("wire{network}")
}

/// Gives each host of a network a device `wireN`, all joined by a bridge between hosts. Returns their indices, by host.
/// With one host the wire leads nowhere, which is what a macvlan parent without a card needs.
pub(super) fn lay(lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<Vec<(HostId, u32)>, NetworkError> {
    let bridge = between(lab, network, sites)?;
    hosts_here(lab, network).into_iter().map(|host| Ok((host, reach(lab, network, host, bridge, sites)?))).collect()
}

/// Makes the bridge between hosts of a network's wire. Returns its index.
pub(super) fn between(lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<u32, NetworkError> {
    let mtu = Some(mtu(lab, network));
    let between = sites.between()?;
    let bridge = between.index();
    let link = NewLink { name: name(network), index: Some(bridge), mtu, up: true, ..NewLink::default() };
    between.make(Some(network), &[Request::AddBridge(Bridge { link })])?;
    sites.span(lab, Trunk::Network(network), bridge, self::mtu(lab, network))?;
    Ok(bridge)
}

/// Gives a host a device to the wire whose bridge this is. Returns its index.
pub(super) fn reach(
    lab: &Lab,
    network: NetworkId,
    host: HostId,
    bridge: u32,
    sites: &mut Sites,
) -> Result<u32, NetworkError> {
    let name = name(network);
    let index = sites.wire(Some(network), (Room::Switch, host), &name, bridge, Some(mtu(lab, network)), None)?;
    if !lab.networks[network].offloads {
        switch_offloads_off(&sites.switches[host].netlink, &name)?;
    }
    Ok(index)
}

/// Has frames to an address go to a host, whatever the wire's bridge has learnt.
pub(super) fn lead(network: NetworkId, host: HostId, mac: [u8; 6], sites: &mut Sites) -> Result<(), NetworkError> {
    let between = sites.between()?;
    let index = between.netlink.link(&far_end(&name(network), host))?.index;
    Ok(between.netlink.run(&[Request::AddForwarding { index, mac, to: Forward::Port }])?)
}
