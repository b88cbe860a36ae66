//! Nodes whose programs get no answers, because they are about to be frozen ([`slipway_fast::gate`]).

use std::collections::BTreeMap;
use std::time::Instant;

use slipway_fast::control::Order;
use slipway_fast::gate::LONGEST;
use slipway_lab::id::NodeId;

use super::Routers;
use crate::bypass::Near;

/// That answers to a node are held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    /// The commands that freeze the node at once.
    holders: u32,
    /// The time at which it ends without a word from them.
    pub(super) until: Instant,
}

pub(super) type Holds = BTreeMap<NodeId, Hold>;

impl Routers {
    /// Has programs of these nodes get no answers, until each that has asked for it has them [`release`](Self::release)d, or for
    /// [`LONGEST`].
    pub(crate) fn hold(&mut self, near: &Near<'_>, nodes: &[NodeId]) {
        let until = Instant::now() + LONGEST;
        for &node in nodes {
            let holders = self.holds.get(&node).map_or(0, |hold| hold.holders);
            self.holds.insert(node, Hold { holders: holders.saturating_add(1), until });
        }
        self.have_heeded(near, || Order::Hold { nodes: nodes.to_vec() });
    }

    /// Programs of these nodes get answers again.
    pub(crate) fn release(&mut self, nodes: &[NodeId]) {
        let mut is_last = |node: &NodeId| {
            let Some(hold) = self.holds.get_mut(node) else { return false };
            hold.holders -= 1;
            hold.holders == 0
        };
        let released: Vec<NodeId> = nodes.iter().copied().filter(|node| is_last(node)).collect();
        self.end_holds(&released);
    }

    /// The same for those whose time is over.
    pub(super) fn release_late(&mut self, now: Instant) {
        let late = self.holds.iter().filter(|(_, hold)| hold.until <= now).map(|(&node, _)| node);
        let late: Vec<NodeId> = late.collect();
        self.end_holds(&late);
    }

    fn end_holds(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            self.holds.remove(node);
        }
        if !nodes.is_empty() {
            self.order(|| Order::Release { nodes: nodes.to_vec() });
        }
    }
}
