//! The policy of a lab, written.

use super::words::Names;
use crate::yaml::{Map, Yaml};
use slipway_lab::policy::{Rates, Verdict};

pub(super) fn rules(names: &Names) -> Vec<Yaml> {
    let rule = |(number, rule): (usize, &slipway_lab::policy::Rule)| {
        let mut map = Map::default();
        if rule.name != format!("rule-{}", number + 1) {
            map.text("name", &rule.name);
        }
        for (key, nodes) in [("from", &rule.from), ("to", &rule.to)] {
            if let Some(nodes) = nodes {
                map.text(key, names.words(nodes).join(","));
            }
        }
        if !rule.ports.is_empty() {
            let port = |ports: &std::ops::RangeInclusive<u16>| match (ports.start(), ports.end()) {
                (first, last) if first == last => Yaml::Bare(first.to_string()),
                (first, last) => Yaml::Text(format!("{first}-{last}")),
            };
            map.put("ports", Yaml::List(rule.ports.iter().map(port).collect()));
        }
        if rule.verdict == Verdict::Deny {
            map.text("verdict", "deny");
        }
        put_rates(&rule.rates, &mut map);
        if let Some(priority) = rule.priority {
            map.bare("priority", priority);
        }
        if let Some(connections) = rule.connections {
            map.bare("connections", connections);
        }
        Yaml::Map(map)
    };
    names.lab.policy.iter().enumerate().map(rule).collect()
}

fn put_rates(rates: &Rates, map: &mut Map) {
    match rates {
        Rates { flow: Some(flow), pair: None, node: None } => map.bare("rate", flow),
        rates => {
            let mut each = Map::default();
            for (key, rate) in [("flow", rates.flow), ("pair", rates.pair), ("node", rates.node)] {
                if let Some(rate) = rate {
                    each.bare(key, rate);
                }
            }
            map.map("rate", each);
        }
    }
}
