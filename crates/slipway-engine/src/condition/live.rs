//! What holds on a running lab's links: the lab file's conditions, changes by hand over them, and over those the changes
//! that hold for a time (overlays), in the order of their numbers. Values only; nothing here touches the kernel.

use std::collections::{BTreeMap, BTreeSet};

use slipway_lab::change::{Keys as _, LinkChange};
use slipway_lab::condition::LinkConditions;
use slipway_lab::id::NodeId;
use slipway_lab::scenario::{Direction, Groups, LinkAction, Pair};

/// A node and the position of one of its interfaces.
pub type Place = (NodeId, usize);

/// Every change since the lab came up that still holds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Live {
    links: BTreeMap<(NodeId, usize, Direction), LinkChange>,
    pairs: Vec<Pair>,
    cut: BTreeSet<Place>,
    /// Nodes that are frozen, whose interfaces pass nothing.
    pub(crate) still: BTreeSet<NodeId>,
    /// Nodes that are dead, of whose interfaces nothing comes but what waited there.
    pub(crate) dead: BTreeSet<NodeId>,
    partitions: Vec<Groups>,
    overlays: BTreeMap<usize, LinkAction>,
    /// Which overlays there are about an interface: a scenario may lay thousands, of which few concern any one.
    about: BTreeMap<Place, BTreeSet<usize>>,
}

impl Live {
    /// Without changes; what is frozen or dead still is.
    pub(crate) fn anew(&self) -> Self {
        Self { still: self.still.clone(), dead: self.dead.clone(), ..Self::default() }
    }

    /// Makes a change that holds until another takes it back.
    pub(crate) fn change(&mut self, action: LinkAction) {
        match action.sorted() {
            LinkAction::Link { interfaces, direction, change } => {
                for (node, slot) in interfaces {
                    let held = self.links.entry((node, slot, direction)).or_default();
                    *held = after(held, &change);
                }
            }
            LinkAction::Pair(mut pair) => {
                let same = |held: &Pair| held.from == pair.from && held.to == pair.to && held.network == pair.network;
                if let Some(at) = self.pairs.iter().position(same) {
                    pair.change = after(&self.pairs.remove(at).change, &pair.change);
                }
                self.pairs.push(pair);
            }
            LinkAction::Cut { interfaces } => self.cut.extend(interfaces),
            LinkAction::Heal { interfaces } => self.cut.retain(|&place| !has(&interfaces, place)),
            LinkAction::Partition { groups } => {
                if !self.partitions.contains(&groups) {
                    self.partitions.push(groups);
                }
            }
            LinkAction::Join => self.partitions.clear(),
        }
    }

    /// Makes a change that holds until it is lifted. One that was laid under this number before is lifted.
    pub(crate) fn lay(&mut self, number: usize, action: LinkAction) {
        self.lift(number);
        let action = action.sorted();
        for &place in action.interfaces() {
            self.about.entry(place).or_default().insert(number);
        }
        self.overlays.insert(number, action);
    }

    /// The change that was laid over the others under this number.
    pub(crate) fn overlay(&self, number: usize) -> Option<&LinkAction> {
        self.overlays.get(&number)
    }

    /// Ends a change that was laid over the others. One that there is not is fine.
    pub(crate) fn lift(&mut self, number: usize) {
        let Some(action) = self.overlays.remove(&number) else { return };
        for place in action.interfaces() {
            if let Some(about) = self.about.get_mut(place) {
                about.remove(&number);
            }
        }
    }

    /// The numbers of overlays that hold.
    pub(crate) fn overlays(&self) -> Vec<usize> {
        self.overlays.keys().copied().collect()
    }

    fn laid_over(&self, place: Place) -> impl Iterator<Item = &LinkAction> {
        let numbers = self.about.get(&place).into_iter().flatten();
        numbers.filter_map(|number| self.overlays.get(number))
    }

    /// The conditions of an interface where the lab file's are `base`.
    pub(crate) fn conditions(&self, base: &LinkConditions, place: Place, direction: Direction) -> LinkConditions {
        let held = self.links.get(&(place.0, place.1, direction));
        let now = held.map_or_else(|| base.clone(), |change| change.apply(base));
        self.laid_over(place).fold(now, |now, action| match action {
            LinkAction::Link { direction: of, change, .. } if *of == direction => change.apply(&now),
            _ => now,
        })
    }

    /// Whether an interface is cut.
    pub(crate) fn is_cut(&self, place: Place) -> bool {
        self.laid_over(place).fold(self.cut.contains(&place), |cut, action| match action {
            LinkAction::Cut { .. } => true,
            LinkAction::Heal { .. } => false,
            _ => cut,
        })
    }

    /// Changes of pairs, in the order in which they hold over each other.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &Pair> {
        let laid = self.overlays.values().filter_map(|action| match action {
            LinkAction::Pair(pair) => Some(pair),
            _ => None,
        });
        self.pairs.iter().chain(laid)
    }

    /// The partitions that hold, each once.
    pub(crate) fn partitions(&self) -> Vec<Groups> {
        let mut now = self.partitions.clone();
        for action in self.overlays.values() {
            match action {
                LinkAction::Partition { groups } if !now.contains(groups) => now.push(groups.clone()),
                LinkAction::Join => now.clear(),
                _ => {}
            }
        }
        now
    }
}

fn has(sorted: &[Place], place: Place) -> bool {
    sorted.binary_search(&place).is_ok()
}

