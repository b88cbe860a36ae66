//! A lab's policy on the base network of a fast one. Programs at the host's end of each node's interface enforce it,
//! where root in a node cannot bypass them (raw and packet sockets, addresses of others).
//!
//! Each node is known by its Ethernet address, which one program keeps it to. The same program drops what has the IP
//! address of another node as its source: whoever it reaches would answer to that node. The other looks at packets to a
//! node. It decides by the first rule that fits both nodes and the packet, as the router does for connections. A packet
//! under a rule that limits is dropped like one under a rule that denies: only the fast path keeps limits. The programs,
//! `bpf/policy.bpf.c`, say which packets open a connection.

#[cfg(test)]
mod tests;

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::OnceLock;

use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::model::{DriverKind, Interface, Lab, Network, Node};
use slipway_lab::policy::Rule;
use slipway_sys::bpf::{LoadError, Map, MapKind, Object, Program};
use slipway_sys::netlink::{BpfFilter, Bridge, Direction, Mac, NewLink, Request};

use super::device::try_in_scratch;

/// Shows in `bpftool prog`, `bpftool map` and `tc filter`.
const NAME: &str = "slipway_policy";
const GUARD: &str = "slipway_guard";
static OBJECT: Object = Object::new(NAME, BYTES);
static OF_GUARD: Object = Object::new(GUARD, BYTES);
const BYTES: &[u8] = include_bytes!("../../bpf/policy.bpf.o");
/// Bytes of a node's key: its Ethernet address, and two that are zero.
const ADDRESS: usize = 8;
/// Bytes of `struct flow`.
const FLOW: usize = 16;
/// `MOST_WORDS` of the programs.
const MOST_WORDS: usize = 64;
/// Flows that may be answered at once. Each node that asks has its part of them, within bounds. One more, and of its own flows
/// the one that was quiet for longest is forgotten.
const FLOWS: u32 = 65_536;
const FLOWS_OF_NODE: std::ops::RangeInclusive<u32> = 128..=1024;
/// Ports there are: 0 stands for what has none.
const PORTS: u32 = 1 << 16;
/// Rules in a machine word: sets of rules are a bit for each, the first lowest.
const WORD: usize = u64::BITS as usize;

/// A policy as the programs read it. They keep its maps when it is dropped.
#[derive(Debug)]
pub(super) struct Table {
    /// Words that a set of rules has.
    words: usize,
    /// By a node's Ethernet address, padded: its index, the rules that are about what it connects to, and about who connects
    /// to it.
    nodes: Map,
    /// One entry: the rules that deny or limit, and those that are about all ports.
    rules: Map,
    /// By port: the rules that name it.
    ports: Map,
    /// By an address of a node's: the node's index.
    addresses: Map,
    /// By the index of the node that asks: when it last asked somebody, or was answered.
    flows: Map,
}

/// The programs at a node's interface.
#[derive(Debug)]
pub(super) struct Gate {
    sent: Program,
    received: Program,
}

/// Whether there is anything to hold.
pub(super) fn holds_back(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| !rule.is_free())
}

