//! Limits that are shorter than what is under way: the queue drops packets although the rate would let them through.

use std::collections::BTreeSet;

use slipway_document::errors::{DocumentError, Report};
use slipway_document::tree::{Kind, Tree};

use crate::change::Keys as _;
use crate::condition::{LinkConditions, UNSHAPED};
use crate::kind::LAB_FILE;
use crate::model::{Interface, Lab};
use crate::remark::{Remark, has, locate};

/// Bytes of a packet where a network does not say its own.
const MTU: u32 = 1500;

impl LinkConditions {
    /// Finds a `limit` below the packets that are under way for `delay`: the fault, and a remedy. Packets are
    /// taken to be full ones at `rate`. A link without a rate is judged by [`UNSHAPED`].
    #[must_use]
    pub fn short_limit(&self, mtu: Option<u32>) -> Option<(String, String)> {
        let (limit, delay, mtu) = (self.limit?, self.delay?, mtu.unwrap_or(MTU).max(64));
        let rate = self.rate.unwrap_or(UNSHAPED);
        let needed = (rate.0 as f64 * delay.0 / 8.0 / f64::from(mtu)).ceil();
        if f64::from(limit) >= needed {
            return None;
        }
        let unsaid = if self.rate.is_none() { ", which a link without `rate` is taken for" } else { "" };
        let message = format!(
            "a limit of {limit} drops packets that are under way: for {delay} at {rate}{unsaid}, {needed} packets of {mtu} bytes"
        );
        let instead = if self.rate.is_some() { "; `queue` holds what waits for the rate alone" } else { "" };
        Some((message, format!("write `limit: {needed}` or more, or leave it out{instead}")))
    }
}

/// Limits of a lab that are shorter than what is under way, with the lines of the file that it was read from. Delays from
/// matrices are left out.
#[must_use]
pub fn short_limits(file: &str, text: &str, lab: &Lab) -> Vec<DocumentError> {
    let Some(tree) = Tree::parse(LAB_FILE, text, &mut Report::default()) else { return Vec::new() };
    let mut remarks = Vec::new();
    let mut add = |conditions: &LinkConditions, interface: &Interface, places: &[Vec<String>]| {
        let Some((message, help)) = conditions.short_limit(lab.networks[interface.network].mtu) else { return };
        let place = places.iter().find(|place| has(&tree, place)).or(places.first()).cloned().unwrap_or_default();
        remarks.push(Remark { place, message, help });
    };
    for node in &lab.nodes {
        for interface in &node.interfaces {
            let network = lab.networks[interface.network].name.as_str();
            let places = |of: &[&str]| {
                let own =
                    ["nodes", &node.name, "networks", network].iter().chain(of).map(ToString::to_string).collect();
                let all = ["networks", network].iter().chain(of).map(ToString::to_string).collect();
                [own, all]
            };
            add(&interface.conditions.egress, interface, &places(&["conditions", "limit"]));
            add(&interface.conditions.ingress, interface, &places(&["conditions", "ingress", "limit"]));
        }
    }
    for (rule, place) in lab.links.iter().zip(rules(&tree)) {
        let sender = rule.from.first().map(|&node| lab.nodes[node].interfaces.iter());
        let on = |interface: &&Interface| rule.network.is_none_or(|network| network == interface.network);
        let Some(interface) = sender.and_then(|mut interfaces| interfaces.find(on)) else { continue };
        if interface.conditions.egress.short_limit(None).is_none() {
            let limit = [place.clone(), vec!["limit".to_owned()]].concat();
            add(&rule.conditions.over(&interface.conditions.egress), interface, &[limit, place]);
        }
    }
    if remarks.is_empty() { Vec::new() } else { locate(file, text, &remarks).errors().to_vec() }
}

/// The place of each rule between nodes, in the order of [`Lab::links`]: one that is written `between` two is two.
fn rules(tree: &Tree) -> Vec<Vec<String>> {
    let at = |node| match &tree.node(node).kind {
        Kind::Map(entries) => entries.iter().map(|(name, value)| (name.text.clone(), *value)).collect(),
        _ => Vec::new(),
    };
    let links = at(Tree::ROOT).into_iter().find(|(name, _)| name == "links");
    let Some(Kind::List(items)) = links.map(|(_, links)| &tree.node(links).kind) else { return Vec::new() };
    let mut places = Vec::new();
    for (number, item) in items.iter().enumerate() {
        let keys: BTreeSet<String> = at(*item).into_iter().map(|(name, _)| name).collect();
        let times = if keys.contains("matrix") { 0 } else { 1 + usize::from(keys.contains("between")) };
        places.extend(std::iter::repeat_n(vec!["links".to_owned(), number.to_string()], times));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<(usize, String)> {
        let lab = crate::parse("lab.yaml", text, std::path::Path::new("/")).expect("a lab");
        short_limits("lab.yaml", text, &lab).into_iter().map(|error| (error.line, error.message)).collect()
    }

    #[test]
    fn limits_below_what_is_under_way_are_told_with_their_lines() {
        let text = "networks:\n  net:\n    conditions:\n      delay: 20ms\n      rate: 12mbit\n      limit: 19\nnodes:\n  n: {count: 2, networks: [net]}\n  m:\n    networks:\n      net:\n        conditions: {limit: 20, ingress: {delay: 20ms, limit: 5}}\nlinks:\n  - {between: [n1, m], loss: 1%}\n  - {from: m, to: n2, delay: 21ms}\n";
        let found = lines(text);
        let places: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(places, [6, 12, 15], "{found:?}");
        assert!(found[0].1.ends_with("for 20ms at 12mbit, 20 packets of 1500 bytes"), "{found:?}");
        assert!(found[1].1.contains("10gbit, which a link without `rate` is taken for, 16667"), "{found:?}");
    }

    #[test]
    fn a_limit_that_is_long_enough_is_not_told() {
        for conditions in
            ["{delay: 20ms, rate: 12mbit, limit: 20}", "{rate: 1mbit, limit: 1}", "{delay: 1s, rate: 1mbit, queue: 1}"]
        {
            let text = format!("networks: {{net: {{conditions: {conditions}}}}}\nnodes: {{n: {{count: 2}}}}\n");
            assert!(lines(&text).is_empty(), "{conditions}");
        }
    }
}
