//! Where a link's random streams begin: at the lab's seed and the link's names, so that a node more or less changes no
//! other's draws.

use sha2::{Digest as _, Sha256};
use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_lab::scenario::Direction;

use super::choose::word;
use super::live::Place;

/// The seed of one direction of an interface, or of its packets to one peer.
pub(super) fn seed(lab: &Lab, (node, slot): Place, direction: Direction, peer: Option<NodeId>) -> [u8; 32] {
    let of = &lab.nodes[node];
    let mut hash = Sha256::new();
    hash.update(lab.seed.to_le_bytes());
    let peer = peer.map(|peer| lab.nodes[peer].name.as_str());
    for word in ["link", &of.name, &of.interfaces[slot].name, word(direction)].into_iter().chain(peer) {
        // With its length, so that no two lists of words run together to one text.
        hash.update((word.len() as u64).to_le_bytes());
        hash.update(word);
    }
    hash.finalize().0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab(text: &str) -> Lab {
        slipway_lab::parse("lab.yaml", text, std::path::Path::new("/")).expect("a lab")
    }

    #[test]
    fn a_seed_is_of_a_link_whatever_else_the_lab_has() {
        let (two, three) = (lab("nodes: {n: {count: 2}}"), lab("nodes: {a: , n: {count: 2}}"));
        assert_eq!(
            seed(&two, (NodeId(1), 0), Direction::Egress, None),
            seed(&three, (NodeId(2), 0), Direction::Egress, None)
        );
        assert_eq!(
            seed(&two, (NodeId(1), 0), Direction::Egress, Some(NodeId(0))),
            seed(&three, (NodeId(2), 0), Direction::Egress, Some(NodeId(1)))
        );
    }

    #[test]
    fn no_two_links_have_the_same() {
        let lab = lab("nodes: {n: {count: 2}}");
        let other = Lab { seed: lab.seed + 1, ..lab.clone() };
        let mut seeds = vec![
            seed(&lab, (NodeId(0), 0), Direction::Egress, None),
            seed(&lab, (NodeId(0), 0), Direction::Ingress, None),
            seed(&lab, (NodeId(1), 0), Direction::Egress, None),
            seed(&lab, (NodeId(0), 0), Direction::Egress, Some(NodeId(1))),
            seed(&other, (NodeId(0), 0), Direction::Egress, None),
        ];
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 5);
    }
}