impl Table {
    /// Of these rules, for the nodes of the lab's networks that keep a policy.
    pub(super) fn new(lab: &Lab, rules: &[Rule]) -> io::Result<Self> {
        let words = rules.len().div_ceil(WORD).max(1);
        if words > MOST_WORDS {
            let why = format!("a policy has at most {} rules", MOST_WORDS * WORD);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let those = |which: &dyn Fn(&Rule) -> bool| set(words, rules.iter().map(which));
        let keeps = |network: NetworkId| lab.networks[network].keeps_policy();
        let nodes: Vec<(NodeId, Mac)> = lab
            .nodes
            .enumerate()
            .flat_map(|(node, of)| of.interfaces.iter().map(move |interface| (node, interface)))
            .filter(|(_, interface)| keeps(interface.network))
            .map(|(node, interface)| (node, interface.mac))
            .collect();
        let most = number(nodes.len().max(1));
        let of_node = (FLOWS / most).clamp(*FLOWS_OF_NODE.start(), *FLOWS_OF_NODE.end());
        let flows = || Map::create(MapKind::LruHash, NAME, FLOW, 8, of_node);
        let table = Self {
            words,
            nodes: Map::create(MapKind::Hash, NAME, ADDRESS, 8 + 16 * words, most)?,
            rules: Map::create(MapKind::Array, NAME, 4, 16 * words, 1)?,
            ports: Map::create(MapKind::Array, NAME, 4, 8 * words, PORTS)?,
            addresses: owners(lab, NAME)?,
            flows: Map::create_array_of_maps(NAME, &flows()?, number(lab.nodes.len().max(1)))?,
        };
        let about_all = those(&|rule| rule.ports.is_empty());
        table.rules.update(&0_u32.to_ne_bytes(), &bytes([those(&|rule| !rule.is_free()), about_all]))?;
        for (node, mac) in nodes {
            let is_in = |nodes: &Option<Vec<NodeId>>| nodes.as_ref().is_none_or(|nodes| nodes.contains(&node));
            let about = [those(&|rule| is_in(&rule.from)), those(&|rule| is_in(&rule.to))];
            let mut value = node_value(node).to_vec();
            value.extend(bytes(about));
            table.nodes.update(&address(mac), &value)?;
        }
        let ask = lab.nodes.enumerate().filter(|(_, of)| of.networks(lab).any(Network::keeps_policy));
        for (node, _) in ask {
            table.flows.put(number(node.index()), &flows()?)?;
        }
        table.fill_ports(rules)?;
        Ok(table)
    }

    fn fill_ports(&self, rules: &[Rule]) -> io::Result<()> {
        let mut by_port = vec![Vec::new(); PORTS as usize];
        for (number, rule) in rules.iter().enumerate() {
            for port in rule.ports.iter().cloned().flatten() {
                by_port[usize::from(port)].push(number);
            }
        }
        for (port, named) in by_port.iter().enumerate().filter(|(_, named)| !named.is_empty()) {
            let those = set(self.words, (0..rules.len()).map(|number| named.contains(&number)));
            self.ports.update(&u32::try_from(port).unwrap_or_default().to_ne_bytes(), &bytes([those]))?;
        }
        Ok(())
    }

    /// The programs for an interface of a node, by its place among them.
    pub(super) fn gate(&self, lab: &Lab, node: NodeId, slot: usize) -> Result<Gate, LoadError> {
        let of = &lab.nodes[node];
        let interface = &of.interfaces[slot];
        let numbers = [number(node.index()), number(self.words)].map(u32::to_ne_bytes);
        // A gateway sends what others sent.
        let (leads, mac) = ([u8::from(leads(of))], address(interface.mac));
        let ipv4 = interface.ipv4.to_ipv6_mapped().octets();
        let ipv6 = interface.ipv6.map_or([0; 16], |ipv6| ipv6.octets());
        let constants = [
            ("number", &numbers[0][..]),
            ("words", &numbers[1]),
            ("mac", &mac),
            ("ipv4", &ipv4),
            ("ipv6", &ipv6),
            ("is_gateway", &leads),
        ];
        let maps = [
            ("nodes", &self.nodes),
            ("rules", &self.rules),
            ("ports", &self.ports),
            ("addresses", &self.addresses),
            ("flows", &self.flows),
        ];
        let ready = OBJECT.with(&constants, &maps.map(|(name, map)| (name, map.as_fd())))?;
        Ok(Gate { sent: ready.load("sent")?, received: ready.load("received")? })
    }
}

impl Gate {
    /// Puts the programs at a node's port of its host, which has a clsact, in the place of those that were there.
    pub(super) fn on(&self, index: u32) -> [Request<'_>; 2] {
        // Packets that the port receives are those that the node sends.
        [(Direction::Ingress, &self.sent), (Direction::Egress, &self.received)].map(|(direction, program)| {
            Request::AddBpfFilter(BpfFilter { index, direction, order: 1, program: program.as_fd(), name: NAME })
        })
    }
}

/// The program that keeps a node that does not forward from telling others where, or how much, to send (`guard` of `bpf/policy.bpf.c`).
/// All ports of a lab share one.
#[derive(Debug)]
pub(super) struct Guard(Program);

impl Guard {
    /// Loads the program with the addresses of all nodes.
    ///
    /// # Errors
    /// The kernel, or this user namespace, has no such programs.
    pub(super) fn of(lab: &Lab) -> Result<Self, LoadError> {
        let refused = |error| LoadError::Refused { name: GUARD.to_owned(), error, log: String::new() };
        let interfaces =
            || lab.nodes.enumerate().flat_map(|(node, of)| of.interfaces.iter().map(move |one| (node, of, one)));
        let senders = Map::create(MapKind::Hash, GUARD, ADDRESS, 8, number(interfaces().count().max(1)));
        let senders = senders.map_err(refused)?;
        for (node, of, interface) in interfaces() {
            let mut value = node_value(node);
            value[4] = forwards(of).into();
            senders.update(&address(interface.mac), &value).map_err(refused)?;
        }
        let owners = owners(lab, GUARD).map_err(refused)?;
        Self::load(&[("senders", senders.as_fd()), ("addresses", owners.as_fd())])
    }

