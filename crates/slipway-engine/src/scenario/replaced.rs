//! Changes that a later one hides for good: a trace may set a link's rate fifty times a second, and only the last of these
//! is worth keeping.

use std::collections::BTreeSet;

use slipway_lab::change::{Change, Keys};
use slipway_lab::scenario::{LinkAction, Order, Pair};

/// Whether nothing of `earlier` can be felt any more once `later` lies over it.
pub(super) fn hides(later: &Order, earlier: &Order) -> bool {
    match (later, earlier) {
        (Order::Links(later), Order::Links(earlier)) => hides_links(later, earlier),
        (Order::Node { nodes, change }, Order::Node { nodes: before, change: was }) => {
            within(before, nodes) && names_all(change, was)
        }
        _ => false,
    }
}

fn hides_links(later: &LinkAction, earlier: &LinkAction) -> bool {
    match (later, earlier) {
        (
            LinkAction::Link { interfaces, direction, change },
            LinkAction::Link { interfaces: before, direction: of, change: was },
        ) => direction == of && within(before, interfaces) && names_all(change, was),
        (LinkAction::Pair(later), LinkAction::Pair(earlier)) => {
            let ends = |pair: &Pair| (pair.network, pair.from.clone(), pair.to.clone());
            ends(later) == ends(earlier) && names_all(&later.change, &earlier.change)
        }
        (
            LinkAction::Cut { interfaces } | LinkAction::Heal { interfaces },
            LinkAction::Cut { interfaces: before } | LinkAction::Heal { interfaces: before },
        ) => within(before, interfaces),
        (LinkAction::Join, LinkAction::Join | LinkAction::Partition { .. }) => true,
        _ => false,
    }
}

fn within<T: Ord>(some: &[T], all: &[T]) -> bool {
    let all: BTreeSet<&T> = all.iter().collect();
    some.iter().all(|one| all.contains(one))
}

/// Whether `later` says something about every key that `earlier` does.
fn names_all<T: Keys>(later: &Change<T>, earlier: &Change<T>) -> bool {
    let names = |change: &Change<T>| -> BTreeSet<String> {
        let set = change.set.words().into_iter().map(|(key, _)| key.to_owned());
        set.chain(change.clear.iter().cloned()).collect()
    };
    names(earlier).is_subset(&names(later))
}

#[cfg(test)]
mod tests {
    use slipway_lab::id::NodeId;
    use slipway_lab::scenario::Direction;

    use super::*;

    fn link(interfaces: &[(usize, usize)], words: &str) -> Order {
        let change = words.parse().expect("words");
        let interfaces = interfaces.iter().map(|&(node, slot)| (NodeId(node), slot)).collect();
        LinkAction::Link { interfaces, direction: Direction::Egress, change }.into()
    }

    #[test]
    fn only_what_is_wholly_covered_is_hidden() {
        let old = link(&[(0, 0)], "delay=20ms");
        assert!(hides(&link(&[(0, 0), (1, 0)], "delay=none rate=1mbit"), &old));
        assert!(!hides(&link(&[(1, 0)], "delay=30ms"), &old));
        assert!(!hides(&link(&[(0, 0)], "rate=1mbit"), &old));
        let cut = |node| Order::Links(LinkAction::Cut { interfaces: vec![(NodeId(node), 0)] });
        let heal = Order::Links(LinkAction::Heal { interfaces: vec![(NodeId(0), 0), (NodeId(1), 0)] });
        let parted = Order::Links(LinkAction::Partition { groups: vec![vec![NodeId(0)]] });
        assert!(hides(&heal, &cut(1)));
        assert!(!hides(&cut(0), &cut(1)));
        assert!(hides(&LinkAction::Join.into(), &parted));
        assert!(!hides(&parted, &parted));
    }
}
