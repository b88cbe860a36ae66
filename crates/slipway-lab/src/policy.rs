//! The policy of networks with driver fast: rules in order. The first rule that fits a connection decides everything
//! about it.

use std::ops::RangeInclusive;

use crate::id::NodeId;
use serde::{Deserialize, Serialize};
use slipway_document::units::Rate;

/// A rule about connections from some nodes to some others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// How it is called where it decided. `rule-1`, `rule-2`, … by its place where the file gives none; unique.
    pub name: String,
    /// The clients' nodes, ascending. `None`: all.
    pub from: Option<Vec<NodeId>>,
    /// The servers' nodes, ascending. `None`: all.
    pub to: Option<Vec<NodeId>>,
    /// The servers' ports. None at all: every port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<RangeInclusive<u16>>,
    /// The rule's verdict.
    pub verdict: Verdict,
    /// Rates of its connections.
    #[serde(default)]
    pub rates: Rates,
    /// Of their packets where they wait, 0 to 7 (`SO_PRIORITY`, socket(7)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Most connections at once that each node of `to` has under this rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
}

/// The verdict of a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Connections are made.
    #[default]
    Allow,
    /// Connections are not made.
    Deny,
}

/// How fast connections may be, each way by itself. `None`: as fast as they can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// One connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Rate>,
    /// All that one node has to one other under the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<Rate>,
    /// All that one client's node has under the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Rate>,
}

impl Rates {
    /// True where nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How fast one connection may be, where there are `in_pair` between the two nodes and `of_node` of the client's node
    /// under the rule, itself included. Shares are even, so that together they are no faster than the rule says.
    #[must_use]
    pub fn share(&self, in_pair: u32, of_node: u32) -> Option<Rate> {
        let part = |rate: Option<Rate>, of: u32| rate.map(|Rate(bits)| Rate(bits / u64::from(of.max(1))));
        [self.flow, part(self.pair, in_pair), part(self.node, of_node)].into_iter().flatten().min()
    }
}

impl Rule {
    /// Whether it denies nothing and holds nothing back: what it is about is made as if there were no rule.
    #[must_use]
    pub fn is_free(&self) -> bool {
        let bare = self.rates.is_empty() && self.priority.is_none() && self.connections.is_none();
        self.verdict == Verdict::Allow && bare
    }

    /// Whether every connection that `other` is about, this one is about too.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let nodes = |mine: &Option<Vec<NodeId>>, theirs: &Option<Vec<NodeId>>| match (mine, theirs) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(theirs)) => theirs.iter().all(|node| mine.binary_search(node).is_ok()),
        };
        let within = |ports: &RangeInclusive<u16>| {
            self.ports.iter().any(|mine| mine.start() <= ports.start() && ports.end() <= mine.end())
        };
        let ports = self.ports.is_empty() || !other.ports.is_empty() && other.ports.iter().all(within);
        ports && nodes(&self.from, &other.from) && nodes(&self.to, &other.to)
    }
}
