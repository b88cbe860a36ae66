//! Wires between hosts: each layer-2 network that spans hosts has one of its own, like a VLAN.

use slipway_lab::model::Lab;
use slipway_sys::netlink::{Bridge, NewLink, Peer, Request, SetLink, Veth};

use super::driver::{hosts_of, mtu};
use super::error::NetworkError;
use super::site::Sites;

/// Gives each host of a network a device `wireN`, all joined by a bridge between hosts. Returns their indices, by host.
/// With one host the wire leads nowhere, which is what a macvlan parent without a card needs.
pub(super) fn lay(lab: &Lab, network: usize, sites: &mut Sites) -> Result<Vec<(usize, u32)>, NetworkError> {
    let name = format!("wire{network}");
    let mtu = Some(mtu(lab, network));
    let of_network = || NetworkError::of(&lab.networks[network].name);
    let between = sites.between()?;
    let bridge = between.index();
    let link = NewLink { name: name.clone(), index: Some(bridge), mtu, up: true, ..NewLink::default() };
    between.netlink.run(&[Request::AddBridge(Bridge { link })]).map_err(of_network())?;
    let mut laid = Vec::new();
    for host in hosts_of(lab, network) {
        let (site, between) = sites.ends(host)?;
        let (near, far) = (site.index(), between.index());
        let link = NewLink { name: name.clone(), index: Some(near), mtu, up: true, ..NewLink::default() };
        let peer =
            Peer { name: format!("{name}.{}", host + 1), index: Some(far), mtu, net: Some(between.net()), mac: None };
        site.netlink.run(&[Request::AddVeth(Veth { link, peer })]).map_err(of_network())?;
        let join = SetLink { index: far, master: Some(bridge), up: Some(true), ..SetLink::default() };
        between.netlink.run(&[Request::SetLink(join)]).map_err(of_network())?;
        if !lab.networks[network].offloads {
            super::driver::switch_offloads_off(&site.netlink, &name)?;
        }
        laid.push((host, near));
    }
    Ok(laid)
}
