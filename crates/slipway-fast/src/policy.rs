//! Who may talk to whom over the fast path: the lab's rules, ready to be asked when a connection is set up.
//!
//! The first rule that fits client, server and port decides everything about a connection; one that no rule is about is
//! made, and is held back by nothing. That is enough to say what Kubernetes' `NetworkPolicy` says: what is allowed to come
//! in to some nodes, and behind it that nothing else is.
//!
//! ```
//! use slipway_fast::policy::{Decision, Policy};
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
//! let [web, batch, db] = [0, 1, 2];
//!
//! let Decision::Allow(terms) = policy.decide(web, db, 5432) else { panic!("it is denied") };
//! assert_eq!((terms.rates.share(1, 1), terms.connections), (Some("1gbit".parse()?), Some(100)));
//! assert_eq!(policy.decide(batch, db, 5432), Decision::Deny(1));
//! assert!(matches!(policy.decide(db, batch, 80), Decision::Allow(terms) if terms.rule.is_none()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A policy is a value. To change it, put another in its place, and cut those connections about which
//! [`decide`](Policy::decide) says something else than it said when they were made.

use std::ops::RangeInclusive;

pub use slipway_lab::policy::Rates;
use slipway_lab::policy::{Rule, Verdict};

use crate::metadata::Path;

/// The lab's rules. Asking takes no memory, and time by their number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Compiled>,
    limits: bool,
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is made, on these terms.
    Allow(Terms),
    /// It is refused, by the rule of this number.
    Deny(usize),
}

/// What holds for a connection that is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// Number of the rule that decided, by which [`connections`](Self::connections) and shared rates are counted. `None`: no
    /// rule is about it.
    pub rule: Option<usize>,
    /// How fast each end may send.
    pub rates: Rates,
    /// Of its packets, 0 to 7 (`SO_PRIORITY`).
    pub priority: Option<u8>,
    /// Most connections at once that the server's node has under the rule.
    pub connections: Option<u32>,
}

impl Terms {
    /// Whether nothing holds the connection back: it was only allowed.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.rates.is_empty() && self.priority.is_none() && self.connections.is_none()
    }

    /// Whether a rate is shared with other connections.
    #[must_use]
    pub fn shares(&self) -> bool {
        self.rates.pair.is_some() || self.rates.node.is_some()
    }

    /// Whether a connection over this path can be held to them. What sends later, or before others, has packets, which a pair of
    /// unix sockets has not.
    #[must_use]
    pub fn hold(&self, path: Path) -> bool {
        path == Path::Tcp || (self.rates.is_empty() && self.priority.is_none())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Compiled {
    from: Nodes,
    to: Nodes,
    /// None at all: every port.
    ports: Vec<RangeInclusive<u16>>,
    /// `None`: denied.
    terms: Option<(Rates, Option<u8>, Option<u32>)>,
}

/// A set of nodes: a bit for each.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Nodes {
    All,
    These(Vec<u64>),
}

impl Policy {
    /// Of a lab's rules (`Lab::policy`), for its number of nodes.
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

    /// What becomes of a connection of a program of node `client` to `port` of node `server` (indices into `Lab::nodes`).
    #[must_use]
    pub fn decide(&self, client: usize, server: usize, port: u16) -> Decision {
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
    fn fits(&self, client: usize, server: usize, port: u16) -> bool {
        let at = || self.ports.is_empty() || self.ports.iter().any(|ports| ports.contains(&port));
        self.from.contains(client) && self.to.contains(server) && at()
    }
}

impl Nodes {
    fn new(chosen: Option<&[usize]>, of: usize) -> Self {
        let Some(chosen) = chosen else { return Self::All };
        let mut bits = vec![0; of.div_ceil(64)];
        for node in chosen.iter().filter(|node| **node < of) {
            bits[node / 64] |= 1 << (node % 64);
        }
        Self::These(bits)
    }

    fn contains(&self, node: usize) -> bool {
        match self {
            Self::All => true,
            Self::These(bits) => bits.get(node / 64).is_some_and(|bits| bits >> (node % 64) & 1 == 1),
        }
    }
}
