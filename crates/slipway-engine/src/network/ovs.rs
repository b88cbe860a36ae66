//! Driver `ovs`: a veth pair for every node, on an Open vSwitch bridge of its host.
//!
//! Each host has an ovsdb-server and an ovs-vswitchd of its own, with database, sockets and logs in the lab's folder.
//! They leave the machine's own switch alone. The kernel's datapath is used where there is one. Without it Open vSwitch
//! switches packets itself (`datapath_type=netdev`) and reads them from packet sockets. That is much slower, and blind
//! to checksums left to hardware. So nodes compute theirs ("tx-checksumming off", which ends segmentation offload too).

mod daemons;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use slipway_lab::id::{HostId, NetworkId};
use slipway_lab::model::{DriverKind, Lab};
use slipway_sys::netlink::{Netlink, NewLink, Offload, Peer, Request, SetLink, Veth, has_generic_family};
use slipway_sys::ns::with_net;

use super::device::{settle, switch_offloads_off};
use super::driver::{Driver, End, Port, Probed, hosts_here, hosts_of, members, mtu};
use super::error::{NetworkError, Unsupported};
use super::graph::Kind;
use super::site::Sites;
use super::{switch, wire};
use daemons::Daemons;

/// The generic netlink family that is the kernel's datapath (include/uapi/linux/openvswitch.h).
const KERNEL_DATAPATH: &str = "ovs_datapath";
/// Addresses that a bridge remembers; Open vSwitch's own default is 8,192 (2,048 before version 3.0).
const MAC_TABLE: &str = "other-config:mac-table-size=65536";

#[derive(Debug, Default)]
pub(super) struct Ovs {
    /// By host.
    daemons: BTreeMap<HostId, Daemons>,
    /// The host's end of each node's interface.
    ports: BTreeMap<Port, u32>,
}

fn kernel_datapath() -> bool {
    has_generic_family(KERNEL_DATAPATH).unwrap_or(false)
}

impl Driver for Ovs {
    fn probe(&self) -> Result<Probed, Unsupported> {
        switch::probe(DriverKind::Ovs)?;
        let cannot = |missing: String, hint: &str| Unsupported {
            driver: DriverKind::Ovs.into(),
            missing,
            hint: hint.to_owned(),
        };
        if let Some(program) = daemons::PROGRAMS.into_iter().find(|program| !daemons::is_installed(program)) {
            return Err(cannot(format!("there is no {program}"), "apt-get install openvswitch-switch"));
        }
        let (datapath, notes) = if kernel_datapath() {
            ("kernel", Vec::new())
        } else if Path::new("/dev/net/tun").exists() {
            let note = "this kernel has no openvswitch module: packets are switched by a process, and offloads of nodes are off";
            ("userspace", vec![note.to_owned()])
        } else {
            let missing =
                "the kernel has no Open vSwitch datapath, and the userspace one needs /dev/net/tun".to_owned();
            return Err(cannot(missing, "load a module (modprobe openvswitch, or modprobe tun)"));
        };
        let mechanism = format!("veth pairs on an Open vSwitch bridge, {datapath} datapath");
        Ok(Probed { driver: DriverKind::Ovs.into(), mechanism, notes })
    }

    fn prepare(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        let bridge = bridge(network);
        let datapath = format!("datapath_type={}", if kernel_datapath() { "system" } else { "netdev" });
        let mtu = format!("mtu_request={}", mtu(lab, network));
        for host in hosts_here(lab, network) {
            let daemons = match self.daemons.entry(host) {
                Entry::Occupied(running) => running.into_mut(),
                Entry::Vacant(none) => {
                    let place = sites.place.join("ovs").join(&lab.hosts[host].name);
                    none.insert(Daemons::start(sites.switches[host].net(), &place)?)
                }
            };
            daemons.vsctl(&[
                "add-br",
                &bridge,
                "--",
                "set",
                "bridge",
                &bridge,
                &datapath,
                MAC_TABLE,
                "--",
                "set",
                "interface",
                &bridge,
                &mtu,
            ])?;
            sites.switches[host].made.found(&bridge, None, Some(network), Kind::OvsBridge);
        }
        if hosts_of(lab, network).len() > 1 {
            for (host, _) in wire::lay(lab, network, sites)? {
                self.daemons[&host].vsctl(&["add-port", &bridge, &wire::name(network)])?;
            }
        }
        Ok(())
    }

