//! Conditions between nodes.

use std::cmp::Ordering;
use std::path::Path;

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};
use slipway_document::suggest;

use super::condition::refuse_on_host;
use super::mount::path;
use crate::change::Keys;
use crate::condition::{LinkConditions, LinkRule, MatrixFile};
use crate::file::Link as Written;
use crate::id::{List, NetworkId, NodeId};
use crate::model::{DriverKind, DriverWord, Lab};

/// More rules than people write; what a program writes about many pairs is a matrix.
const MOST_RULES: usize = 2000;
/// Nodes that all rules name together, so that a short file cannot become a lab beyond memory.
const MOST_ENDS: usize = 2_000_000;

/// Sets the lab's rules and matrices.
pub(super) fn links(
    written: &[Spanned<Written>],
    base_dir: &Path,
    replaced: Option<DriverWord>,
    lab: &mut Lab,
    report: &mut Report,
) {
    let mut rules = Vec::new();
    let mut named = 0;
    for (number, entry) in written.iter().enumerate() {
        let link = &entry.value;
        let network = match &link.network {
            None => None,
            Some(name) => match network(name, replaced, lab, report) {
                Some(network) => Some(network),
                None => continue,
            },
        };
        if let Some(matrix) = &link.matrix {
            lab.matrices.extend(matrix_file(entry, matrix, network, base_dir, report));
            continue;
        }
        let Some((from, to, at)) = ends(entry, lab, report) else { continue };
        if !check_ends(&from, &to, network, replaced, at, lab, report) {
            continue;
        }
        named += (from.len() + to.len()) * if link.between.is_some() { 2 } else { 1 };
        if number >= MOST_RULES || named > MOST_ENDS {
            let message = format!("more rules than a lab can have ({MOST_RULES}, naming {MOST_ENDS} nodes in all)");
            report.add(at, message, "write conditions of whole networks as theirs, and delays as a `matrix`");
            break;
        }
        let conditions = conditions(entry, report);
        let both = link.between.is_some() && from != to;
        let back =
            both.then(|| LinkRule { from: to.clone(), to: from.clone(), network, conditions: conditions.clone() });
        let rule = LinkRule { from, to, network, conditions };
        rules.extend([Some(rule), back].into_iter().flatten().map(|rule| (rule, entry)));
    }
    lab.links = rules.iter().map(|(rule, _)| rule.clone()).collect();
    for (number, (rule, entry)) in rules.iter().enumerate() {
        check(number, rule, entry, lab, report);
    }
}

/// The keys that a rule sets; it has none to take away.
fn conditions(entry: &Spanned<Written>, report: &mut Report) -> LinkConditions {
    let written = entry.value.change();
    for key in &written.change.clear {
        let help = "leave it out; a rule only adds to the conditions of the sender's interface";
        report.add(written.place(key).unwrap_or(entry.at), format!("`{key}: none` says nothing here"), help);
    }
    if written.places.is_empty() && !report.touches(entry.whole) {
        report.add(entry.at, "a rule without a condition", "add one, such as `delay: 20ms`");
    }
    written.change.set
}

/// The id of a network that can have conditions.
pub(super) fn network(
    name: &Spanned<String>,
    replaced: Option<DriverWord>,
    lab: &Lab,
    report: &mut Report,
) -> Option<NetworkId> {
    let Some(found) = lab.networks.position(|network| network.name == name.value) else {
        let known: Vec<_> = lab.networks.iter().map(|network| &network.name).collect();
        report.add(name.at, "there is no such network", suggest(&name.value, &known));
        return None;
    };
    if lab.networks[found].driver == DriverKind::Host {
        refuse_on_host(&name.value, replaced, name.at, report);
        return None;
    }
    Some(found)
}

fn matrix_file(
    entry: &Spanned<Written>,
    matrix: &Spanned<String>,
    network: Option<NetworkId>,
    base_dir: &Path,
    report: &mut Report,
) -> Option<MatrixFile> {
    let Written { between, from, to, .. } = &entry.value;
    let ends =
        [between.as_ref().map(|between| between.at), from.as_ref().map(|from| from.at), to.as_ref().map(|to| to.at)];
    let beside = ends.into_iter().flatten().chain(entry.value.change().places.into_iter().map(|(_, at)| at));
    for at in beside {
        report.add(
            at,
            "a matrix says itself between whom and what",
            "leave this out, or write it as a rule of its own",
        );
    }
    Some(MatrixFile { path: path(matrix, base_dir, report)?, network })
}

