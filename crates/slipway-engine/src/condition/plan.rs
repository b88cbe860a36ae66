//! What an interface is to be like, from the lab file, the changes since, and what this machine has. Pure.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::net::IpAddr;

use slipway_lab::change::Keys as _;
use slipway_lab::condition::LinkConditions;
use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::matrix::Matrix;
use slipway_lab::model::{DriverKind, Interface, Lab};
use slipway_lab::scenario::{Direction, Groups};

use super::choose::{Choice, NATIVE, Unable, Wanted, choose};
use super::gate::{LANES, Side};
use super::live::{Live, Place};
use super::probe::LinkMeans;

/// Both directions, in the order of everything that is kept for each.
pub(super) const BOTH: [Direction; 2] = [Direction::Egress, Direction::Ingress];

/// What an interface is to be like.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked for by itself")]
pub(super) struct Plan {
    pub(super) cut: bool,
    /// Whether its node is frozen: nothing passes, but connections stay.
    pub(super) still: bool,
    /// Whether its node is dead: nothing passes but what waits in the mechanism of its egress.
    pub(super) dead: bool,
    pub(super) side: Side,
    /// Whether it is met at its host's end.
    pub(super) outside: bool,
    /// Egress, then ingress.
    pub(super) ways: [Way; 2],
}

/// What one direction of it is to be like.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Way {
    pub(super) all: LinkConditions,
    /// Conditions of what is sent to some nodes, by node; what they do not name is as in `all`.
    pub(super) peers: BTreeMap<NodeId, LinkConditions>,
    pub(super) choice: Choice,
}

/// The partitions that hold, each in a place of its own for as long as it does.
pub(super) type Lanes = [Option<Groups>; LANES];

/// What an interface is planned from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Basis<'a> {
    pub(super) lab: &'a Lab,
    pub(super) matrices: &'a [Matrix],
    pub(super) live: &'a Live,
    pub(super) lanes: &'a Lanes,
    /// Looked at when something first needs it: most labs have no conditions.
    pub(super) means: &'a OnceCell<LinkMeans>,
}

/// Plans an interface.
pub(super) fn plan(basis: Basis<'_>, place: Place) -> Result<Plan, Unable> {
    let Basis { lab, live, .. } = basis;
    let (cut, side) = (live.is_cut(place), side(basis.lanes, place.0));
    let parted = cut || side != Side::default();
    let outside = lab.nodes[place.0].rules_its_network();
    let way = |direction| {
        let (base, peers) = match direction {
            Direction::Egress => peers(basis, place),
            Direction::Ingress => (&lab.nodes[place.0].interfaces[place.1].conditions.ingress, BTreeMap::new()),
        };
        let all = live.conditions(base, place, direction);
        let pairs = peers.values().any(|peer| peer.over(&all) != all);
        let choice = if pairs || parted || !all.is_natural() {
            let means = basis.means.get_or_init(LinkMeans::probe);
            choose(lab.mechanism, means, Wanted { direction, outside, all: &all, pairs, parted })?
        } else {
            NATIVE
        };
        Ok(Way { all, peers: if pairs { peers } else { BTreeMap::new() }, choice })
    };
    let [egress, ingress] = BOTH;
    let (still, dead) = (live.still.contains(&place.0), live.dead.contains(&place.0));
    Ok(Plan { cut, still, dead, side, outside, ways: [way(egress)?, way(ingress)?] })
}

/// What the lab file says of what an interface sends; and conditions of what it sends to some nodes of its network.
fn peers(basis: Basis<'_>, place: Place) -> (&LinkConditions, BTreeMap<NodeId, LinkConditions>) {
    let Basis { lab, live, .. } = basis;
    let network = lab.nodes[place.0].interfaces[place.1].network;
    let is_peer = |peer: NodeId| peer != place.0 && addresses(lab, peer, network).next().is_some();
    let (base, rules) = lab.egress_rules(basis.matrices, place);
    let mut peers: BTreeMap<NodeId, LinkConditions> =
        rules.into_iter().map(|rule| (rule.node, rule.conditions)).collect();
    for pair in live.pairs().filter(|pair| pair.is_from(place.0, network)) {
        for &peer in pair.to.iter().filter(|&&peer| is_peer(peer)) {
            let held = peers.entry(peer).or_default();
            *held = pair.change.apply(held);
        }
    }
    peers.retain(|_, conditions| !conditions.words().is_empty());
    (base, peers)
}

/// A node's addresses on a network.
pub(super) fn addresses(lab: &Lab, node: NodeId, network: NetworkId) -> impl Iterator<Item = IpAddr> {
    let there = lab.nodes[node].interfaces.iter().filter(move |interface| interface.network == network);
    there.flat_map(Interface::addresses)
}

/// Whether conditions can be set on a node's interfaces: on driver `host` it has none of its own.
pub(super) fn has_interfaces(lab: &Lab, node: NodeId) -> bool {
    lab.nodes[node].interfaces.iter().all(|interface| lab.networks[interface.network].driver != DriverKind::Host)
}

/// A node's group in each partition.
pub(super) fn side(lanes: &Lanes, node: NodeId) -> Side {
    let mut side = Side::default();
    for (group, lane) in side.iter_mut().zip(lanes) {
        let found = lane.iter().flatten().position(|group| group.contains(&node));
        *group = found.map_or(0, |at| u16::try_from(at + 1).unwrap_or_default());
    }
    side
}

/// Gives the partitions `wanted` places. One that holds already keeps its own, so that it parts its groups throughout.
/// `None` where they are too many.
pub(super) fn arrange(now: &Lanes, mut wanted: Vec<Groups>) -> Option<Lanes> {
    let mut lanes = now.clone();
    for lane in &mut lanes {
        match lane.as_ref().and_then(|groups| wanted.iter().position(|one| one == groups)) {
            Some(at) => drop(wanted.remove(at)),
            None => *lane = None,
        }
    }
    for groups in wanted {
        *lanes.iter_mut().find(|lane| lane.is_none())? = Some(groups);
    }
    Some(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_stays_stays_where_it_is() {
        let groups = |n: usize| vec![vec![NodeId(n)], vec![NodeId(n + 1)]];
        let side = |lanes: &Lanes, n: usize| side(lanes, NodeId(n));
        let lanes = arrange(&Lanes::default(), vec![groups(0), groups(5)]).expect("two fit");
        assert_eq!((side(&lanes, 1)[..2].to_vec(), side(&lanes, 5)[..2].to_vec()), (vec![2, 0], vec![0, 1]));
        let lanes = arrange(&lanes, vec![groups(8), groups(5)]).expect("two fit");
        assert_eq!((side(&lanes, 8)[0], side(&lanes, 5)[1], side(&lanes, 1)[0]), (1, 1, 0));
        assert!(arrange(&lanes, (0..=LANES).map(groups).collect()).is_none(), "one too many");
    }
}
