//! The lab's rules and conditions, for queue pairs.
//!
//! A queue pair has no port, so a rule with ports is not about it. The broker relays pairs that a rule limits. Nothing keeps
//! conditions of links: such pairs are refused, and never silently faster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use slipway_document::units::Rate;
use slipway_fast::policy::{Decision, Policy, Rates};
use slipway_fast::reason::Reason;
use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::model::Lab;
use slipway_lab::policy::Rule;
use slipway_verbs::broker::{Limits, Terms};

use super::device;

/// The port of a queue pair, which no rule names.
const NO_PORT: u16 = 0;

/// How often queue pairs were refused, by reason.
pub(super) type Refused = Arc<Mutex<BTreeMap<Reason, u64>>>;

/// The rules and conditions at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    policy: Policy,
    conditioned: BTreeSet<NodeId>,
    networks: Networks,
}

/// The networks with RDMA of each node of a lab.
#[derive(Debug, Clone, Default)]
pub(super) struct Networks(Arc<Vec<BTreeSet<NetworkId>>>);

impl Networks {
    pub(super) fn of(lab: &Lab) -> Self {
        let of = |node| device::interfaces(lab, node).map(|interface| interface.network).collect();
        Self(Arc::new(lab.nodes.ids().map(of).collect()))
    }

    /// Whether two nodes are on one of them. A queue pair names its peer by an address, and no route is asked.
    pub(super) fn join(&self, one: NodeId, other: NodeId) -> bool {
        let of = |node: NodeId| self.0.get(node.index());
        matches!((of(one), of(other)), (Some(one), Some(other)) if !one.is_disjoint(other))
    }
}

impl Rules {
    pub(super) fn new(rules: &[Rule], networks: Networks, conditioned: BTreeSet<NodeId>) -> Self {
        Self { policy: Policy::new(rules, networks.0.len()), conditioned, networks }
    }

    /// Whether queue pairs of two nodes may be joined; the first node asks. The error is the reason, and what a program reads.
    pub(super) fn admit(&self, from: NodeId, to: NodeId) -> Result<(), (Reason, Errno)> {
        if !self.networks.join(from, to) {
            return Err((Reason::NotANode, Errno::HOSTUNREACH));
        }
        if self.conditioned.contains(&from) || self.conditioned.contains(&to) {
            return Err((Reason::Conditions, Errno::OPNOTSUPP));
        }
        match self.policy.decide(from, to, NO_PORT) {
            Decision::Allow(_) => Ok(()),
            Decision::Deny(_) => Err((Reason::Policy, Errno::ACCESS)),
        }
    }

    /// The limits of queue pairs of two nodes, the first of which connects.
    pub(super) fn terms(&self, from: NodeId, to: NodeId) -> Terms {
        let Decision::Allow(terms) = self.policy.decide(from, to, NO_PORT) else { return Terms::default() };
        let bits = |rate: Option<Rate>| rate.map(|Rate(bits)| bits);
        let Rates { flow, pair, node } = terms.rates;
        Terms {
            rule: terms.rule.unwrap_or(usize::MAX),
            flow: bits(flow),
            pair: bits(pair),
            node: bits(node),
            priority: terms.priority,
            connections: terms.connections,
        }
    }

    /// These limits, as a broker asks for them.
    pub(super) fn into_limits(self) -> Limits {
        let node = |number: u32| usize::try_from(number).map(NodeId).ok();
        Box::new(move |from, to| match (node(from), node(to)) {
            (Some(from), Some(to)) => self.terms(from, to),
            _ => Terms::default(),
        })
    }

    /// The same for a broker, which counts what it refuses.
    pub(super) fn into_policy(self, refused: Refused) -> slipway_verbs::broker::Policy {
        Box::new(move |from, to| {
            let node = |number: u32| usize::try_from(number).map(NodeId).map_err(|_| Errno::INVAL);
            self.admit(node(from)?, node(to)?).map_err(|(reason, errno)| {
                *refused.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
                errno
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn limits_are_kept_and_conditions_are_not_passed_by() {
        let text = "networks: {net: {driver: fast, rdma: true}, far: {driver: fast, rdma: true}}\nnodes: {a: {networks: [net]}, b: {networks: [net]}, c: {networks: [net]}, d: {networks: [far]}}\npolicy:\n  - {name: slow, from: a, to: b, rate: 1gbit}\n  - {name: closed, from: b, to: a, verdict: deny}\n  - {name: port, from: b, to: c, ports: [5], verdict: deny}\n";
        let lab =
            slipway_lab::parse("lab.yaml", text, Path::new("/")).unwrap_or_else(|errors| panic!("{}", errors.plain()));
        let [a, b, c, d] = [0, 1, 2, 3].map(NodeId);
        let networks = Networks::of(&lab);
        let rules = Rules::new(&lab.policy, networks.clone(), BTreeSet::new());
        assert_eq!(rules.admit(a, b), Ok(()));
        assert_eq!(rules.terms(a, b), Terms { flow: Some(1_000_000_000), ..Terms::default() });
        assert_eq!(rules.admit(b, a), Err((Reason::Policy, Errno::ACCESS)));
        // A queue pair has no port.
        assert_eq!((rules.admit(b, c), rules.terms(b, c).flow), (Ok(()), None));
        let rules = Rules::new(&[], networks, [a].into());
        assert_eq!(rules.admit(c, a), Err((Reason::Conditions, Errno::OPNOTSUPP)));
        assert_eq!(rules.admit(b, c), Ok(()));
        assert_eq!(rules.admit(b, d), Err((Reason::NotANode, Errno::HOSTUNREACH)), "on no network together");
    }
}
