//! The network namespaces that a lab is built in.

mod span;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::ops::{Index, IndexMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use slipway_lab::id::{HostId, NetworkId};
use slipway_lab::model::{DriverKind, Lab, Underlay};
use slipway_sys::interfaces::with_address;
use slipway_sys::netlink::{
    AddressWatch, Bridge, Link, Mac, Netlink, NetlinkError, NewLink, Peer, Request, SetLink, Veth,
};
use slipway_sys::ns::{create_net, current_net, with_net};

use super::device::settle;
use super::error::NetworkError;
use super::graph::Space;
use super::made::{self, Made};
use super::trunk::{self, Trunk};

/// The loopback device's index in every namespace.
pub(super) const LOOPBACK: u32 = 1;
/// A host's device to the underlay.
pub(super) const UPLINK: &str = "uplink";
/// A host's device to the wire of tunnels.
pub(super) const TUNNEL: &str = "tunnel";
/// Devices of ours are numbered from here: above any that the kernel makes by itself in a new namespace.
const FIRST_INDEX: u32 = 100;

/// A host routes nothing, believes nobody who says that it should route otherwise, and answers for the addresses of the
/// device that was asked at.
const CLOSED: [(&str, &str); 5] = [
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv4/conf/all/accept_source_route", "0"),
    ("net/ipv4/conf/all/arp_ignore", "1"),
];

/// A network namespace that devices are made in.
#[derive(Debug)]
pub(super) struct Site {
    net: OwnedFd,
    pub(super) netlink: Netlink,
    next: u32,
    /// Network namespaces that have a number here.
    numbered: i32,
    pub(super) made: Made,
}

impl Site {
    /// A new namespace: loopback up, and no IPv6 of its own on the ports made in it. Ports of a switch need no
    /// addresses; with them, each would announce itself.
    fn create() -> Result<Self, NetworkError> {
        let net = create_net().map_err(NetworkError::system("make a network namespace"))?;
        let mut site = Self::enter(net)?;
        site.sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        // A new namespace has the machine's own settings: one that forwards must not make hosts forward what nodes send.
        for (name, value) in CLOSED {
            site.sysctl(name, value)?;
        }
        // Where the kernel passes bridged packets through iptables, a lab's packets would pay for it for nothing.
        for hook in ["iptables", "ip6tables", "arptables"] {
            let name = format!("net/bridge/bridge-nf-call-{hook}");
            if Path::new("/proc/sys").join(&name).exists() {
                site.sysctl(&name, "0")?;
            }
        }
        site.netlink.run(&[Request::SetLink(SetLink { index: LOOPBACK, up: Some(true), ..SetLink::default() })])?;
        Ok(site)
    }

    fn enter(net: OwnedFd) -> Result<Self, NetworkError> {
        let what = "open a netlink socket in a namespace";
        let netlink =
            with_net(net.as_fd(), Netlink::open).and_then(|socket| socket).map_err(NetworkError::system(what))?;
        let inode = made::inode(&net).map_err(NetworkError::system("look at a namespace"))?;
        Ok(Self { net, netlink, next: FIRST_INDEX, numbered: 0, made: Made::new(inode) })
    }

    pub(super) fn net(&self) -> BorrowedFd<'_> {
        self.net.as_fd()
    }

