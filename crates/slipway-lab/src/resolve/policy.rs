//! The policy of fast networks.

use std::collections::HashSet;

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};
use slipway_document::names;
use slipway_document::units::Rate;

use super::link::joined;
use crate::file::{PolicyRates, PolicyRule as Written};
use crate::id::NodeId;
use crate::model::{DriverWord, Lab};
use crate::policy::{Rates, Rule, Verdict};

/// More than people write; each connection is held against all of them.
const MOST_RULES: usize = 200;

/// Sets the lab's policy. `replaced`: the driver that all networks are given from outside of the file.
pub(super) fn policy(written: &[Spanned<Written>], replaced: Option<DriverWord>, lab: &mut Lab, report: &mut Report) {
    let mut names = HashSet::new();
    for (number, entry) in written.iter().enumerate() {
        if number >= MOST_RULES {
            report.add(entry.at, format!("more rules than a policy can have ({MOST_RULES})"), "say more with one");
            break;
        }
        let found = report.len();
        let rule = rule(number, entry, lab, report);
        if !names.insert(rule.name.clone()) {
            let at = entry.value.name.as_ref().map_or(entry.at, |name| name.at);
            report.add(at, format!("another rule is `{}` too", rule.name), "give each rule a name of its own");
        }
        // Of one that is not what was meant, nothing more can be said.
        if report.len() > found || report.touches(entry.whole) {
            continue;
        }
        check_networks(&rule, entry.at, replaced, lab, report);
        check_reach(&rule, entry.at, &lab.policy, report);
        lab.policy.push(rule);
    }
}

fn rule(number: usize, entry: &Spanned<Written>, lab: &Lab, report: &mut Report) -> Rule {
    let Written { name, from, to, ports, verdict, rate, priority, connections } = &entry.value;
    if let Some(name) = name {
        names::check(name, report);
    }
    let mut select = |name: &Option<Spanned<String>>| {
        let name = name.as_ref()?;
        let mut nodes = lab.select(&[&name.value]).unwrap_or_else(|error| {
            report.add(name.at, error.to_string(), error.help());
            Vec::new()
        });
        nodes.sort_unstable();
        Some(nodes)
    };
    let (from, to) = (select(from), select(to));
    if let Some(ports) = ports.as_ref().filter(|ports| ports.value.is_empty() && !report.touches(ports.whole)) {
        report.add(
            ports.at,
            "a rule about no port",
            "name ports, such as `[80, 8000-8010]`, or leave this out for all",
        );
    }
    let ports = ports.iter().flat_map(|ports| &ports.value).map(|port| {
        if *port.value.range().start() == 0 {
            report.add(port.at, "nothing listens on port 0", "write ports from 1 to 65535");
        }
        port.value.range()
    });
    let ports = ports.collect();
    if let Some(priority) = priority.as_ref().filter(|priority| priority.value > 7) {
        report.add(priority.at, "there is no such priority", "write 0 to 7");
    }
    if let Some(connections) = connections.as_ref().filter(|connections| connections.value == 0) {
        report.add(connections.at, "no connection at all is not a cap", "write `verdict: deny`");
    }
    if *verdict == Verdict::Deny {
        let those = [
            rate.as_ref().map(|rate| rate.at),
            priority.as_ref().map(|it| it.at),
            connections.as_ref().map(|it| it.at),
        ];
        for at in those.into_iter().flatten() {
            report.add(at, "a connection that is denied has nothing of this", "leave it out, or let the rule allow");
        }
    }
    Rule {
        name: name.as_ref().map_or_else(|| format!("rule-{}", number + 1), |name| name.value.clone()),
        from,
        to,
        ports,
        verdict: *verdict,
        rates: rate.as_ref().map(|rate| rates(rate, report)).unwrap_or_default(),
        priority: priority.as_ref().map(|priority| priority.value),
        connections: connections.as_ref().map(|connections| connections.value),
    }
}

fn rates(written: &Spanned<PolicyRates>, report: &mut Report) -> Rates {
    let mut check = |rate: Rate, at: Span| {
        // The kernel counts bytes (SO_MAX_PACING_RATE).
        if rate.0 < 8 {
            report.add(
                at,
                format!("{rate} is less than a byte in a second"),
                "write a greater rate, such as `100mbit`",
            );
        }
        rate
    };
    match &written.value {
        PolicyRates::Flow(rate) => Rates { flow: Some(check(*rate, written.at)), ..Rates::default() },
        PolicyRates::Each(rates) => {
            let mut of = |rate: &Option<Spanned<Rate>>| rate.as_ref().map(|rate| check(rate.value, rate.at));
            let rates = Rates { flow: of(&rates.flow), pair: of(&rates.pair), node: of(&rates.node) };
            if rates.is_empty() && !report.touches(written.whole) {
                report.add(written.at, "a rate of nothing", "say which: `flow`, `pair` or `node`");
            }
            rates
        }
    }
}

/// A rule is kept on networks with driver fast; where another joins the same nodes it would be passed by.
fn check_networks(rule: &Rule, at: Span, replaced: Option<DriverWord>, lab: &Lab, report: &mut Report) {
    let all: Vec<NodeId> = lab.nodes.ids().collect();
    let [from, to] = [&rule.from, &rule.to].map(|nodes| nodes.as_ref().unwrap_or(&all));
    if from.len() == 1 && from == to {
        let message = format!("what {} says to itself passes no network", lab.nodes[from[0]].name);
        return report.add(at, message, "name two nodes or groups");
    }
    let common = joined(from, to, lab);
    let Some(other) = common.iter().find(|network| !lab.networks[**network].keeps_policy()) else {
        if common.is_empty() {
            let help = "name nodes of one network; what passes a gateway is not the fast path's";
            report.add(at, "they have no network in common", help);
        }
        return;
    };
    let network = &lab.networks[*other];
    let message = format!("network `{}` joins them, and driver {} keeps no policy", network.name, network.word());
    let help = match replaced {
        Some(driver) => format!("leave driver {driver} out of the comparison, or take the policy out of the file"),
        None => format!("write `{}: fast`, or name nodes that it does not join", network.name),
    };
    report.add(at, message, help);
}

/// The first rule that fits decides, so that one behind a rule about all the same never does.
fn check_reach(rule: &Rule, at: Span, before: &[Rule], report: &mut Report) {
    if let Some(earlier) = before.iter().find(|earlier| earlier.covers(rule)) {
        let message = format!("`{}` decides about all of these before", earlier.name);
        report.add(at, message, "write what is about fewer connections first, or leave this out");
    }
}
