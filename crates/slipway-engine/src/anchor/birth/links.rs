//! Links and policy of nodes that run.

use std::os::fd::AsFd as _;

use slipway_lab::policy::Rule;
use slipway_sys::clone::SingleThread;

use super::{AnchorError, Blueprint, Nodes, net_of};
use crate::condition::{Around, LinkError, LinkReport, Links, Place, Seat};
use crate::network::graph::Graph;

impl Nodes {
    /// Reports the conditions of all links.
    pub(in crate::anchor) fn report_links(&mut self, blueprint: &Blueprint) -> LinkReport {
        self.links.report(&blueprint.lab)
    }

    /// Has something done to links, and gives how many fast connections ended with it.
    pub(in crate::anchor) fn with_links(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        act: impl FnOnce(&mut Links, &Around<'_>) -> Result<(), LinkError>,
    ) -> Result<u64, AnchorError> {
        let Self { slots, fabric, .. } = self;
        let (slots, fabric, lab) = (&*slots, &*fabric, &blueprint.lab);
        let seat = |(node, slot): Place| {
            if lab.nodes[node].rules_its_network() {
                let (net, name) = fabric.host_end(lab, node, slot)?;
                return Some(Seat { net, name, outside: true });
            }
            let name = lab.nodes[node].interfaces[slot].name.clone();
            Some(Seat { net: net_of(slots, node)?, name, outside: false })
        };
        let around = Around { alone, lab, lock: blueprint.lock.file().as_fd(), seat: &seat };
        let outcome = act(&mut self.links, &around);
        // A change that failed half-way may have altered some.
        let altered = self.links.altered(&blueprint.lab);
        let ended = self.with_bypasses(alone, blueprint, |bypasses, near| bypasses.set_conditions(near, &altered));
        outcome?;
        Ok(ended?)
    }

    /// Puts rules in the place of those that there were, and gives how many fast connections ended with it.
    pub(in crate::anchor) fn set_policy(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        rules: Vec<Rule>,
    ) -> Result<u64, AnchorError> {
        // Beneath first: what a bypass forbids goes there.
        self.fabric.set_policy(&blueprint.lab, &rules)?;
        self.policy = rules;
        let rules = self.policy.clone();
        Ok(self.with_bypasses(alone, blueprint, |bypasses, near| bypasses.set_policy(near, &rules))?)
    }

    /// The namespaces and devices of the lab's networks and conditions.
    pub(in crate::anchor) fn graph(&self, blueprint: &Blueprint) -> Graph {
        let mut graph = self.fabric.graph();
        self.links.add_to(&blueprint.lab, &mut graph);
        graph
    }
}
