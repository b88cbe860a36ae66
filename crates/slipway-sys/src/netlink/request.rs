//! Requests to the kernel, as plain values. `Display` says it in words, for plans and for refusals.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use super::tc::{BpfFilter, Handle, ReplaceQdisc};
use super::{Mac, MacText};

/// One request. Devices are named by interface index (`ifindex`), except those being made. Making a device that exists is
/// refused; addresses, routes, neighbours and forwarding entries replace what was there.
#[derive(Debug, Clone)]
pub enum Request<'a> {
    /// Makes a pair of devices joined by a wire (`veth(4)`).
    AddVeth(Veth<'a>),
    /// Makes an Ethernet bridge.
    AddBridge(Bridge),
    /// Makes an end of a VXLAN tunnel (RFC 7348).
    AddVxlan(Vxlan<'a>),
    /// Makes a device that shares a parent's wire under a MAC address of its own.
    AddMacvlan(Macvlan<'a>),
    /// Makes a device that passes on what is redirected to it (an intermediate functional block): received packets can so be
    /// given to a queueing discipline.
    AddIfb(NewLink),
    /// Changes a device.
    SetLink(SetLink<'a>),
    /// Changes a port of a bridge.
    SetBridgePort(BridgePort),
    /// Takes a device away; a veth's peer goes with it.
    DeleteLink(u32),
    /// Gives a device an address. IPv6 addresses are usable at once (no duplicate address detection).
    AddAddress {
        /// The device.
        index: u32,
        /// The address.
        address: IpAddr,
        /// Bits of the address that name its subnet.
        prefix: u8,
        /// Whether the kernel adds a route to that subnet.
        subnet_route: bool,
    },
    /// Adds a route to the main table.
    AddRoute {
        /// Destination subnet's address; unspecified with prefix 0 for the default route.
        to: IpAddr,
        /// The prefix length, in bits.
        prefix: u8,
        /// Next hop. `None`: on the wire of `index`.
        via: Option<IpAddr>,
        /// The device. `None`: found from `via`.
        index: Option<u32>,
        /// The address that programs are given here if they do not bind one.
        source: Option<IpAddr>,
    },
    /// Adds a route to a table that rules name, for packets that programs here send.
    AddOwnRoute {
        /// The table's number.
        table: u32,
        /// Destination, one address.
        to: IpAddr,
        /// Next hop. `None`: the address is this namespace's own.
        via: Option<IpAddr>,
        /// The address that programs are given here if they do not bind one.
        source: IpAddr,
    },
    /// Adds a routing rule (`ip-rule(8)`).
    AddRule(Rule),
    /// Takes a routing rule away.
    DeleteRule(Rule),
    /// Adds a permanent entry to a device's neighbour table.
    AddNeighbour {
        /// The device.
        index: u32,
        /// The neighbour.
        address: IpAddr,
        /// The Ethernet address of the neighbour.
        mac: Mac,
    },
    /// Gives another network namespace a number here (`RTM_NEWNSID`). One that has a number keeps it; a number that is
    /// taken is not given.
    NumberNet {
        /// The namespace.
        net: BorrowedFd<'a>,
        /// The number.
        number: i32,
    },
    /// Adds an entry to a forwarding table. It does not age.
    AddForwarding {
        /// The bridge's port, or the vxlan device.
        index: u32,
        /// Frames to this address… (all zero on a vxlan device: every frame without an entry)
        mac: Mac,
        /// …go here.
        to: Forward,
    },
    /// Removes an entry added by [`Request::AddForwarding`].
    DeleteForwarding {
        /// The bridge's port, or the vxlan device.
        index: u32,
        /// The entry's address.
        mac: Mac,
        /// The target of the entry.
        to: Forward,
    },
    /// Gives the device of this index its places for programs, ingress and egress (tc-bpf(8)).
    AddClsact(u32),
    /// Gives the device one place for programs, on what it receives (the ingress qdisc).
    AddIngress(u32),
    /// Takes a clsact away, and the programs in it.
    DeleteClsact(u32),
    /// Runs a program on every packet. There is one to a direction; a new one takes the place of the old, between two packets.
    AddBpfFilter(BpfFilter<'a>),
    /// Puts a queueing discipline in its place.
    ReplaceQdisc(ReplaceQdisc),
    /// Takes a queueing discipline away; at the root, the device's default takes its place.
    DeleteQdisc {
        /// The device.
        index: u32,
        /// The parent that it is attached to.
        parent: Handle,
    },
}

/// Where a forwarding entry points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// Through the port, in the table of its bridge.
    Port,
    /// To the tunnel's end at this address, in the vxlan device's own table.
    Remote(IpAddr),
}

/// A routing rule: which packets are looked up in which table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Of IPv6, not of IPv4.
    pub ipv6: bool,
    /// Lower ones come first.
    pub priority: u32,
    /// Packets of sockets with this mark. `None`: all.
    pub mark: Option<u32>,
    /// The table.
    pub table: u32,
}

/// The table of a namespace's own addresses (`RT_TABLE_LOCAL`).
pub const LOCAL_TABLE: u32 = 255;

/// Settings that every new device can have.
#[derive(Debug, Clone, Default)]
pub struct NewLink {
    /// At most 15 bytes.
    pub name: String,
    /// Its interface index, chosen beforehand so that later requests of one batch can name it. `None`: the kernel's choice.
    pub index: Option<u32>,
    /// `None`: random.
    pub mac: Option<Mac>,
    /// Bytes. `None`: the kind's default.
    pub mtu: Option<u32>,
    /// The bridge that it becomes a port of.
    pub master: Option<u32>,
    /// Whether it is administratively up from the start.
    pub up: bool,
}

/// The far end of a veth pair. It starts down: the kernel cannot set it up before the pair is joined.
#[derive(Debug, Clone, Default)]
pub struct Peer<'a> {
    /// At most 15 bytes.
    pub name: String,
    /// As for [`NewLink`].
    pub index: Option<u32>,
    /// `None`: random.
    pub mac: Option<Mac>,
    /// Bytes. `None`: 1500.
    pub mtu: Option<u32>,
    /// The namespace it is made in. `None`: the near end's.
    pub net: Option<BorrowedFd<'a>>,
}

/// A veth pair.
#[derive(Debug, Clone)]
pub struct Veth<'a> {
    /// The end in the socket's namespace.
    pub link: NewLink,
    /// The other end.
    pub peer: Peer<'a>,
}

