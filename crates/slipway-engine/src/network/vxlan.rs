//! Driver `vxlan`: a bridge on every host, joined by unicast VXLAN tunnels (RFC 7348).
//!
//! The tunnels learn nothing and ask nobody. A static entry for every node on another host names its host, and each
//! other host has an entry of its own for broadcast.
//!
//! A tunnel's two sides are in two namespaces: its frames in the one of the host's switches, its packets in one that holds
//! nothing else ([`super::site::Room`]). No node can send a packet that a tunnel takes for another host's.

use std::collections::BTreeMap;
use std::net::IpAddr;

use slipway_lab::id::{HostId, NetworkId};
use slipway_lab::model::{DriverKind, Lab};
use slipway_sys::netlink::{self, Forward, NewLink, Request};

use super::device::{switch_offloads_off, try_in_scratch};
use super::driver::{Driver, End, Port, Probed, Relocation, VXLAN_OVERHEAD, hosts_of, members, mtu};
use super::error::{NetworkError, Unsupported};
use super::site::{LOOPBACK, Sites, TUNNEL};
use super::switch::{self, Switches};

/// The registered UDP port.
const PORT: u16 = 4789;
/// The entry for frames that no other entry names.
const EVERY: netlink::Mac = [0; 6];

#[derive(Debug, Default)]
pub(super) struct Vxlan {
    switches: Switches,
    /// Hosts' ends of tunnels.
    tunnels: BTreeMap<(NetworkId, HostId), u32>,
}

impl Driver for Vxlan {
    fn probe(&self) -> Result<Probed, Unsupported> {
        switch::probe(DriverKind::Vxlan)?;
        let link = NewLink { name: "vxlan".to_owned(), ..NewLink::default() };
        let local = IpAddr::from([127, 0, 0, 1]);
        let trial = netlink::Vxlan { link, vni: 1, local, port: PORT, lower: LOOPBACK, net: None };
        try_in_scratch(DriverKind::Vxlan, "vxlan", &[Request::AddVxlan(trial)])?;
        let mechanism = "a Linux bridge on every host, joined by unicast VXLAN tunnels with static entries".to_owned();
        let mut notes = switch::notes();
        notes.push("a network on one host alone has no tunnel, only the tunnel's MTU".to_owned());
        Ok(Probed { driver: DriverKind::Vxlan.into(), mechanism, notes })
    }

    fn check(&self, lab: &Lab, network: NetworkId) -> Result<(), NetworkError> {
        let asked = &lab.networks[network];
        let Some(underlay) = &lab.underlay else { return Ok(()) };
        let most = underlay.mtu.saturating_sub(VXLAN_OVERHEAD);
        let mtu = mtu(lab, network);
        let problem = if mtu > most {
            format!(
                "its MTU of {mtu} bytes does not fit: the underlay's is {} and a VXLAN tunnel takes {VXLAN_OVERHEAD} of it\n\
                 Hint: ask for {most} or less, leave mtu out, or give the underlay an mtu of {} or more",
                underlay.mtu,
                mtu + VXLAN_OVERHEAD
            )
        } else if asked.ipv6.is_some() && mtu < 1280 {
            format!(
                "the underlay's MTU of {} bytes leaves {mtu}, and IPv6 needs 1280\nHint: raise it, or set ipv6: false",
                underlay.mtu
            )
        } else {
            return Ok(());
        };
        Err(NetworkError::impossible(&asked.name, problem))
    }

    fn prepare(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        self.switches.build(lab, network, sites)?;
        self.join_hosts(lab, network, sites)
    }

    fn relocate(&mut self, way: &Relocation<'_>, sites: &mut Sites) -> Result<(), NetworkError> {
        let (network, lab, mac) = (way.network(), way.after, way.interface().mac);
        if lab.is_here(way.to()) {
            self.switches.build_on(lab, network, way.to(), sites)?;
        }
        self.switches.check_room(way)?;
        let had = self.tunnels.clone();
        self.join_hosts(lab, network, sites)?;
        let at = |host| Ok::<_, NetworkError>(Forward::Remote(address(lab, network, host)?));
        let (old, new) = (at(way.from())?, at(way.to())?);
        for (&(of, host), &index) in had.iter().filter(|((of, _), _)| *of == network) {
            let mut requests = Vec::new();
            if host != way.from() {
                requests.push(Request::DeleteForwarding { index, mac, to: old });
            }
            if host != way.to() {
                requests.push(Request::AddForwarding { index, mac, to: new });
            }
            sites.switches[host].make(Some(of), &requests).map_err(NetworkError::of(&lab.networks[of].name))?;
        }
        self.switches.relocate(way, sites)
    }