/// One change after another, as one.
fn after(first: &LinkChange, second: &LinkChange) -> LinkChange {
    let set = second.apply(&first.set);
    let named: Vec<&str> = second.set.words().into_iter().map(|(key, _)| key).collect();
    let mut clear: Vec<String> = first.clear.iter().filter(|key| !named.contains(&key.as_str())).cloned().collect();
    clear.extend(second.clear.iter().filter(|key| !first.clear.contains(key)).cloned());
    LinkChange { set, clear }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slipway_lab::id::NetworkId;

    use super::*;

    const N: [NodeId; 3] = [NodeId(0), NodeId(1), NodeId(2)];

    fn link(words: &str) -> LinkAction {
        let change = words.parse().expect("a change");
        LinkAction::Link { interfaces: vec![(N[0], 0)], direction: Direction::Egress, change }
    }

    fn now(live: &Live, base: &str) -> String {
        let base = base.parse::<LinkChange>().expect("conditions").set;
        live.conditions(&base, (N[0], 0), Direction::Egress).to_string()
    }

    #[test]
    fn setting_one_key_leaves_the_others() {
        let mut live = Live::default();
        live.change(link("delay=20ms"));
        live.change(link("loss=0.5%"));
        assert_eq!(now(&live, "rate=10mbit"), "delay=20ms loss=0.5% rate=10mbit");
        live.change(link("rate=none delay=none"));
        assert_eq!(now(&live, "rate=10mbit delay=1s"), "loss=0.5%");
        live.change(link("rate=1gbit"));
        assert_eq!(now(&live, "rate=10mbit delay=1s"), "loss=0.5% rate=1gbit");
        assert_eq!(
            live.conditions(&LinkConditions::default(), (N[0], 0), Direction::Ingress),
            LinkConditions::default()
        );
    }

    #[test]
    fn an_overlay_holds_until_it_is_lifted_whatever_happens_beneath() {
        let mut live = Live::default();
        live.lay(7, link("delay=50ms"));
        live.lay(9, link("delay=90ms"));
        live.change(link("delay=20ms"));
        assert_eq!(now(&live, ""), "delay=90ms");
        live.lift(9);
        assert_eq!(now(&live, ""), "delay=50ms");
        live.lift(7);
        assert_eq!(now(&live, ""), "delay=20ms");
        assert!(live.overlay(7).is_none());
    }

    #[test]
    fn pairs_hold_one_way_and_on_their_network() {
        let mut live = Live::default();
        let pair = |words: &str| {
            let change = words.parse().expect("a change");
            LinkAction::Pair(Pair { from: vec![N[1], N[0]], to: vec![N[2]], network: Some(NetworkId(1)), change })
        };
        live.change(pair("delay=20ms"));
        live.lay(1, pair("loss=1%"));
        live.change(pair("delay=30ms rate=1mbit"));
        let words: Vec<String> = live.pairs().map(|pair| pair.change.to_string()).collect();
        assert_eq!(
            words,
            ["delay=30ms rate=1mbit", "loss=1%"],
            "one change of the same pair, then what is laid over it"
        );
        let first = live.pairs().next().expect("two");
        assert!(
            first.is_from(N[0], NetworkId(1))
                && !first.is_from(N[2], NetworkId(1))
                && !first.is_from(N[0], NetworkId(0))
        );
    }

    #[test]
    fn cuts_and_partitions_end_as_they_began() {
        let mut live = Live::default();
        live.change(LinkAction::Cut { interfaces: vec![(N[0], 0), (N[1], 0)] });
        live.lay(3, LinkAction::Heal { interfaces: vec![(N[1], 0)] });
        assert_eq!(((live.is_cut((N[0], 0))), live.is_cut((N[1], 0)), live.is_cut((N[2], 0))), (true, false, false));
        live.lift(3);
        live.change(LinkAction::Heal { interfaces: vec![(N[0], 0)] });
        assert_eq!((live.is_cut((N[0], 0)), live.is_cut((N[1], 0))), (false, true));
        let groups = vec![vec![N[0]], vec![N[1], N[2]]];
        live.change(LinkAction::Partition { groups: groups.clone() });
        live.lay(4, LinkAction::Partition { groups: groups.clone() });
        assert_eq!(live.partitions(), std::slice::from_ref(&groups));
        live.change(LinkAction::Join);
        assert_eq!(live.partitions(), [groups], "the overlay still holds");
    }

    fn words() -> impl Strategy<Value = String> {
        let word = prop_oneof![
            "delay=[1-9]ms".boxed(),
            "loss=[1-9]%".boxed(),
            "rate=[1-9]mbit".boxed(),
            Just("delay=none".to_owned()).boxed(),
            Just("rate=none".to_owned()).boxed(),
        ];
        proptest::collection::vec(word, 0..4).prop_map(|words| {
            let mut seen = BTreeSet::new();
            let once = words.into_iter().filter(|word| seen.insert(word.split('=').next().map(str::to_owned)));
            once.collect::<Vec<_>>().join(" ")
        })
    }

    proptest! {
        #[test]
        fn changes_one_after_the_other_are_their_sum(base in words(), changes in proptest::collection::vec(words(), 0..6)) {
            let base = base.parse::<LinkChange>().expect("words").set;
            let changes: Vec<LinkChange> = changes.iter().map(|words| words.parse().expect("words")).collect();
            let one_by_one = changes.iter().fold(base.clone(), |now, change| change.apply(&now));
            let sum = changes.iter().fold(LinkChange::default(), |sum, change| after(&sum, change));
            prop_assert_eq!(sum.apply(&base), one_by_one);
        }
    }
}