    fn load(maps: &[(&str, BorrowedFd<'_>)]) -> Result<Self, LoadError> {
        OF_GUARD.with(&[], maps)?.load("guard").map(Self)
    }

    /// Whether the kernel runs such a program at a port. Tried once.
    pub(super) fn is_there() -> bool {
        static IS_THERE: OnceLock<bool> = OnceLock::new();
        *IS_THERE.get_or_init(|| {
            let map = |key_bytes| Map::create(MapKind::Hash, GUARD, key_bytes, 8, 1);
            let (Ok(senders), Ok(owners)) = (map(ADDRESS), map(16)) else { return false };
            let Ok(guard) = Self::load(&[("senders", senders.as_fd()), ("addresses", owners.as_fd())]) else {
                return false;
            };
            let link = NewLink { name: "bridge".to_owned(), index: Some(100), ..NewLink::default() };
            let trial = [Request::AddBridge(Bridge { link }), Request::AddClsact(100), guard.on(100)];
            try_in_scratch(DriverKind::Bridge, "cls_bpf", &trial).is_ok()
        })
    }

    /// Puts the program at a node's port of its host, which has a clsact.
    pub(super) fn on(&self, index: u32) -> Request<'_> {
        let (direction, order) = (Direction::Ingress, 2);
        Request::AddBpfFilter(BpfFilter { index, direction, order, program: self.0.as_fd(), name: GUARD })
    }
}

/// Whether a node forwards packets of others: only then it may tell them where, and how much, to send.
pub(super) fn forwards(node: &Node) -> bool {
    let forwarding = |name: &str| name.ends_with("ip_forward") || name.ends_with(".forwarding");
    leads(node) || node.sysctls.iter().any(|(name, value)| forwarding(name) && value.trim() != "0")
}

/// Whether a node is a gateway, which sends packets of others.
pub(super) fn leads(node: &Node) -> bool {
    node.gateway
}

/// All addresses of nodes as IPv6 has them (RFC 4291, 2.5.5.2), those of links among them.
fn addresses(lab: &Lab) -> impl Iterator<Item = (NodeId, Ipv6Addr)> {
    let of_one = |(node, of): (NodeId, &'_ Node)| {
        let each = |interface: &Interface| {
            // From the Ethernet address (RFC 4291, appendix A).
            let mut link = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
            link[8..11].copy_from_slice(&interface.mac[..3]);
            link[13..].copy_from_slice(&interface.mac[3..]);
            link[8] ^= 2;
            [Some(interface.ipv4.to_ipv6_mapped()), interface.ipv6, Some(Ipv6Addr::from(link))]
        };
        let all: Vec<_> = of.interfaces.iter().flat_map(each).flatten().collect();
        all.into_iter().map(move |address| (node, address))
    };
    lab.nodes.enumerate().flat_map(of_one)
}

/// A map of these addresses to the numbers of their nodes.
fn owners(lab: &Lab, name: &str) -> io::Result<Map> {
    let map = Map::create(MapKind::Hash, name, 16, 8, number(addresses(lab).count().max(1)))?;
    for (node, address) in addresses(lab) {
        map.update(&address.octets(), &node_value(node))?;
    }
    Ok(map)
}

/// A node's number as a map has it: four bytes, padded.
fn node_value(node: NodeId) -> [u8; 8] {
    let mut value = [0; 8];
    value[..4].copy_from_slice(&number(node.index()).to_ne_bytes());
    value
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A set of rules, of which each says whether it is in it.
fn set(words: usize, rules: impl Iterator<Item = bool>) -> Vec<u64> {
    let mut set = vec![0; words];
    for (number, _) in rules.enumerate().filter(|(_, is_in)| *is_in) {
        set[number / WORD] |= 1 << (number % WORD);
    }
    set
}

fn bytes<const N: usize>(sets: [Vec<u64>; N]) -> Vec<u8> {
    sets.into_iter().flatten().flat_map(u64::to_ne_bytes).collect()
}

/// An Ethernet address as a key.
fn address(mac: Mac) -> [u8; ADDRESS] {
    let mut key = [0; ADDRESS];
    key[..mac.len()].copy_from_slice(&mac);
    key
}
