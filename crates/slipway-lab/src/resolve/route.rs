//! Routes to networks that a node is not on, through gateway nodes: the fewest hops, the first gateway among equals.

use std::collections::VecDeque;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::id::{List, NetworkId};
use crate::model::{Network, Node, Route};

/// Sets every node's routes. The work is done once for each pair of networks, not for each pair of nodes.
pub(super) fn routes(networks: &List<NetworkId, Network>, nodes: &mut [Node]) {
    let v4 = Table::new(networks, nodes, |network| Some(network.ipv4.into()), |interface| Some(interface.ipv4.into()));
    let v6 = Table::new(
        networks,
        nodes,
        |network| network.ipv6.map(IpNet::from),
        |interface| interface.ipv6.map(IpAddr::from),
    );
    for node in nodes.iter_mut().filter(|node| !node.own_routes()) {
        node.routes = v4.routes(node).chain(v6.routes(node)).collect();
    }
}

/// One address family's way from each network to each other.
struct Table {
    subnets: List<NetworkId, Option<IpNet>>,
    /// `hops[to][from]`: how far, and the gateway's address on `from`.
    hops: List<NetworkId, List<NetworkId, Option<Hop>>>,
}

#[derive(Clone, Copy)]
struct Hop {
    distance: usize,
    via: Option<IpAddr>,
}

impl Table {
    fn new(
        networks: &List<NetworkId, Network>,
        nodes: &[Node],
        subnet: fn(&Network) -> Option<IpNet>,
        address: fn(&crate::model::Interface) -> Option<IpAddr>,
    ) -> Self {
        // The gateways on each network: their address there, and the networks that they lead to.
        let mut gateways: List<NetworkId, _> = vec![Vec::new(); networks.len()].into();
        let mut arms = Vec::new();
        for node in nodes.iter().filter(|node| node.gateway) {
            let mine: Vec<_> = node.interfaces.iter().filter_map(|i| Some((i.network, address(i)?))).collect();
            for (network, address) in &mine {
                gateways[*network].push((*address, arms.len()));
            }
            arms.push(mine.into_iter().map(|(network, _)| network).collect::<Vec<_>>());
        }
        let subnets = networks.iter().map(subnet).collect();
        let to = |to| if gateways.iter().all(Vec::is_empty) { List::new() } else { towards(to, &gateways, &arms) };
        let hops = networks.ids().map(to).collect();
        Self { subnets, hops }
    }

    fn routes<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = Route> + 'a {
        let on = |network| node.interfaces.iter().any(|interface| interface.network == network);
        let elsewhere = self.subnets.enumerate().filter(move |(to, _)| !on(*to));
        elsewhere.filter_map(move |(to, subnet)| {
            let hop = |from| self.hops[to].get(from).copied().flatten();
            let nearest = node.interfaces.iter().filter_map(|i| hop(i.network)).min_by_key(|hop| hop.distance);
            Some(Route { to: (*subnet)?, via: nearest?.via? })
        })
    }
}

/// Breadth first from the destination, so that each network learns its nearest way once.
fn towards(
    to: NetworkId,
    gateways: &List<NetworkId, Vec<(IpAddr, usize)>>,
    arms: &[Vec<NetworkId>],
) -> List<NetworkId, Option<Hop>> {
    let mut distance: List<NetworkId, _> = vec![None; gateways.len()].into();
    distance[to] = Some(0);
    let mut queue = VecDeque::from([to]);
    let mut crossed = vec![false; arms.len()];
    while let Some(network) = queue.pop_front() {
        let next = distance[network].map(|so_far: usize| so_far + 1);
        for (_, gateway) in &gateways[network] {
            if std::mem::replace(&mut crossed[*gateway], true) {
                continue;
            }
            for &arm in &arms[*gateway] {
                if distance[arm].is_none() {
                    distance[arm] = next;
                    queue.push_back(arm);
                }
            }
        }
    }
    let hop = |from| {
        let mine = distance[from]?;
        let nearer = |(_, gateway): &&(IpAddr, usize)| {
            arms[*gateway].iter().any(|arm| distance[*arm].is_some_and(|theirs| theirs < mine))
        };
        let via = gateways[from].iter().find(nearer).map(|(address, _)| *address);
        Some(Hop { distance: mine, via })
    };
    gateways.ids().map(hop).collect()
}
