//! A lab as it is now: its file, with what was changed since put in.

use std::collections::{BTreeMap, BTreeSet};

use slipway_lab::change::Keys;
use slipway_lab::condition::{Conditions, LinkConditions, LinkRule};
use slipway_lab::id::{List, NetworkId, NodeId};
use slipway_lab::matrix::Matrix;
use slipway_lab::model::{Lab, Limits};

/// Conditions of an interface of a running lab.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveInterface {
    /// The node.
    pub node: NodeId,
    /// Position of the interface among the node's.
    pub slot: usize,
    /// Conditions of its packets.
    pub conditions: Conditions,
    /// Conditions of packets that it sends to some nodes, the interface's own included.
    pub peers: Vec<(NodeId, LinkConditions)>,
}

/// The lab whose file would say what holds now.
///
/// `matrices` are the lab's, read, in its order; `limits` the nodes'; `interfaces` those about
/// which there is something to say: of the others, the lab's own conditions hold. Rules and matrices stay where they
/// still hold between nodes. Otherwise rules are added for the differences. Where a rule lost a key, which no rule can
/// express, all rules are written anew.
#[must_use]
pub fn with_live(lab: &Lab, matrices: &[Matrix], limits: List<NodeId, Limits>, interfaces: &[LiveInterface]) -> Lab {
    let mut now = lab.clone();
    for (node, limits) in now.nodes.iter_mut().zip(limits) {
        node.limits = limits;
    }
    for live in interfaces {
        now.nodes[live.node].interfaces[live.slot].conditions = live.conditions.clone();
    }
    let mut added = Differences::default();
    let mut anew = Differences::default();
    let mut is_taken_away = false;
    for live in interfaces {
        let own = &live.conditions.egress;
        let network = lab.nodes[live.node].interfaces[live.slot].network;
        let (_, rules) = lab.egress_rules(matrices, (live.node, live.slot));
        let by_rule: BTreeMap<NodeId, LinkConditions> =
            rules.into_iter().map(|rule| (rule.node, rule.conditions.over(own))).collect();
        let held: BTreeMap<NodeId, &LinkConditions> = live.peers.iter().map(|(peer, held)| (*peer, held)).collect();
        for peer in by_rule.keys().chain(held.keys()).copied().collect::<BTreeSet<_>>() {
            let (by_rule, held) = (by_rule.get(&peer).unwrap_or(own), held.get(&peer).copied().unwrap_or(own));
            anew.add(network, (live.node, peer), &without(held, own));
            added.add(network, (live.node, peer), &without(held, by_rule));
            let keys = |of: &LinkConditions| of.words().into_iter().map(|(key, _)| key).collect::<Vec<_>>();
            is_taken_away |= keys(by_rule).iter().any(|key| !keys(held).contains(key));
        }
    }
    if is_taken_away {
        now.links = anew.rules(lab);
        now.matrices.clear();
    } else {
        now.links.extend(added.rules(lab));
    }
    now
}

/// The keys of `of` whose value is not that of `other`.
fn without(of: &LinkConditions, other: &LinkConditions) -> LinkConditions {
    let mut rest = of.clone();
    let theirs = other.words();
    for (key, _) in of.words().into_iter().filter(|word| theirs.contains(word)) {
        rest.clear(key);
    }
    rest
}

type Nodes = BTreeSet<NodeId>;

/// The rules to write for pairs: by network and conditions, each sender's receivers.
#[derive(Debug, Default)]
pub(super) struct Differences(BTreeMap<(NetworkId, String), (LinkConditions, BTreeMap<NodeId, Nodes>)>);

impl Differences {
    pub(super) fn add(&mut self, network: NetworkId, (from, to): (NodeId, NodeId), conditions: &LinkConditions) {
        let words = conditions.to_string();
        if !words.is_empty() {
            let (_, pairs) = self.0.entry((network, words)).or_insert_with(|| (conditions.clone(), BTreeMap::new()));
            pairs.entry(from).or_default().insert(to);
        }
    }