    fn attach(
        &mut self,
        lab: &Lab,
        network: NetworkId,
        sites: &mut Sites,
        ends: &[End<'_>],
    ) -> Result<(), NetworkError> {
        let mtu = Some(mtu(lab, network));
        let of = &lab.networks[network];
        let mut by_host = BTreeMap::<HostId, Vec<&End<'_>>>::new();
        for end in ends {
            by_host.entry(lab.nodes[end.port.node].host).or_default().push(end);
        }
        for (host, ends) in by_host {
            let site = &mut sites.switches[host];
            let mut requests = Vec::new();
            let mut names = Vec::new();
            for &&End { port, interface, netns } in &ends {
                let index = site.index();
                let link = NewLink { name: port.name(lab), index: Some(index), mtu, up: true, ..NewLink::default() };
                let peer =
                    Peer { name: interface.name.clone(), mac: Some(interface.mac), mtu, net: Some(netns), index: None };
                requests.push(Request::AddVeth(Veth { link, peer }));
                names.push(port.name(lab));
                self.ports.insert(port, index);
            }
            site.make(Some(network), &requests).map_err(NetworkError::of(&of.name))?;
            for name in names.iter().filter(|_| !of.offloads) {
                switch_offloads_off(&site.netlink, name)?;
            }
            if !kernel_datapath() {
                ends.iter().try_for_each(|end| compute_checksums(end))?;
            }
            let bridge = bridge(network);
            let add: Vec<&str> = names.iter().flat_map(|name| ["--", "add-port", &bridge, name]).collect();
            self.daemons[&host].vsctl(&add)?;
        }
        Ok(())
    }

    fn open(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        let wire = (hosts_of(lab, network).len() > 1).then(|| wire::name(network));
        for host in hosts_here(lab, network) {
            let local = members(lab, network).filter(|&(there, ..)| there == host).map(|(_, port, _)| port);
            let made = local.filter(|port| self.ports.contains_key(port)).map(|port| port.name(lab));
            self.wait_for_links(host, sites, made.chain(wire.clone()))?;
        }
        Ok(())
    }

    fn helper(&self, lab: &Lab, pid: i32) -> Option<String> {
        let (host, _) = self.daemons.iter().find(|(_, daemons)| daemons.number() == pid)?;
        Some(format!("Open vSwitch of {}", lab.hosts[*host].name))
    }

    fn set_carrier(&mut self, lab: &Lab, port: Port, sites: &mut Sites, up: bool) -> Result<(), NetworkError> {
        let Some(&index) = self.ports.get(&port) else { return Ok(()) };
        let host = lab.nodes[port.node].host;
        let change = SetLink { index, up: Some(up), ..SetLink::default() };
        sites.switches[host].netlink.run(&[Request::SetLink(change)])?;
        self.wait_for_links(host, sites, [port.name(lab)])
    }
}

impl Ovs {
    /// Waits until the switch has seen that these ports have a carrier, those that have one. Before, it sends nothing there.
    fn wait_for_links(
        &self,
        host: HostId,
        sites: &Sites,
        ports: impl IntoIterator<Item = String>,
    ) -> Result<(), NetworkError> {
        let mut live = Vec::new();
        for name in ports {
            if settle(&sites.switches[host].netlink, &name)? {
                live.push(name);
            }
        }
        let wait = live.iter().flat_map(|name| ["--", "wait-until", "interface", name, "link_state=up"]);
        if live.is_empty() { Ok(()) } else { self.daemons[&host].vsctl(&wait.collect::<Vec<_>>()) }
    }
}

fn bridge(network: NetworkId) -> String {
    format!("ovs{network}")
}

/// Has the node compute its checksums: the userspace datapath sends a packet on with the one it has, and with none TCP
/// stands still.
fn compute_checksums(end: &End<'_>) -> Result<(), NetworkError> {
    let name = &end.interface.name;
    let switched = || Netlink::open()?.set_offload(name, Offload::TxChecksum, false);
    let what = format!("switch checksum offload of {name} off");
    with_net(end.netns, switched).and_then(|done| done).map_err(NetworkError::system(what))
}
