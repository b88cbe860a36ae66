//! Changes that a later one hides for good: a trace may set a link's rate fifty times a second, and only the last of these
//! is worth keeping.

use std::collections::BTreeSet;

use slipway_lab::change::{Change, Keys};
use slipway_lab::scenario::Action;

/// Whether nothing of `earlier` can be felt any more once `later` lies over it.
pub(super) fn hides(later: &Action, earlier: &Action) -> bool {
    match (later, earlier) {
        (
            Action::Link { interfaces, direction, change },
            Action::Link { interfaces: before, direction: of, change: was },
        ) => direction == of && within(before, interfaces) && names_all(change, was),
        (Action::Pair { from, to, network, change }, Action::Pair { from: a, to: b, network: on, change: was }) => {
            network == on && from == a && to == b && names_all(change, was)
        }
        (Action::Node { nodes, change }, Action::Node { nodes: before, change: was }) => {
            within(before, nodes) && names_all(change, was)
        }
        (
            Action::Cut { interfaces } | Action::Heal { interfaces },
            Action::Cut { interfaces: before } | Action::Heal { interfaces: before },
        ) => within(before, interfaces),
        (Action::Join, Action::Join | Action::Partition { .. }) => true,
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
    use slipway_lab::scenario::Direction;

    use super::*;

    fn link(interfaces: &[(usize, usize)], words: &str) -> Action {
        let change = words.parse().expect("words");
        Action::Link { interfaces: interfaces.to_vec(), direction: Direction::Egress, change }
    }

    #[test]
    fn only_what_is_wholly_covered_is_hidden() {
        let old = link(&[(0, 0)], "delay=20ms");
        assert!(hides(&link(&[(0, 0), (1, 0)], "delay=none rate=1mbit"), &old));
        assert!(!hides(&link(&[(1, 0)], "delay=30ms"), &old));
        assert!(!hides(&link(&[(0, 0)], "rate=1mbit"), &old));
        let cut = |node| Action::Cut { interfaces: vec![(node, 0)] };
        assert!(hides(&Action::Heal { interfaces: vec![(0, 0), (1, 0)] }, &cut(1)));
        assert!(!hides(&cut(0), &cut(1)));
        assert!(hides(&Action::Join, &Action::Partition { groups: vec![vec![0]] }));
        assert!(!hides(&Action::Partition { groups: vec![vec![0]] }, &Action::Partition { groups: vec![vec![0]] }));
    }
}
