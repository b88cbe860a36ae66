//! What a lab's policy lets pass on the network beneath a fast one: programs at the host's end of each node's interface, where
//! nothing that root in a node may do (raw and packet sockets, addresses of others) gets around them.
//!
//! Each node is known by its Ethernet address, which one program keeps it to. The other looks at what comes to a node, and
//! decides by the first rule that is about both and about the packet, as the router does of connections. What a rule limits
//! is dropped like what it denies: limits are kept on the fast path alone. [`code`] says which packets open a connection.

mod code;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::AsFd as _;

use slipway_lab::model::Lab;
use slipway_lab::policy::Rule;
use slipway_sys::bpf::{Kind, LoadError, Map, MapKind, Program};
use slipway_sys::netlink::{BpfFilter, Direction, Mac, Request};

/// Shows in `bpftool prog`, `bpftool map` and `tc filter`.
const NAME: &str = "slipway_policy";
/// Flows that may be answered at once, in the whole lab. One more, and the one that was quiet for longest is forgotten.
const FLOWS: u32 = 16_384;
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
    /// When somebody was last asked, or answered, what may be answered.
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
    /// Of these rules, for the nodes of the lab's fast networks.
    pub(super) fn new(lab: &Lab, rules: &[Rule]) -> io::Result<Self> {
        let words = rules.len().div_ceil(WORD).max(1);
        let those = |which: &dyn Fn(&Rule) -> bool| set(words, rules.iter().map(which));
        let fast = |network: usize| lab.networks[network].is_fast();
        let nodes: Vec<(usize, Mac)> = lab
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(node, of)| of.interfaces.iter().map(move |interface| (node, interface)))
            .filter(|(_, interface)| fast(interface.network))
            .map(|(node, interface)| (node, interface.mac))
            .collect();
        let most = u32::try_from(nodes.len().max(1)).unwrap_or(u32::MAX);
        let table = Self {
            words,
            nodes: Map::create(MapKind::Hash, NAME, code::ADDRESS, code::node_bytes(words), most)?,
            rules: Map::create(MapKind::Array, NAME, 4, 16 * words, 1)?,
            ports: Map::create(MapKind::Array, NAME, 4, 8 * words, PORTS)?,
            flows: Map::create(MapKind::LruHash, NAME, code::FLOW, 8, FLOWS)?,
        };
        let about_all = those(&|rule| rule.ports.is_empty());
        table.rules.update(&0_u32.to_ne_bytes(), &bytes([those(&|rule| !rule.is_free()), about_all]))?;
        for (node, mac) in nodes {
            let is_in = |nodes: &Option<Vec<usize>>| nodes.as_ref().is_none_or(|nodes| nodes.contains(&node));
            let about = [those(&|rule| is_in(&rule.from)), those(&|rule| is_in(&rule.to))];
            let mut value = u64::try_from(node).unwrap_or(u64::MAX).to_ne_bytes().to_vec();
            value.extend(bytes(about));
            table.nodes.update(&address(mac), &value)?;
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

    /// The programs for the node that has this address.
    pub(super) fn gate(&self, mac: Mac) -> Result<Gate, LoadError> {
        let load = |code: &[_]| Program::load(Kind::SchedCls, NAME, code);
        Ok(Gate { sent: load(&code::sent(mac))?, received: load(&code::received(self, mac))? })
    }
}

impl Gate {
    /// Puts the programs at a node's port of its host, which has a clsact, in the place of those that were there.
    pub(super) fn on(&self, index: u32) -> [Request<'_>; 2] {
        // What the port receives, the node sends.
        [(Direction::Ingress, &self.sent), (Direction::Egress, &self.received)].map(|(direction, program)| {
            Request::AddBpfFilter(BpfFilter { index, direction, order: 1, program: program.as_fd(), name: NAME })
        })
    }
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

/// As a key.
fn address(mac: Mac) -> [u8; code::ADDRESS] {
    let mut key = [0; code::ADDRESS];
    key[..mac.len()].copy_from_slice(&mac);
    key
}
