//! Notes of the devices that drivers made, from their requests to the kernel.
//!
//! A driver tells nobody what it makes: its requests do. So the graph of a lab cannot differ from what the kernel was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;

use slipway_lab::id::NetworkId;
use slipway_sys::netlink::{Direction as Of, Forward, NewLink, Request};

use super::graph::{Device, Direction, Kind, Link, Program, Space, Tunnel};

/// A namespace's number.
pub(super) type Inode = u64;

/// The number of a namespace.
pub(super) fn inode(net: impl AsFd) -> io::Result<Inode> {
    Ok(rustix::fs::fstat(net)?.st_ino)
}

/// Devices that requests in one namespace made, some of them in others.
#[derive(Debug)]
pub(super) struct Made {
    inode: Inode,
    devices: BTreeMap<(Inode, String), Entry>,
    /// Names of this namespace's devices, by index.
    names: BTreeMap<u32, String>,
    /// Of this namespace's devices, by index.
    settings: BTreeMap<u32, Settings>,
}

#[derive(Debug)]
struct Entry {
    index: Option<u32>,
    network: Option<NetworkId>,
    mtu: Option<u32>,
    kind: Being,
}

/// A [`Kind`], as far as a request says it.
#[derive(Debug)]
enum Being {
    Whole(Kind),
    Veth { peer: (Inode, String) },
    Macvlan { parent: u32 },
    Vxlan { vni: u32, local: std::net::IpAddr, port: u16, lower: u32 },
}

/// A pair of devices on its way from the notes of one namespace to those of another.
#[derive(Debug)]
pub(super) struct Leaving {
    name: String,
    near: Entry,
    far: ((Inode, String), Entry),
}

#[derive(Debug, Default)]
struct Settings {
    bridge: Option<u32>,
    places: Option<&'static str>,
    programs: BTreeSet<Program>,
    remotes: BTreeSet<std::net::IpAddr>,
}

impl Made {
    /// Of a namespace in which nothing was made yet.
    pub(super) fn new(inode: Inode) -> Self {
        Self { inode, devices: BTreeMap::new(), names: BTreeMap::new(), settings: BTreeMap::new() }
    }

    /// The namespace's number.
    pub(super) fn inode(&self) -> Inode {
        self.inode
    }

    /// Notes a device that no request makes.
    pub(super) fn found(&mut self, name: &str, index: Option<u32>, network: Option<NetworkId>, kind: Kind) {
        let entry = Entry { index, network, mtu: None, kind: Being::Whole(kind) };
        self.put((self.inode, name.to_owned()), entry);
    }

