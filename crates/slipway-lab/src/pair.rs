//! Conditions between one sender and its peers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::change::Keys;
use crate::condition::{LinkConditions, LinkRule};
use crate::id::{NetworkId, NodeId};
use crate::matrix::Matrix;
use crate::model::{Interface, Lab};

/// Conditions of packets from an interface to one other node.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerRule {
    /// The receiver.
    pub node: NodeId,
    /// Its addresses on the sender's network. Packets to it through a gateway are for its address on another network,
    /// and not meant here. They have the conditions of each network that they pass.
    pub addresses: Vec<IpAddr>,
    /// The keys that rules and matrices set. Those that they do not are the interface's own.
    pub conditions: LinkConditions,
}

impl Interface {
    /// IPv4, then IPv6 if it has one.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        std::iter::once(IpAddr::V4(self.ipv4)).chain(self.ipv6.map(IpAddr::V6)).collect()
    }
}

impl Lab {
    /// The lab file's conditions for packets that an interface (a node, and the slot of its interface) sends: its own,
    /// and those that hold over them, key by key, for some of its peers, in the order of nodes. Peers about which
    /// nothing is said are not listed.
    ///
    /// Rules hold over matrices, and later ones over earlier ones. `matrices` are those of [`Lab::matrices`], read, in the
    /// same order.
    #[must_use]
    pub fn egress_rules(&self, matrices: &[Matrix], (node, slot): (NodeId, usize)) -> (&LinkConditions, Vec<PeerRule>) {
        let interface = &self.nodes[node].interfaces[slot];
        let here = |network: Option<NetworkId>| network.is_none_or(|network| network == interface.network);
        let mut rules: BTreeMap<NodeId, LinkConditions> = BTreeMap::new();
        let of_here = self.matrices.iter().zip(matrices).filter(|(file, _)| here(file.network));
        for (peer, delay) in of_here.flat_map(|(_, matrix)| matrix.from(node)) {
            rules.entry(peer).or_default().delay = Some(delay);
        }
        let is_about = |rule: &&LinkRule| here(rule.network) && rule.from.binary_search(&node).is_ok();
        for rule in self.links.iter().filter(is_about) {
            for peer in &rule.to {
                let held = rules.entry(*peer).or_default();
                *held = rule.conditions.over(held);
            }
        }
        let peer_rule = |(peer, conditions): (NodeId, LinkConditions)| {
            let theirs = self.nodes[peer].interfaces.iter().find(|theirs| theirs.network == interface.network)?;
            (peer != node).then(|| PeerRule { node: peer, addresses: theirs.addresses(), conditions })
        };
        (&interface.conditions.egress, rules.into_iter().filter_map(peer_rule).collect())
    }
}