/// A bridge: no spanning tree, no VLAN filter, no multicast snooping (so multicast reaches every port).
#[derive(Debug, Clone)]
pub struct Bridge {
    /// The device.
    pub link: NewLink,
}

/// One end of a VXLAN tunnel that learns nothing: it knows only the forwarding entries it is given.
#[derive(Debug, Clone)]
pub struct Vxlan<'a> {
    /// The device.
    pub link: NewLink,
    /// Network identifier, 24 bits.
    pub vni: u32,
    /// The address of this end.
    pub local: IpAddr,
    /// UDP port; 4789 is the registered one.
    pub port: u16,
    /// The device that tunnelled packets leave by, in the socket's namespace, as they do.
    pub lower: u32,
    /// The namespace that it is made in, where its frames are. `None`: the socket's.
    pub net: Option<BorrowedFd<'a>>,
}

/// How macvlan siblings see each other (`ip-link(8)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacvlanMode {
    /// Directly.
    Bridge,
    /// Not at all.
    Private,
    /// By way of a switch that reflects.
    Vepa,
}

/// A macvlan device.
#[derive(Debug, Clone)]
pub struct Macvlan<'a> {
    /// The device.
    pub link: NewLink,
    /// The parent, in the socket's namespace.
    pub parent: u32,
    /// Traffic between siblings.
    pub mode: MacvlanMode,
    /// The namespace it is made in. `None`: the socket's.
    pub net: Option<BorrowedFd<'a>>,
}

/// How the kernel makes a device's IPv6 link-local address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddrGenMode {
    /// From the MAC address, with duplicate address detection.
    Eui64,
    /// Not at all.
    None,
}

/// Changes to a device; `None` leaves things as they are.
#[derive(Debug, Clone, Default)]
pub struct SetLink<'a> {
    /// The device.
    pub index: u32,
    /// Administratively up or down.
    pub up: Option<bool>,
    /// Bytes.
    pub mtu: Option<u32>,
    /// The bridge to become a port of; 0 leaves the present one.
    pub master: Option<u32>,
    /// New name, at most 15 bytes.
    pub name: Option<String>,
    /// New MAC address.
    pub mac: Option<Mac>,
    /// How IPv6 link-local addresses are made.
    pub addr_gen_mode: Option<AddrGenMode>,
    /// Packets that one large segment may stand for on its way out; 1 lets no larger one than a packet through.
    pub gso_max_segs: Option<u32>,
    /// Packets that may wait in the device's default queue, and for the reader of a TAP device.
    pub tx_queue_len: Option<u32>,
    /// The namespace it moves to.
    pub net: Option<BorrowedFd<'a>>,
}

