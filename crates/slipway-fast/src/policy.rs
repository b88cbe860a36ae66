//! The policy of the fast path: the lab's rules, in a form for fast decisions when a connection is set up.
//!
//! The first rule that fits client, server and port decides everything about a connection. The policy allows a connection
//! without a rule, and does not limit it. This expresses Kubernetes' `NetworkPolicy`: rules that allow connections to some
//! nodes, and after them a rule that denies the rest.
//!
//! ```
//! use slipway_fast::policy::{Decision, Policy};
//! use slipway_lab::id::NodeId;
//!
//! let text = "
//! networks: {net: fast}
//! nodes: {web: , batch: , db: }
//! policy:
//!   - {name: web-to-db, from: web, to: db, ports: [5432], rate: 1gbit, connections: 100}
//!   - {name: db-closed, to: db, verdict: deny}
//! ";
//! let lab = slipway_lab::parse("lab.yaml", text, std::path::Path::new("/"))?;
//! let policy = Policy::new(&lab.policy, lab.nodes.len());
//! let [web, batch, db] = [0, 1, 2].map(NodeId);
//!
//! let Decision::Allow(terms) = policy.decide(web, db, 5432) else { panic!("it is denied") };
//! assert_eq!((terms.rates.share(1, 1), terms.connections), (Some("1gbit".parse()?), Some(100)));
//! assert_eq!(policy.decide(batch, db, 5432), Decision::Deny(1));
//! assert!(matches!(policy.decide(db, batch, 80), Decision::Allow(terms) if terms.rule.is_none()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A policy is a value. To change it, replace it, and end the connections for which [`decide`](Policy::decide) gives
//! another answer than when they were made.

use std::ops::RangeInclusive;

use slipway_lab::id::NodeId;
pub use slipway_lab::policy::Rates;
use slipway_lab::policy::{Rule, Verdict};

use crate::metadata::Path;

/// The lab's rules. A decision takes no memory, and time in proportion to their number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Compiled>,
    limits: bool,
}

/// The decision about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The connection is allowed, on these terms.
    Allow(Terms),
    /// The rule of this number denies the connection.
    Deny(usize),
}

/// The terms of an allowed connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// Number of the rule that decided, by which [`connections`](Self::connections) and shared rates are counted. `None`: no
    /// rule is about it.
    pub rule: Option<usize>,
    /// The rate of each end.
    pub rates: Rates,
    /// Priority of its packets, 0 to 7 (`SO_PRIORITY`).
    pub priority: Option<u8>,
    /// Most connections at once that the server's node has under the rule.
    pub connections: Option<u32>,
}

impl Terms {
    /// Whether the terms limit nothing: the connection was only allowed.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.rates.is_empty() && self.priority.is_none() && self.connections.is_none()
    }

    /// Whether a rate is shared with other connections.
    #[must_use]
    pub fn shares(&self) -> bool {
        self.rates.pair.is_some() || self.rates.node.is_some()
    }

    /// Whether a connection over this path can keep these terms. Rates and priorities are about packets, which a pair has
    /// not.
    #[must_use]
    pub fn hold(&self, path: Path) -> bool {
        path == Path::Tcp || (self.rates.is_empty() && self.priority.is_none())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Compiled {
    from: Nodes,
    to: Nodes,
    /// Ports of the rule. An empty list means every port.
    ports: Vec<RangeInclusive<u16>>,
    /// Terms of the rule. `None`: it denies.
    terms: Option<(Rates, Option<u8>, Option<u32>)>,
}

/// A set of nodes: a bit for each.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Nodes {
    All,
    These(Vec<u64>),
}

impl Policy {
    /// The policy of a lab's rules (`Lab::policy`), for its number of nodes.
    #[must_use]
    pub fn new(rules: &[Rule], nodes: usize) -> Self {
        let compiled = |rule: &Rule| Compiled {
            from: Nodes::new(rule.from.as_deref(), nodes),
            to: Nodes::new(rule.to.as_deref(), nodes),
            ports: rule.ports.clone(),
            terms: (rule.verdict == Verdict::Allow).then_some((rule.rates, rule.priority, rule.connections)),
        };
        let limits = rules.iter().any(|rule| rule.verdict == Verdict::Allow && !rule.is_free());
        Self { rules: rules.iter().map(compiled).collect(), limits }
    }

    /// Decides about a connection of a program of node `client` to `port` of node `server`.
    #[must_use]
    pub fn decide(&self, client: NodeId, server: NodeId, port: u16) -> Decision {
        match self.rules.iter().enumerate().find(|(_, rule)| rule.fits(client, server, port)) {
            None => Decision::Allow(Terms::default()),
            Some((number, Compiled { terms: None, .. })) => Decision::Deny(number),
            Some((number, Compiled { terms: Some((rates, priority, connections)), .. })) => {
                let (rates, priority, connections) = (*rates, *priority, *connections);
                Decision::Allow(Terms { rule: Some(number), rates, priority, connections })
            }
        }
    }

    /// Whether any rule limits what it allows.
    #[must_use]
    pub fn limits(&self) -> bool {
        self.limits
    }
}

impl Compiled {
    fn fits(&self, client: NodeId, server: NodeId, port: u16) -> bool {
        let at = || self.ports.is_empty() || self.ports.iter().any(|ports| ports.contains(&port));
        self.from.contains(client) && self.to.contains(server) && at()
    }
}

impl Nodes {
    fn new(chosen: Option<&[NodeId]>, of: usize) -> Self {
        let Some(chosen) = chosen else { return Self::All };
        let mut bits = vec![0; of.div_ceil(64)];
        for node in chosen.iter().map(|node| node.index()).filter(|node| *node < of) {
            bits[node / 64] |= 1 << (node % 64);
        }
        Self::These(bits)
    }

    fn contains(&self, node: NodeId) -> bool {
        let node = node.index();
        match self {
            Self::All => true,
            Self::These(bits) => bits.get(node / 64).is_some_and(|bits| bits >> (node % 64) & 1 == 1),
        }
    }
}
