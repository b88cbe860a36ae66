//! Wires between hosts: each layer-2 network that spans hosts has one of its own, like a VLAN.

use slipway_lab::id::{HostId, NetworkId};
use slipway_lab::model::Lab;
use slipway_sys::netlink::{Bridge, NewLink, Request};

use super::device::switch_offloads_off;
use super::driver::{hosts_of, mtu};
use super::error::NetworkError;
use super::site::{Room, Sites};

/// The device of a network's wire, on every host.
pub(super) fn name(network: NetworkId) -> String {
    format!("wire{network}")
}

/// Gives each host of a network a device `wireN`, all joined by a bridge between hosts. Returns their indices, by host.
/// With one host the wire leads nowhere, which is what a macvlan parent without a card needs.
pub(super) fn lay(lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<Vec<(HostId, u32)>, NetworkError> {
    let name = name(network);
    let mtu = Some(mtu(lab, network));
    let between = sites.between()?;
    let bridge = between.index();
    let link = NewLink { name: name.clone(), index: Some(bridge), mtu, up: true, ..NewLink::default() };
    between.make(Some(network), &[Request::AddBridge(Bridge { link })])?;
    let mut laid = Vec::new();
    for host in hosts_of(lab, network) {
        let index = sites.wire(Some(network), (Room::Switch, host), &name, bridge, mtu)?;
        if !lab.networks[network].offloads {
            switch_offloads_off(&sites.switches[host].netlink, &name)?;
        }
        laid.push((host, index));
    }
    Ok(laid)
}