    /// Notes requests that the kernel has carried out, for `network` or the underlay.
    pub(super) fn note(&mut self, network: Option<NetworkId>, requests: &[Request<'_>]) -> io::Result<()> {
        requests.iter().try_for_each(|request| self.note_one(network, request))
    }

    fn note_one(&mut self, network: Option<NetworkId>, request: &Request<'_>) -> io::Result<()> {
        let here = self.inode;
        let at = |net: &Option<_>| net.map_or(Ok(here), inode);
        match request {
            Request::AddVeth(veth) => {
                let (near, far) = ((here, veth.link.name.clone()), (at(&veth.peer.net)?, veth.peer.name.clone()));
                let other = Entry {
                    index: veth.peer.index,
                    network,
                    mtu: veth.peer.mtu,
                    kind: Being::Veth { peer: near.clone() },
                };
                self.add(network, here, &veth.link, Being::Veth { peer: far.clone() });
                self.put(far, other);
            }
            Request::AddBridge(bridge) => self.add(network, here, &bridge.link, Being::Whole(Kind::Bridge)),
            Request::AddVxlan(vxlan) => {
                let (vni, local, port, lower) = (vxlan.vni, vxlan.local, vxlan.port, vxlan.lower);
                self.add(network, at(&vxlan.net)?, &vxlan.link, Being::Vxlan { vni, local, port, lower });
            }
            Request::AddMacvlan(macvlan) => {
                self.add(network, at(&macvlan.net)?, &macvlan.link, Being::Macvlan { parent: macvlan.parent });
            }
            Request::SetLink(set) => {
                if let Some(bridge) = set.master {
                    self.set(set.index).bridge = Some(bridge);
                }
                if let (Some(name), Some(net)) = (&set.name, &set.net) {
                    let given = Entry { index: None, network, mtu: None, kind: Being::Whole(Kind::Function) };
                    self.remove(set.index);
                    self.put((inode(net)?, name.clone()), given);
                }
            }
            Request::AddForwarding { index, to: Forward::Remote(remote), .. } => {
                self.set(*index).remotes.insert(*remote);
            }
            Request::AddClsact(index) => self.set(*index).places = Some("clsact"),
            Request::AddIngress(index) => self.set(*index).places = Some("ingress"),
            Request::DeleteClsact(index) => {
                let set = self.set(*index);
                set.places = None;
                set.programs.clear();
            }
            Request::AddBpfFilter(filter) => {
                let direction = if filter.direction == Of::Ingress { Direction::Ingress } else { Direction::Egress };
                let program = Program { direction, order: filter.order, name: filter.name.to_owned() };
                self.set(filter.index).programs.insert(program);
            }
            Request::DeleteLink(index) => self.remove(*index),
            _ => {}
        }
        Ok(())
    }

    /// A device that is made anew has lost what the one before it had, with its old peer.
    fn add(&mut self, network: Option<NetworkId>, at: Inode, link: &NewLink, kind: Being) {
        if let Some(index) = link.index.filter(|_| at == self.inode) {
            self.remove(index);
            self.set(index).bridge = link.master;
        }
        let entry = Entry { index: link.index, network, mtu: link.mtu, kind };
        self.put((at, link.name.clone()), entry);
    }

    fn put(&mut self, key: (Inode, String), entry: Entry) {
        if let Some(index) = entry.index.filter(|_| key.0 == self.inode) {
            self.names.insert(index, key.1.clone());
        }
        self.devices.insert(key, entry);
    }

    fn remove(&mut self, index: u32) {
        self.settings.remove(&index);
        let Some(name) = self.names.remove(&index) else { return };
        let entry = self.devices.remove(&(self.inode, name));
        if let Some(Entry { kind: Being::Veth { peer }, .. }) = entry {
            self.devices.remove(&peer);
        }
    }

    /// Gives up the near end of a pair, which leaves for another namespace. `None` for a device that is no such.
    pub(super) fn leave(&mut self, index: u32) -> Option<Leaving> {
        self.settings.remove(&index);
        let name = self.names.remove(&index)?;
        let near = self.devices.remove(&(self.inode, name.clone()))?;
        let Being::Veth { peer } = &near.kind else { return None };
        let far = (peer.clone(), self.devices.remove(peer)?);
        Some(Leaving { name, near, far })
    }

    /// Takes the near end of a pair, which has this index here.
    pub(super) fn arrive(&mut self, leaving: Leaving, index: u32) {
        let Leaving { name, near, far: (at, far) } = leaving;
        let here = (self.inode, name);
        self.put(at, Entry { kind: Being::Veth { peer: here.clone() }, ..far });
        self.put(here, Entry { index: Some(index), ..near });
    }

    /// Forgets the devices of another namespace, which has gone with them.
    pub(super) fn forget(&mut self, gone: Inode) {
        let first = (gone, String::new());
        let names =
            self.devices.range(first..).take_while(|((inode, _), _)| *inode == gone).map(|(key, _)| key.clone());
        for key in names.collect::<Vec<_>>() {
            self.devices.remove(&key);
        }
    }

    fn set(&mut self, index: u32) -> &mut Settings {
        self.settings.entry(index).or_default()
    }
}

/// The graph's devices of all namespaces. One in a namespace that `spaces` does not name has gone with it.
pub(super) fn links(all: &[&Made], spaces: &BTreeMap<Inode, Space>) -> Vec<Link> {
    let by_index: BTreeMap<(Inode, u32), &String> = all
        .iter()
        .flat_map(|made| &made.devices)
        .filter_map(|((inode, name), entry)| Some(((*inode, entry.index?), name)))
        .collect();
    let settings: BTreeMap<Inode, &BTreeMap<u32, Settings>> =
        all.iter().map(|made| (made.inode, &made.settings)).collect();
    let device = |inode: Inode, name: &str| Some(Device { space: *spaces.get(&inode)?, name: name.to_owned() });
    let numbered = |inode: Inode, index: u32| device(inode, by_index.get(&(inode, index))?);
    let link = |made: &Made, (inode, name): &(Inode, String), entry: &Entry| {
        let set = entry.index.and_then(|index| settings.get(inode)?.get(&index));
        let kind = match &entry.kind {
            Being::Whole(kind) => kind.clone(),
            Being::Veth { peer: (inode, name) } => Kind::Veth { peer: device(*inode, name)? },
            Being::Macvlan { parent } => Kind::Macvlan { parent: numbered(made.inode, *parent)? },
            &Being::Vxlan { vni, local, port, lower } => {
                let remotes = set.map(|set| set.remotes.iter().copied().collect()).unwrap_or_default();
                let lower = numbered(made.inode, lower)?;
                Kind::Vxlan { tunnel: Tunnel { vni, local, remotes, port, lower } }
            }
        };
        let bridge = set.and_then(|set| set.bridge).and_then(|bridge| by_index.get(&(*inode, bridge)));
        Some(Link {
            device: device(*inode, name)?,
            index: entry.index,
            network: entry.network,
            kind,
            mtu: entry.mtu,
            bridge: bridge.map(|name| (*name).clone()),
            qdiscs: set.and_then(|set| set.places).map(str::to_owned).into_iter().collect(),
            programs: set.map(|set| set.programs.iter().cloned().collect()).unwrap_or_default(),
        })
    };
    let mut links: Vec<Link> = all
        .iter()
        .flat_map(|made| made.devices.iter().filter_map(move |(key, entry)| link(made, key, entry)))
        .collect();
    links.sort_by(|a, b| a.device.cmp(&b.device));
    links
}
