//! What nodes may use, as a scenario changes it: changes lie over each other, and one that is taken back leaves what the
//! others say.

use std::collections::BTreeMap;

use slipway_lab::change::NodeChange;
use slipway_lab::id::{List, NodeId};
use slipway_lab::model::Limits;

use crate::lab::undo;

#[derive(Debug)]
pub(super) struct Layers {
    /// What nodes might use before.
    before: List<NodeId, Limits>,
    changes: BTreeMap<usize, (Vec<NodeId>, NodeChange)>,
}

impl Layers {
    pub(super) fn over(before: List<NodeId, Limits>) -> Self {
        Self { before, changes: BTreeMap::new() }
    }

    /// Notes a change that was made.
    pub(super) fn lay(&mut self, number: usize, nodes: &[NodeId], change: &NodeChange) {
        self.changes.insert(number, (nodes.to_vec(), change.clone()));
    }

    /// Takes a change away, and says what is to be made of each of its nodes. `None`: there is no such change.
    pub(super) fn lift(&mut self, number: usize) -> Option<Vec<(NodeId, NodeChange)>> {
        let (nodes, change) = self.changes.remove(&number)?;
        Some(nodes.into_iter().map(|node| (node, undo(&change, &self.now(node)))).collect())
    }

    fn now(&self, node: NodeId) -> Limits {
        let about = self.changes.values().filter(|(nodes, _)| nodes.contains(&node));
        about.fold(self.before[node].clone(), |now, (_, change)| change.apply(&now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beneath_comes_back_when_the_last_change_goes() {
        let change = |words: &str| words.parse::<NodeChange>().expect("words");
        let mut layers = Layers::over(vec![change("cpu=80%").set].into());
        let node = NodeId(0);
        layers.lay(1, &[node], &change("cpu=50% pids=9"));
        layers.lay(2, &[node], &change("cpu=20%"));
        assert_eq!(layers.lift(1), Some(vec![(node, change("cpu=20% pids=none"))]));
        assert_eq!(layers.lift(2), Some(vec![(node, change("cpu=80%"))]));
        assert_eq!(layers.lift(2), None);
    }
}