/// Senders, receivers, and where both are written.
fn ends(entry: &Spanned<Written>, lab: &Lab, report: &mut Report) -> Option<(Vec<NodeId>, Vec<NodeId>, Span)> {
    const HELP: &str = "write `between: [a, b]`, or `from: a` and `to: b`, or `matrix: FILE.csv`";
    let Written { between, from, to, .. } = &entry.value;
    let (from, to, at) = match (between, from, to) {
        (Some(between), None, None) => match between.value.as_slice() {
            [a, b] => (a, b, between.at),
            other => {
                let message = format!("`between` takes two, and here are {}", other.len());
                report.add(between.at, message, "write `between: [a, b]`; a pattern such as `n*` chooses many nodes");
                return None;
            }
        },
        (None, Some(from), Some(to)) => (from, to, from.at),
        _ => {
            if !report.touches(entry.whole) {
                report.add(entry.at, "a rule that does not say between whom", HELP);
            }
            return None;
        }
    };
    let mut select = |name: &Spanned<String>| match lab.select(&[&name.value]) {
        Ok(mut nodes) => {
            nodes.sort_unstable();
            Some(nodes)
        }
        Err(error) => {
            report.add(name.at, error.to_string(), error.help());
            None
        }
    };
    let (from, to) = (select(from), select(to));
    Some((from?, to?, at))
}

/// Whether there are two different nodes that the rule is about, on a network that can have conditions.
pub(super) fn check_ends(
    from: &[NodeId],
    to: &[NodeId],
    network: Option<NetworkId>,
    replaced: Option<DriverWord>,
    at: Span,
    lab: &Lab,
    report: &mut Report,
) -> bool {
    if from.len() == 1 && from == to {
        let message = format!("{} has no link to itself", lab.nodes[from[0]].name);
        report.add(at, message, "name two nodes or groups");
        return false;
    }
    let mut common = joined(from, to, lab);
    common.retain(|n| network.is_none_or(|only| only == *n));
    let made = |network: &NetworkId| lab.networks[*network].driver != DriverKind::Host;
    match common.first() {
        Some(first) if !common.iter().any(made) => {
            refuse_on_host(&lab.networks[*first].name, replaced, at, report);
            false
        }
        Some(_) => true,
        None => {
            let message = match network {
                Some(network) => format!("network `{}` does not join them", lab.networks[network].name),
                None => "they have no network in common".to_owned(),
            };
            let help = "name nodes of one network; what passes a gateway has conditions on each network by itself";
            report.add(at, message, help);
            false
        }
    }
}

/// The networks that some node of `from` and another of `to` are on.
pub(super) fn joined(from: &[NodeId], to: &[NodeId], lab: &Lab) -> Vec<NetworkId> {
    let (senders, receivers) = (two_of_each(from, lab), two_of_each(to, lab));
    let joins = |network: &NetworkId| match (senders[*network].as_slice(), receivers[*network].as_slice()) {
        ([], _) | (_, []) => false,
        ([a], [b]) => a != b,
        _ => true,
    };
    lab.networks.ids().filter(joins).collect()
}

/// Of every network, the first two of `nodes` that are on it.
fn two_of_each(nodes: &[NodeId], lab: &Lab) -> List<NetworkId, Vec<NodeId>> {
    let mut found: List<NetworkId, _> = vec![Vec::new(); lab.networks.len()].into();
    for node in nodes {
        for interface in &lab.nodes[*node].interfaces {
            if found[interface.network].len() < 2 {
                found[interface.network].push(*node);
            }
        }
    }
    found
}

/// Checks a rule alone, and over the conditions below it.
fn check(number: usize, rule: &LinkRule, entry: &Spanned<Written>, lab: &Lab, report: &mut Report) {
    let places = entry.value.change();
    let problems = rule.conditions.problems();
    // Where nothing is needed, nobody looks for it.
    let beneath = if problems.iter().any(|p| p.needs.is_some()) { beneath(number, rule, lab) } else { Vec::new() };
    let holds = |needed: &'static str| beneath.iter().all(|under| under.words().iter().any(|(key, _)| *key == needed));
    for problem in problems {
        if problem.needs.is_some_and(holds) {
            continue;
        }
        report.add(places.place(problem.key).unwrap_or(entry.at), problem.message, problem.help);
    }
}

/// The conditions of the rule's senders without it, each kind once: their interfaces' conditions, the matrices' delays,
/// and earlier rules about some of the same nodes.
fn beneath(number: usize, rule: &LinkRule, lab: &Lab) -> Vec<LinkConditions> {
    let mut kinds: Vec<LinkConditions> = Vec::new();
    for interface in rule.from.iter().flat_map(|node| &lab.nodes[*node].interfaces) {
        if rule.network.is_some_and(|network| network != interface.network)
            || kinds.contains(&interface.conditions.egress)
        {
            continue;
        }
        kinds.push(interface.conditions.egress.clone());
    }
    let about_same = |earlier: &&LinkRule| meets(&earlier.from, &rule.from) && meets(&earlier.to, &rule.to);
    for under in &mut kinds {
        if !lab.matrices.is_empty() {
            under.delay.get_or_insert(slipway_document::units::Seconds(0.0));
        }
        for earlier in lab.links[..number].iter().filter(about_same) {
            *under = earlier.conditions.over(under);
        }
    }
    kinds
}

/// Whether two ascending lists have a node in common.
fn meets(mut a: &[NodeId], mut b: &[NodeId]) -> bool {
    while let ([first, rest_of_a @ ..], [second, rest_of_b @ ..]) = (a, b) {
        match first.cmp(second) {
            Ordering::Equal => return true,
            Ordering::Less => a = rest_of_a,
            Ordering::Greater => b = rest_of_b,
        }
    }
    false
}
