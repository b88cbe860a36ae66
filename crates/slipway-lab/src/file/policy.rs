//! Rules about connections, as they are written.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::Deserialize;
use slipway_document::by_shape;
use slipway_document::de::Spanned;
use slipway_document::form::Written;
use slipway_document::units::Rate;

use crate::policy::Verdict;
use crate::written::PortRange;

/// A rule about connections over networks with driver fast. The first that fits a connection decides everything about it; without one it is made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a rule about connections: a map with `from`, `to`, `ports` and what they may do"
)]
pub(crate) struct Rule {
    /// Name of the rule in reports. `rule-1`, `rule-2`, … by its place when left out.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,31}$"))]
    pub(crate) name: Option<Spanned<String>>,
    /// Nodes whose programs connect: names of nodes or groups, or patterns such as `n*`. All when left out.
    pub(crate) from: Option<Spanned<String>>,
    /// To whose programs: names of nodes or groups, or patterns such as `n*`. All when left out.
    pub(crate) to: Option<Spanned<String>>,
    /// At which ports, such as `[80, 8000-8010]`. All when left out.
    pub(crate) ports: Option<Spanned<Vec<Spanned<Ports>>>>,
    /// Verdict: `allow` or `deny`. `allow` when left out.
    #[serde(default)]
    pub(crate) verdict: Verdict,
    /// Rate of each connection, each way. No limit when left out.
    pub(crate) rate: Option<Spanned<Rates>>,
    /// Priority of the packets in queues (`SO_PRIORITY`).
    #[schemars(range(max = 7))]
    pub(crate) priority: Option<Spanned<u8>>,
    /// Most at once to each node of `to` under this rule.
    #[schemars(range(min = 1))]
    pub(crate) connections: Option<Spanned<u32>>,
}

/// A policy in a file of its own, or in one that says more.
#[derive(Debug)]
pub(crate) enum Document {
    /// A list of rules.
    Rules(Vec<Spanned<Rule>>),
    /// A lab file, or a part of one.
    Section(Section),
}

by_shape!(Document, "a policy: a list of rules, or a file with the key `policy`", List => Rules, Map => Section);

/// The part of a lab file that is a policy.
#[derive(Debug, Deserialize)]
pub(crate) struct Section {
    pub(crate) policy: Option<Vec<Spanned<Rule>>>,
}

/// A port, or some that follow each other.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Ports {
    /// One.
    One(#[schemars(range(min = 1))] u16),
    /// From one to another.
    Range(Written<PortRange>),
}

by_shape!(Ports, "a port such as `80`, or some such as `8000-8010`", Number => One, Text => Range);

impl Ports {
    pub(crate) fn range(&self) -> RangeInclusive<u16> {
        match self {
            Self::One(port) => *port..=*port,
            Self::Range(Written(range)) => range.0.clone(),
        }
    }
}

/// Rates of connections.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Rates {
    /// The rate of each connection.
    Flow(Rate),
    /// A rate of each connection, of all together, or both.
    Each(RateSettings),
}

by_shape!(Rates, "a rate such as `100mbit`, or a map of `flow`, `pair` and `node`", Text => Flow, Map => Each);

/// Rates of connections and of many together.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "rates: a map of `flow`, `pair` and `node`")]
pub(crate) struct RateSettings {
    /// The rate of each connection.
    pub(crate) flow: Option<Spanned<Rate>>,
    /// Rate of all connections from one node to one other, together.
    pub(crate) pair: Option<Spanned<Rate>>,
    /// Rate of all connections from one node, together.
    pub(crate) node: Option<Spanned<Rate>>,
}