    /// Few rules that say it. A rule that goes one way is followed by the one that goes back, where there is one.
    pub(super) fn rules(self, lab: &Lab) -> Vec<LinkRule> {
        let mut rules = Vec::new();
        for ((network, _), (conditions, pairs)) in self.0 {
            let (apart, within) = (together(&pairs, false), together(&pairs, true));
            let mut ends = if within.len() < apart.len() { within } else { apart };
            while let Some((to, from)) = ends.pop_first() {
                let rule = |from: &Nodes, to: &Nodes| LinkRule {
                    from: from.iter().copied().collect(),
                    to: to.iter().copied().collect(),
                    network: (lab.networks.len() > 1).then_some(network),
                    conditions: conditions.clone(),
                };
                rules.push(rule(&from, &to));
                if ends.get(&from) == Some(&to) {
                    ends.remove(&from);
                    rules.push(rule(&to, &from));
                }
            }
        }
        rules
    }
}

/// Senders that have the same receivers. With `within`, a sender counts among its own: so all pairs within a group are one.
fn together(pairs: &BTreeMap<NodeId, Nodes>, within: bool) -> BTreeMap<Nodes, Nodes> {
    let mut ends: BTreeMap<Nodes, Nodes> = BTreeMap::new();
    for (&from, to) in pairs {
        let mut to = to.clone();
        if within {
            to.insert(from);
        }
        ends.entry(to).or_default().insert(from);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipway_document::units::Seconds;

    const LAB: &str = "
nodes: {n: {count: 4, cpu: 50%}}
networks: {net: {conditions: {delay: 5ms}}}
links: [{between: [n1, n2], delay: 20ms, loss: 1%}]
";

    fn lab() -> Lab {
        slipway_lab::parse("x.yaml", LAB, std::path::Path::new("/")).unwrap()
    }

    /// The conditions of the lab itself.
    fn as_it_is(lab: &Lab) -> Vec<LiveInterface> {
        let live = |node: NodeId| {
            let (own, rules) = lab.egress_rules(&[], (node, 0));
            let peers = rules.into_iter().map(|rule| (rule.node, rule.conditions.over(own))).collect();
            LiveInterface { node, slot: 0, conditions: lab.nodes[node].interfaces[0].conditions.clone(), peers }
        };
        lab.nodes.ids().map(live).collect()
    }

    fn limits(lab: &Lab) -> List<NodeId, Limits> {
        lab.nodes.iter().map(|node| node.limits.clone()).collect()
    }

    #[test]
    fn what_was_not_changed_stays_as_it_is_written() {
        let lab = lab();
        assert_eq!(with_live(&lab, &[], limits(&lab), &as_it_is(&lab)), lab);
        assert_eq!(with_live(&lab, &[], limits(&lab), &[]), lab);
    }

    /// The new lab has the conditions in force, whatever changed before.
    fn check(change: impl Fn(&mut Vec<LiveInterface>), rules: usize) {
        let lab = lab();
        let mut live = as_it_is(&lab);
        change(&mut live);
        let now = with_live(&lab, &[], limits(&lab), &live);
        assert_eq!(as_it_is(&now), live);
        assert_eq!(now.links.len(), rules);
        crate::to_slipway(&now, &[]).unwrap();
    }

    #[test]
    fn a_change_is_put_in() {
        check(|live| live[2].conditions.egress.delay = Some(Seconds(0.05)), 2);
        check(|live| live[0].peers[0].1.delay = Some(Seconds(0.05)), 3);
        // Both ways between two groups: one rule there, one back.
        let peer = LinkConditions { delay: Some(Seconds(0.08)), ..LinkConditions::default() };
        check(
            |live| {
                for (from, to) in [(0, [2, 3]), (1, [2, 3]), (2, [0, 1]), (3, [0, 1])] {
                    live[from].peers.extend(to.map(|to| (NodeId(to), peer.clone())));
                }
            },
            4,
        );
        // The part of a rule that no longer holds.
        check(|live| live[0].peers[0].1.loss = None, 2);
        check(|live| live.iter_mut().for_each(|live| live.peers.clear()), 0);
    }

    #[test]
    fn all_pairs_of_a_group_are_one_rule() {
        let mut differences = Differences::default();
        let conditions = LinkConditions { delay: Some(Seconds(0.01)), ..LinkConditions::default() };
        for (from, to) in (0..5).flat_map(|from| (0..5).map(move |to| (from, to))).filter(|(from, to)| from != to) {
            differences.add(NetworkId(0), (NodeId(from), NodeId(to)), &conditions);
        }
        assert_eq!(differences.rules(&lab()).len(), 1);
    }
}
