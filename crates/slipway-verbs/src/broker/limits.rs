//! Limits of connections: rates, alone and shared, priorities, and numbers of connections at once.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::relay::Limit;

/// The limits of connections from one node to another: by whichever rule decides about them.
pub type Limits = Box<dyn FnMut(u32, u32) -> Terms + Send>;

/// Limits under one rule. Rates are in bits a second, each way by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// The rule's number, by which connections that share a limit are counted.
    pub rule: usize,
    /// Rate of one connection.
    pub flow: Option<u64>,
    /// Rate of all that one node has to one other under the rule.
    pub pair: Option<u64>,
    /// Rate of all that one node has under the rule.
    pub node: Option<u64>,
    /// Connections of a greater priority are served first: 0 to 7.
    pub priority: Option<u8>,
    /// Most connections to each node at once. The next is refused with `ECONNREFUSED`.
    pub connections: Option<u32>,
}

impl Terms {
    /// Whether programs that have the memory, or the stream to another host, would not keep them.
    #[must_use]
    pub fn need_relay(&self) -> bool {
        self.flow.is_some() || self.pair.is_some() || self.node.is_some() || self.priority.is_some()
    }
}

/// No limits.
pub(super) fn none() -> Limits {
    Box::new(|_, _| Terms::default())
}

/// The terms of a connection: neither end is the client, so both nodes' rules hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Both([Terms; 2]);

impl Both {
    /// Those of two nodes, the first of which asked first. Within a node nothing is limited.
    pub(super) fn of(limits: &mut Limits, (from, to): (u32, u32)) -> Self {
        if from == to { Self::default() } else { Self([limits(from, to), limits(to, from)]) }
    }

    pub(super) fn need_relay(&self) -> bool {
        self.0.iter().any(Terms::need_relay)
    }
}

/// A connection, as far as limits are about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limited {
    pub(super) terms: Both,
    /// Its nodes, that of the end that asked first before the other.
    pub(super) nodes: (u32, u32),
    /// Its number at the relay.
    pub(super) relay: Option<u64>,
}

/// Both directions of a connection: its terms there, and the nodes from and to.
fn ways(link: Limited) -> [(Terms, u32, u32); 2] {
    let (first, second) = link.nodes;
    let [there, back] = link.terms.0;
    [(there, first, second), (back, second, first)]
}

/// Whether one more connection of these nodes may be, beside those that there are.
pub(super) fn admit(
    both: &Both,
    (from, to): (u32, u32),
    links: &(impl Iterator<Item = Limited> + Clone),
) -> Result<(), Errno> {
    for (terms, to) in [(both.0[0], to), (both.0[1], from)] {
        let Some(most) = terms.connections else { continue };
        let same = |link: &Limited| {
            ways(*link).iter().any(|(its, _, node)| its.connections.is_some() && its.rule == terms.rule && *node == to)
        };
        if links.clone().filter(same).count() >= usize::try_from(most).unwrap_or(usize::MAX) {
            return Err(Errno::CONNREFUSED);
        }
    }
    Ok(())
}

/// The limit of each relayed connection, by its number at the relay. Connections that share a rate have even parts.
pub(super) fn shares(links: &(impl Iterator<Item = Limited> + Clone)) -> BTreeMap<u64, Limit> {
    let (mut pairs, mut nodes) = (BTreeMap::<_, u64>::new(), BTreeMap::<_, u64>::new());
    let relayed = || links.clone().filter(|link| link.relay.is_some());
    for (terms, from, to) in relayed().flat_map(ways) {
        *pairs.entry((terms.rule, from, to)).or_default() += 1;
        *nodes.entry((terms.rule, from)).or_default() += 1;
    }
    let limit = |link: Limited| {
        let mut limit = Limit::default();
        for (terms, from, to) in ways(link) {
            let part = |rate: Option<u64>, of: u64| rate.map(|rate| rate / of.max(1));
            let pair = part(terms.pair, pairs.get(&(terms.rule, from, to)).copied().unwrap_or(1));
            let node = part(terms.node, nodes.get(&(terms.rule, from)).copied().unwrap_or(1));
            limit.rate = [limit.rate, terms.flow, pair, node].into_iter().flatten().min();
            limit.priority = limit.priority.max(terms.priority.unwrap_or(0));
        }
        limit
    };
    relayed().filter_map(|link| Some((link.relay?, limit(link)))).collect()
}
