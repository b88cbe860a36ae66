//! Driver `macvlan`: each node has a device of its own on a shared wire, without a bridge in between.
//!
//! The wire is the machine's interface that `parent` names, or the virtual host's own wire to the other hosts.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use slipway_lab::id::{HostId, NetworkId, NodeId};
use slipway_lab::model::{DriverKind, Lab, MacvlanMode};
use slipway_sys::netlink::{self, Netlink, NewLink, Peer, Request, SetLink, Veth};
use slipway_sys::ns::with_net;

use super::device::try_in_scratch;
use super::driver::{Driver, End, Port, Probed, mtu};
use super::error::{NetworkError, Unsupported};
use super::graph::Kind;
use super::site::Sites;
use super::wire;

#[derive(Debug, Default)]
pub(super) struct Macvlan {
    /// The wire of each network, by host.
    parents: BTreeMap<(NetworkId, HostId), u32>,
    /// Nodes' namespaces: a macvlan device has no other end to take its carrier from.
    nodes: BTreeMap<NodeId, OwnedFd>,
}

impl Driver for Macvlan {
    fn probe(&self) -> Result<Probed, Unsupported> {
        let named = |name: &str, index| NewLink { name: name.to_owned(), index: Some(index), ..NewLink::default() };
        let veth = Veth { link: named("veth", 100), peer: Peer { name: "peer".to_owned(), ..Peer::default() } };
        let mode = netlink::MacvlanMode::Bridge;
        let macvlan = netlink::Macvlan { link: named("macvlan", 101), parent: 100, mode, net: None };
        try_in_scratch(DriverKind::Macvlan, "macvlan", &[Request::AddVeth(veth), Request::AddMacvlan(macvlan)])?;
        let mechanism = "macvlan devices on a shared wire".to_owned();
        Ok(Probed { driver: DriverKind::Macvlan.into(), mechanism, notes: Vec::new() })
    }

    fn check(&self, lab: &Lab, network: NetworkId) -> Result<(), NetworkError> {
        let of = &lab.networks[network];
        let Some(parent) = &of.parent else {
            if lab.machine {
                let reason = "it has no parent interface\nHint: name one of this machine's in `parent` (see ip link)";
                return Err(NetworkError::impossible(&of.name, reason));
            }
            return Ok(());
        };
        let found = Netlink::open().map_err(NetworkError::system("open a netlink socket"))?.link(parent);
        let link = found.map_err(|_| {
            NetworkError::impossible(
                &of.name,
                format!("this machine has no interface {parent}\nHint: ip link lists what it has"),
            )
        })?;
        if mtu(lab, network) > link.mtu {
            let reason = format!(
                "its MTU of {} bytes is more than that of its parent {parent}\nHint: ask for {} or less",
                mtu(lab, network),
                link.mtu
            );
            return Err(NetworkError::impossible(&of.name, reason));
        }
        Ok(())
    }

    fn prepare(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        if let Some(parent) = &lab.networks[network].parent {
            let index = sites.machine.netlink.link(parent)?.index;
            self.parents.extend(lab.hosts.ids().map(|host| ((network, host), index)));
            sites.machine.made.found(parent, Some(index), Some(network), Kind::Found);
            return Ok(());
        }
        let laid = wire::lay(lab, network, sites)?;
        self.parents.extend(laid.iter().map(|&(host, index)| ((network, host), index)));
        Ok(())
    }

    fn attach(
        &mut self,
        lab: &Lab,
        network: NetworkId,
        sites: &mut Sites,
        ends: &[End<'_>],
    ) -> Result<(), NetworkError> {
        let of = &lab.networks[network];
        let mode = match of.macvlan_mode {
            MacvlanMode::Bridge => netlink::MacvlanMode::Bridge,
            MacvlanMode::Private => netlink::MacvlanMode::Private,
            MacvlanMode::Vepa => netlink::MacvlanMode::Vepa,
        };
        let mut by_host = BTreeMap::<HostId, Vec<Request<'_>>>::new();
        for &End { port, interface, netns } in ends {
            let host = lab.nodes[port.node].host;
            let mtu = Some(mtu(lab, network));
            let link = NewLink { name: interface.name.clone(), mac: Some(interface.mac), mtu, ..NewLink::default() };
            let parent = self.parents[&(network, host)];
            let macvlan = netlink::Macvlan { link, parent, mode, net: Some(netns) };
            by_host.entry(host).or_default().push(Request::AddMacvlan(macvlan));
            let kept = netns.try_clone_to_owned().map_err(NetworkError::system("keep a node's namespace"))?;
            self.nodes.insert(port.node, kept);
        }
        for (host, requests) in by_host {
            let site = if of.parent.is_some() { &mut sites.machine } else { &mut sites.switches[host] };
            site.make(Some(network), &requests).map_err(NetworkError::of(&of.name))?;
        }
        Ok(())
    }

    fn set_carrier(&mut self, lab: &Lab, port: Port, _sites: &mut Sites, up: bool) -> Result<(), NetworkError> {
        let Some(net) = self.nodes.get(&port.node) else { return Ok(()) };
        set_inside(net, &lab.nodes[port.node].interfaces[port.slot].name, up)
    }
}

/// Sets a node's own interface up or down.
pub(super) fn set_inside(net: &OwnedFd, name: &str, up: bool) -> Result<(), NetworkError> {
    let opened = with_net(net.as_fd(), Netlink::open).and_then(|socket| socket);
    let mut netlink = opened.map_err(NetworkError::system("enter a node's network namespace"))?;
    let index = netlink.link(name)?.index;
    Ok(netlink.run(&[Request::SetLink(SetLink { index, up: Some(up), ..SetLink::default() })])?)
}