    /// Makes devices here, for `network` or the underlay, and notes them.
    pub(super) fn make(&mut self, network: Option<NetworkId>, requests: &[Request<'_>]) -> Result<(), NetlinkError> {
        self.netlink.run(requests)?;
        self.made.note(network, requests).map_err(NetlinkError::from)
    }

    /// A number for a device to be made here. Chosen by us, so that one batch can make it and go on to use it.
    pub(super) fn index(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Takes a device of another namespace, down, under its name. Returns its index here.
    pub(super) fn take(&mut self, from: &mut Self, index: u32, name: &str) -> Result<u32, NetlinkError> {
        let (net, name) = (Some(self.net.as_fd()), Some(name.to_owned()));
        let down = SetLink { index, up: Some(false), ..SetLink::default() };
        let away = SetLink { index, net, name: name.clone(), ..SetLink::default() };
        from.netlink.run(&[Request::SetLink(down), Request::SetLink(away)])?;
        let here = self.netlink.link(name.as_deref().unwrap_or_default())?.index;
        // The kernel lets it keep its number where that is free. Then it is one of ours.
        self.next = self.next.max(here);
        if let Some(leaving) = from.made.leave(index) {
            self.made.arrive(leaving, here);
        }
        Ok(here)
    }

    /// A number for a network namespace that devices of this one lead to. The kernel gives numbers that rise, and goes
    /// through all of them to find the newest, for each message about a device (`peernet2id`, `net/core/net_namespace.c`).
    /// These fall, so that the newest is the first.
    pub(super) fn net_number(&mut self) -> i32 {
        self.numbered += 1;
        i32::MAX - self.numbered
    }

    /// The interface that has an address, here. The calling thread must be in this namespace.
    pub(super) fn interface_of(&mut self, address: IpAddr) -> Result<Option<Link>, NetworkError> {
        let found = with_address(address).map_err(NetworkError::system("list addresses"))?;
        Ok(found.map(|name| self.netlink.link(&name)).transpose()?)
    }

    /// Starts to listen for IPv6 addresses here.
    pub(super) fn watch_addresses(&self) -> Result<AddressWatch, NetworkError> {
        let opened = with_net(self.net(), AddressWatch::open).and_then(|watch| watch);
        opened.map_err(NetworkError::system("listen for addresses"))
    }

    /// Sets a sysctl of this namespace, by its path below `/proc/sys`.
    pub(super) fn sysctl(&self, name: &str, value: &str) -> Result<(), NetworkError> {
        let path = Path::new("/proc/sys").join(name);
        let what = format!("set {}", path.display());
        with_net(self.net(), || fs::write(&path, value)).and_then(|written| written).map_err(NetworkError::system(what))
    }
}

/// One of a host's namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// The host's own, with its addresses: routers of fast networks, nodes of driver `host`.
    Host,
    /// Bridges, switches and wires that nodes' interfaces lead to. It has no address, and no route. A frame to a bridge's own
    /// Ethernet address ends here, and so does one to a group that bridges keep to themselves.
    Switch,
    /// The packets of tunnels, on a wire of their own between hosts, with the hosts' addresses.
    Tunnel,
}

/// The end between hosts of a host's device called `name`.
pub(super) fn far_end(name: &str, host: HostId) -> String {
    format!("{name}.{}", host.index() + 1)
}

/// Namespaces of one kind, of the hosts on this machine. Those of hosts on other machines are not here.
#[derive(Debug, Default)]
pub(super) struct Rooms(BTreeMap<HostId, Site>);

impl Rooms {
    fn create(lab: &Lab) -> Result<Self, NetworkError> {
        let here = lab.hosts.ids().filter(|&host| lab.is_here(host));
        here.map(|host| Ok((host, Site::create()?))).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn get(&self, host: HostId) -> Option<&Site> {
        self.0.get(&host)
    }

    pub(super) fn get_mut(&mut self, host: HostId) -> Option<&mut Site> {
        self.0.get_mut(&host)
    }

    /// Those of two hosts. `None` where they are one, or one is not here.
    fn two(&mut self, one: HostId, other: HostId) -> Option<[&mut Site; 2]> {
        let both = [one.min(other), one.max(other)];
        let mut found = self.0.iter_mut().filter(|(host, _)| both.contains(host)).map(|(_, site)| site);
        let [lesser, greater] = [found.next()?, found.next()?];
        Some(if one < other { [lesser, greater] } else { [greater, lesser] })
    }

    fn iter(&self) -> impl Iterator<Item = (HostId, &Site)> {
        self.0.iter().map(|(&host, site)| (host, site))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Site> {
        self.0.values_mut()
    }
}

impl Index<HostId> for Rooms {
    type Output = Site;

    fn index(&self, host: HostId) -> &Site {
        &self.0[&host]
    }
}

impl IndexMut<HostId> for Rooms {
    fn index_mut(&mut self, host: HostId) -> &mut Site {
        self.0.get_mut(&host).expect("what is made is of hosts on this machine")
    }
}

/// All namespaces of a lab but its nodes'.
#[derive(Debug)]
pub(super) struct Sites {
    /// [`Room::Host`] of each host.
    pub(super) hosts: Rooms,
    /// [`Room::Switch`] of each host; none under `hosts: machine`.
    pub(super) switches: Rooms,
    /// [`Room::Tunnel`] of each host; none where no network has tunnels.
    pub(super) tunnels: Rooms,
    /// The namespace between hosts, also for wires without a far end. Made when first needed.
    between: Option<Site>,
    /// The machine's own network namespace.
    pub(super) machine: Site,
    /// A folder of the lab's own for drivers' files.
    pub(super) place: PathBuf,
}

impl Sites {
    /// Makes the hosts' namespaces, and joins them where there are several.
    #[tracing::instrument(level = "debug", skip_all, fields(hosts = lab.hosts.len()), err(level = "debug"))]
    pub(super) fn create(lab: &Lab, place: &Path) -> Result<Self, NetworkError> {
        let here = || current_net().map_err(NetworkError::system("open this machine's network namespace"));
        let make = |wanted: bool| if wanted { Rooms::create(lab) } else { Ok(Rooms::default()) };
        let hosts = if lab.machine { Rooms([(HostId(0), Site::enter(here()?)?)].into()) } else { Rooms::create(lab)? };
        let is_tunnelled = lab.networks.iter().any(|network| network.driver == DriverKind::Vxlan);
        let mut sites = Self {
            hosts,
            switches: make(!lab.machine)?,
            tunnels: make(lab.underlay.is_some() && is_tunnelled)?,
            between: None,
            machine: Site::enter(here()?)?,
            place: place.to_owned(),
        };
        if let Some(underlay) = &lab.underlay {
            sites.join_hosts(lab, underlay)?;
            if is_tunnelled {
                sites.lay(lab, underlay, Room::Tunnel, "tunnels", TUNNEL)?;
            }
        }
        for (host, site) in sites.hosts.iter() {
            for (name, value) in &lab.hosts[host].tune {
                site.sysctl(&name.replace('.', "/"), value)?;
            }
        }
        Ok(sites)
    }

    /// All namespaces that there are, with what each is.
    pub(super) fn all(&self) -> impl Iterator<Item = (Space, &Site)> {
        fn each(rooms: &Rooms, space: impl Fn(HostId) -> Space) -> impl Iterator<Item = (Space, &Site)> {
            rooms.iter().map(move |(host, site)| (space(host), site))
        }
        // The machine's own last: under `hosts: machine` it is the host's too, and then is called that.
        let rooms = each(&self.hosts, Space::Host)
            .chain(each(&self.switches, Space::Switch))
            .chain(each(&self.tunnels, Space::Tunnel));
        rooms.chain(self.between.iter().map(|site| (Space::Underlay, site))).chain([(Space::Machine, &self.machine)])
    }

    /// The switches of two hosts. Panics where they are one.
    pub(super) fn two_switches(&mut self, one: HostId, other: HostId) -> [&mut Site; 2] {
        self.switches.two(one, other).expect("two hosts of this machine")
    }

    /// Forgets the devices of a namespace that has gone.
    pub(super) fn forget(&mut self, gone: made::Inode) {
        let rooms = self.hosts.iter_mut().chain(self.switches.iter_mut()).chain(self.tunnels.iter_mut());
        for site in rooms.chain(&mut self.between).chain([&mut self.machine]) {
            site.made.forget(gone);
        }
    }

    /// The namespace between hosts.
    pub(super) fn between(&mut self) -> Result<&mut Site, NetworkError> {
        if self.between.is_none() {
            self.between = Some(Site::create()?);
        }
        Ok(self.between.as_mut().expect("made just above"))
    }

    /// The underlay: one bridge between hosts, and `uplink` in each of them.
    fn join_hosts(&mut self, lab: &Lab, underlay: &Underlay) -> Result<(), NetworkError> {
        for (_, site) in self.hosts.iter() {
            // Routers of fast networks connect to one address and port only, and ports would run out. The kernel reuses
            // a closed connection's port once timestamps tell the two apart, not after a minute (`ip-sysctl.rst`).
            site.sysctl("net/ipv4/tcp_tw_reuse", "1")?;
        }
        let uplinks = self.lay(lab, underlay, Room::Host, "underlay", UPLINK)?;
        for (host, index) in uplinks {
            let site = &mut self.hosts[host];
            site.sysctl(&format!("net/ipv6/conf/{UPLINK}/accept_dad"), "0")?;
            site.sysctl(&format!("net/ipv6/conf/{UPLINK}/accept_ra"), "0")?;
            site.sysctl(&format!("net/ipv6/conf/{UPLINK}/accept_redirects"), "0")?;
            site.sysctl(&format!("net/ipv6/conf/{UPLINK}/disable_ipv6"), "0")?;
            let Some(address) = lab.hosts[host].ipv6 else { continue };
            let prefix = underlay.ipv6.prefix_len();
            let watch = site.watch_addresses()?;
            site.netlink.run(&[Request::AddAddress { index, address: address.into(), prefix, subnet_route: true }])?;
            watch.wait([address].into())?;
        }
        Ok(())
    }

    /// A bridge between hosts, and in each of them a device to it, with the host's IPv4 address. Returns their indices, by host.
    fn lay(
        &mut self,
        lab: &Lab,
        underlay: &Underlay,
        room: Room,
        bridge: &str,
        name: &str,
    ) -> Result<Vec<(HostId, u32)>, NetworkError> {
        let mtu = Some(underlay.mtu);
        let between = self.between()?;
        let index = between.index();
        let link = NewLink { name: bridge.to_owned(), index: Some(index), mtu, up: true, ..NewLink::default() };
        between.make(None, &[Request::AddBridge(Bridge { link })])?;
        let trunk = if room == Room::Host { Trunk::Underlay } else { Trunk::Tunnels };
        self.span(lab, trunk, index, underlay.mtu)?;
        let mut laid = Vec::new();
        for (number, host) in lab.hosts.enumerate().filter(|&(number, _)| lab.is_here(number)) {
            let mac = lab.is_spread().then(|| trunk::mac(lab, trunk, number));
            let near = self.wire(None, (room, number), name, index, mtu, mac)?;
            if let Some(address) = host.ipv4 {
                let (address, prefix) = (address.into(), underlay.ipv4.prefix_len());
                let request = Request::AddAddress { index: near, address, prefix, subnet_route: true };
                let site = if room == Room::Host { &mut self.hosts[number] } else { &mut self.tunnels[number] };
                site.netlink.run(&[request])?;
            }
            laid.push((number, near));
        }
        Ok(laid)
    }

    /// Gives a host a device called `name`, wired to a bridge between hosts. Both ends are up. Returns its index. The kernel
    /// chooses the Ethernet address where there is none given.
    pub(super) fn wire(
        &mut self,
        network: Option<NetworkId>,
        (room, host): (Room, HostId),
        name: &str,
        bridge: u32,
        mtu: Option<u32>,
        mac: Option<Mac>,
    ) -> Result<u32, NetworkError> {
        self.between()?;
        let site = match room {
            Room::Host => &mut self.hosts[host],
            Room::Switch => &mut self.switches[host],
            Room::Tunnel => &mut self.tunnels[host],
        };
        let between = self.between.as_mut().expect("made just above");
        let (near, far) = (site.index(), between.index());
        let far_name = far_end(name, host);
        let link = NewLink { name: name.to_owned(), index: Some(near), mtu, up: true, mac, ..NewLink::default() };
        let peer = Peer { name: far_name.clone(), index: Some(far), mtu, net: Some(between.net.as_fd()), mac: None };
        site.make(network, &[Request::AddVeth(Veth { link, peer })])?;
        let join = SetLink { index: far, master: Some(bridge), up: Some(true), ..SetLink::default() };
        between.make(network, &[Request::SetLink(join)])?;
        settle(&site.netlink, name)?;
        settle(&between.netlink, &far_name)?;
        Ok(near)
    }
}
