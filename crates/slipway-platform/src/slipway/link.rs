//! Conditions between nodes.

use super::words::{Names, put_conditions};
use crate::yaml::{Map, Yaml};
use slipway_lab::condition::LinkRule;
use slipway_lab::id::NetworkId;

/// Matrices, then rules: rules hold over matrices wherever they stand.
pub(super) fn links(names: &Names) -> Vec<Yaml> {
    let mut links = Vec::new();
    for matrix in &names.lab.matrices {
        let mut map = Map::default();
        map.put("matrix", super::text_of(&matrix.path));
        put_network(matrix.network, names, &mut map);
        links.push(Yaml::Map(map));
    }
    let mut rest = names.lab.links.as_slice();
    while let [rule, more @ ..] = rest {
        let back = more.first().filter(|back| is_back(rule, back));
        let mut map = Map::default();
        let [from, to] = [&rule.from, &rule.to].map(|nodes| names.words(nodes).join(","));
        if back.is_some() {
            map.put("between", Yaml::texts([from, to]));
        } else {
            map.text("from", from);
            map.text("to", to);
        }
        put_network(rule.network, names, &mut map);
        put_conditions(&rule.conditions, &mut map);
        links.push(Yaml::Map(map));
        rest = if back.is_some() { &more[1..] } else { more };
    }
    links
}

/// The same the other way round: one `between`.
fn is_back(rule: &LinkRule, back: &LinkRule) -> bool {
    rule.from != rule.to
        && (&rule.from, &rule.to, rule.network) == (&back.to, &back.from, back.network)
        && rule.conditions == back.conditions
}

pub(super) fn put_network(network: Option<NetworkId>, names: &Names, map: &mut Map) {
    if let Some(network) = network {
        map.text("network", names.network(network));
    }
}