/// Changes to a bridge's port (`bridge(8)`, link set); `None` leaves things as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct BridgePort {
    /// The device that is the port.
    pub index: u32,
    /// Whether source addresses seen here are learnt.
    pub learning: Option<bool>,
    /// Whether ports with this set cannot reach each other.
    pub isolated: Option<bool>,
    /// Whether frames to unknown addresses are sent out here.
    pub flood: Option<bool>,
    /// Whether the bridge answers ARP requests for hosts behind this port from its own neighbour table, and then sends them
    /// to nobody (`proxy_arp_wifi`; `proxy_arp` without it would keep every broadcast away from the port).
    pub answer_arp: Option<bool>,
    /// Whether frames pass in here only from Ethernet addresses that the bridge knows to be behind this port. Linux 5.18.
    pub locked: Option<bool>,
    /// Whether ARP and neighbour discovery for hosts behind this port are answered by the bridge for the others.
    pub neigh_suppress: Option<bool>,
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddVeth(veth) => write!(f, "create veth {} and its peer {}", veth.link.name, veth.peer.name),
            Self::AddBridge(bridge) => write!(f, "create bridge {}", bridge.link.name),
            Self::AddVxlan(vxlan) => {
                write!(f, "create vxlan {} (vni {}, local {})", vxlan.link.name, vxlan.vni, vxlan.local)
            }
            Self::AddMacvlan(macvlan) => write!(f, "create macvlan {} on device {}", macvlan.link.name, macvlan.parent),
            Self::AddIfb(link) => write!(f, "create ifb {}", link.name),
            Self::SetLink(set) => set.fmt(f),
            Self::SetBridgePort(port) => write!(f, "set bridge port options of device {}", port.index),
            Self::DeleteLink(index) => write!(f, "delete device {index}"),
            Self::AddAddress { index, address, prefix, .. } => {
                write!(f, "add address {address}/{prefix} to device {index}")
            }
            Self::AddRoute { to, prefix, via, index, .. } => {
                write!(f, "add route to {to}/{prefix}")?;
                if let Some(via) = via {
                    write!(f, " via {via}")?;
                }
                index.map_or(Ok(()), |index| write!(f, " on device {index}"))
            }
            Self::AddOwnRoute { table, to, .. } => write!(f, "add route to {to} to table {table}"),
            Self::AddRule(rule) => write!(f, "add a routing rule for table {}", rule.table),
            Self::DeleteRule(rule) => write!(f, "delete a routing rule for table {}", rule.table),
            Self::AddNeighbour { index, address, mac } => {
                write!(f, "add neighbour {address} at {} to device {index}", MacText(*mac))
            }
            Self::AddForwarding { index, mac, to } => write!(f, "forward {} {to} of device {index}", MacText(*mac)),
            Self::DeleteForwarding { index, mac, to } => {
                write!(f, "stop forwarding {} {to} of device {index}", MacText(*mac))
            }
            Self::NumberNet { number, .. } => write!(f, "number a network namespace {number}"),
            Self::AddClsact(index) => write!(f, "add clsact to device {index}"),
            Self::AddIngress(index) => write!(f, "add the ingress qdisc to device {index}"),
            Self::DeleteClsact(index) => write!(f, "delete clsact of device {index}"),
            Self::AddBpfFilter(BpfFilter { index, direction, name, .. }) => {
                write!(f, "run program {name} on {direction} of device {index}")
            }
            Self::ReplaceQdisc(ReplaceQdisc { index, parent, qdisc, .. }) => {
                write!(f, "put qdisc {} at {parent} of device {index}", qdisc.kind())
            }
            Self::DeleteQdisc { index, parent } => write!(f, "delete the qdisc at {parent} of device {index}"),
        }
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port => f.write_str("out of the port"),
            Self::Remote(address) => write!(f, "to {address} out of the tunnel"),
        }
    }
}

impl fmt::Display for SetLink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "set device {}", self.index)?;
        if let Some(up) = self.up {
            f.write_str(if up { " up" } else { " down" })?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        if let Some(master) = self.master {
            write!(f, " master {master}")?;
        }
        if let Some(name) = &self.name {
            write!(f, " name {name}")?;
        }
        if let Some(mac) = self.mac {
            write!(f, " address {}", MacText(mac))?;
        }
        if let Some(mode) = self.addr_gen_mode {
            write!(f, " addrgenmode {}", if mode == AddrGenMode::None { "none" } else { "eui64" })?;
        }
        if let Some(segments) = self.gso_max_segs {
            write!(f, " gso_max_segs {segments}")?;
        }
        if let Some(packets) = self.tx_queue_len {
            write!(f, " txqueuelen {packets}")?;
        }
        if self.net.is_some() {
            f.write_str(" in another namespace")?;
        }
        Ok(())
    }
}