    fn attach(
        &mut self,
        lab: &Lab,
        network: NetworkId,
        sites: &mut Sites,
        ends: &[End<'_>],
    ) -> Result<(), NetworkError> {
        self.switches.attach(lab, network, sites, ends)
    }

    fn detach(&mut self, lab: &Lab, port: Port, sites: &mut Sites) -> Result<(), NetworkError> {
        self.switches.detach(lab, port, sites)
    }

    fn open(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        self.switches.open(lab, network, sites)
    }

    fn host_end(&self, port: Port) -> Option<u32> {
        self.switches.port(port)
    }

    fn set_carrier(&mut self, lab: &Lab, port: Port, sites: &mut Sites, up: bool) -> Result<(), NetworkError> {
        self.switches.set_carrier(lab, port, sites, up)
    }
}

impl Vxlan {
    /// Joins all hosts that have bridges of a network by tunnels, as far as they are not yet.
    fn join_hosts(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        let here = self.switches.hosts(network);
        let fresh: Vec<HostId> =
            here.iter().copied().filter(|&host| !self.switches.leads_outside(network, host)).collect();
        let there = hosts_of(lab, network).into_iter().filter(|&host| !lab.is_here(host));
        let hosts: Vec<HostId> = here.iter().copied().chain(there).collect();
        if hosts.len() < 2 || fresh.is_empty() {
            return Ok(());
        }
        // Those that are there already learn of the new ones.
        for (&(of, host), &index) in self.tunnels.iter().filter(|((of, _), _)| *of == network) {
            let every = |&there: &HostId| {
                let to = Forward::Remote(address(lab, network, there)?);
                Ok::<_, NetworkError>(Request::AddForwarding { index, mac: EVERY, to })
            };
            let requests = fresh.iter().map(every).collect::<Result<Vec<_>, _>>()?;
            sites.switches[host].make(Some(of), &requests).map_err(NetworkError::of(&lab.networks[of].name))?;
        }
        for host in fresh {
            let name = format!("vxlan{network}");
            let index = add_tunnel(lab, network, (host, &hosts), sites, &name)?;
            self.switches.join_outside(lab, network, host, sites, index)?;
            self.tunnels.insert((network, host), index);
        }
        Ok(())
    }
}

/// A host's address on the underlay.
fn address(lab: &Lab, network: NetworkId, host: HostId) -> Result<IpAddr, NetworkError> {
    let name = &lab.hosts[host].name;
    let missing =
        || NetworkError::impossible(&lab.networks[network].name, format!("host {name} has no underlay address"));
    lab.hosts[host].ipv4.map(IpAddr::from).ok_or_else(missing)
}

/// Makes a host's end of the tunnels and tells it where every other node is.
fn add_tunnel(
    lab: &Lab,
    network: NetworkId,
    (host, hosts): (HostId, &[HostId]),
    sites: &mut Sites,
    name: &str,
) -> Result<u32, NetworkError> {
    let of = &lab.networks[network];
    let address = |host: HostId| address(lab, network, host);
    let index = sites.switches[host].index();
    let tunnels =
        sites.tunnels.get_mut(host).ok_or_else(|| NetworkError::impossible(&of.name, "there is no underlay"))?;
    let lower = tunnels.netlink.link(TUNNEL)?.index;
    let link = NewLink {
        name: name.to_owned(),
        index: Some(index),
        mtu: Some(mtu(lab, network)),
        up: true,
        ..NewLink::default()
    };
    let vni = of.vni.ok_or_else(|| NetworkError::impossible(&of.name, "it has no VXLAN network identifier"))?;
    let net = Some(sites.switches[host].net());
    let tunnel = netlink::Vxlan { link, vni, local: address(host)?, port: PORT, lower, net };
    tunnels.make(Some(network), &[Request::AddVxlan(tunnel)]).map_err(NetworkError::of(&of.name))?;
    let mut requests = Vec::new();
    for &other in hosts.iter().filter(|&&other| other != host) {
        requests.push(Request::AddForwarding { index, mac: EVERY, to: Forward::Remote(address(other)?) });
    }
    for (there, _, interface) in members(lab, network).filter(|&(there, ..)| there != host) {
        requests.push(Request::AddForwarding { index, mac: interface.mac, to: Forward::Remote(address(there)?) });
    }
    let site = &mut sites.switches[host];
    site.make(Some(network), &requests).map_err(NetworkError::of(&of.name))?;
    if !of.offloads {
        switch_offloads_off(&site.netlink, name)?;
    }
    Ok(index)
}
