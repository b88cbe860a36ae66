//! Targets of an entry.

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};
use slipway_document::{closest, suggest};

use super::Context;
use crate::file::{Choice, Event, Members, Selection as Written};
use crate::id::{List, NetworkId, NodeId};
use crate::model::DriverKind;
use crate::resolve::link::{check_ends, network as network_of};
use crate::scenario::{Choose, Pairs, Port, Selection};

/// The nodes that words name, each once.
pub(super) fn nodes(words: &[Spanned<String>], context: &Context, report: &mut Report) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = Vec::new();
    let mut seen: List<NodeId, _> = vec![false; context.lab.nodes.len()].into();
    for written in words {
        for word in written.value.split(',') {
            let found = nodes_of(word.trim(), written.at, context, report);
            nodes.extend(found.into_iter().filter(|node| !std::mem::replace(&mut seen[*node], true)));
        }
    }
    nodes
}

fn nodes_of(word: &str, at: Span, context: &Context, report: &mut Report) -> Vec<NodeId> {
    if let Some((_, nodes)) = context.groups.iter().find(|(name, _)| name == word) {
        return nodes.clone();
    }
    match context.lab.select(&[word]) {
        Ok(nodes) => nodes,
        Err(error) => {
            let groups = context.groups.iter().map(|(name, _)| name.as_str());
            let help = closest(word, groups).map(|name| format!("did you mean `{name}`?"));
            report.add(at, error.to_string(), help.as_deref().unwrap_or(error.help()));
            Vec::new()
        }
    }
}

/// The words of a selection, and how many of them are drawn.
fn words<'w>(written: &'w Spanned<Written>, report: &mut Report) -> (&'w [Spanned<String>], Option<Choose>) {
    let choice = match &written.value {
        Written::Word(word) => return (std::slice::from_ref(word), None),
        Written::Words(words) => {
            if words.is_empty() && !report.touches(written.whole) {
                report.add(written.at, "this is about nobody", "name somebody, such as `n1` or `[n1, n2]`");
            }
            return (words, None);
        }
        Written::Choice(choice) => choice,
    };
    let Choice { choose, share, of } = &**choice;
    let choose = match (choose, share) {
        (Some(count), None) => Choose::Count(count.value as usize),
        (None, Some(share)) => Choose::Share(share.value),
        _ => {
            if !report.touches(written.whole) {
                report.add(
                    written.at,
                    "this does not say how many",
                    "write `choose: 2` or `share: 50%`, one of the two",
                );
            }
            Choose::Count(1)
        }
    };
    if matches!(choose, Choose::Count(0)) || matches!(choose, Choose::Share(share) if share.0 <= 0.0) {
        report.add(written.at, "a choice of none", "choose 1 or more");
    }
    (of.words(), Some(choose))
}

fn selection<T>(among: Vec<T>, choose: Option<Choose>, at: Span, report: &mut Report) -> Option<Selection<T>> {
    if let Some(Choose::Count(count)) = choose.filter(|_| !among.is_empty())
        && count > among.len()
    {
        report.add(at, format!("{count} cannot be chosen of {}", among.len()), "choose fewer");
    }
    (!among.is_empty()).then_some(Selection { among, choose })
}

/// Some nodes. `None` where there are none, which is reported.
pub(super) fn some_nodes(
    written: &Spanned<Written>,
    context: &Context,
    report: &mut Report,
) -> Option<Selection<NodeId>> {
    let (words, choose) = words(written, report);
    selection(nodes(words, context, report), choose, written.at, report)
}

/// All of the lab's nodes.
pub(super) fn all_nodes(context: &Context) -> Selection<NodeId> {
    Selection { among: context.lab.nodes.ids().collect(), choose: None }
}

/// Whether nodes have interfaces of their own; a node is on driver host and nothing else.
pub(super) fn check_linked(nodes: &[NodeId], at: Span, context: &Context, report: &mut Report) -> bool {
    let on_host = |node: &&NodeId| {
        let mut interfaces = context.lab.nodes[**node].interfaces.iter();
        interfaces.any(|interface| context.lab.networks[interface.network].driver == DriverKind::Host)
    };
    let Some(node) = nodes.iter().find(on_host) else { return true };
    let message = format!("{} has no link of its own: driver host", context.lab.nodes[*node].name);
    let help = match context.replaced {
        Some(_) => "leave driver host out of the comparison, or the event out of the scenario",
        None => "leave it out, or take another driver, such as bridge",
    };
    report.add(at, message, help);
    false
}

/// Some interfaces: `n1:eth0`, or all those of `n1`; only those on a network, where one is given.
pub(super) fn some_ports(
    written: &Spanned<Written>,
    network: Option<NetworkId>,
    context: &Context,
    report: &mut Report,
) -> Option<Selection<Port>> {
    let (words, choose) = words(written, report);
    let before = report.len();
    let mut ports: Vec<Port> = Vec::new();
    for written in words {
        for word in written.value.split(',') {
            for port in ports_of(word.trim(), written.at, network, context, report) {
                if !ports.contains(&port) {
                    ports.push(port);
                }
            }
        }
    }
    if ports.is_empty() && report.len() == before && !words.is_empty() {
        report.add(written.at, "none of these has an interface there", "name others, or another network");
    }
    let nodes: Vec<NodeId> = ports.iter().map(|(node, _)| *node).collect();
    if !check_linked(&nodes, written.at, context, report) {
        return None;
    }
    selection(ports, choose, written.at, report)
}

fn ports_of(word: &str, at: Span, network: Option<NetworkId>, context: &Context, report: &mut Report) -> Vec<Port> {
    let (node, interface) = match word.split_once(':') {
        Some((node, interface)) => (node, Some(interface)),
        None => (word, None),
    };
    let mut ports = Vec::new();
    for node in nodes_of(node, at, context, report) {
        let interfaces = &context.lab.nodes[node].interfaces;
        let fits = |slot: &usize| {
            network.is_none_or(|network| interfaces[*slot].network == network)
                && interface.is_none_or(|name| interfaces[*slot].name == name)
        };
        let before = ports.len();
        ports.extend((0..interfaces.len()).filter(fits).map(|slot| (node, slot)));
        if let Some(interface) = interface.filter(|_| ports.len() == before && network.is_none()) {
            let known: Vec<_> = interfaces.iter().map(|interface| &interface.name).collect();
            let message = format!("{} has no interface `{interface}`", context.lab.nodes[node].name);
            report.add(at, message, suggest(interface, &known));
            break;
        }
    }
    ports
}

/// Whose link conditions change.
pub(super) enum Whose {
    Ports(Selection<Port>),
    Pairs(Pairs),
}

/// Whose link conditions are meant: those of interfaces, or between nodes.
pub(super) fn links(event: &Event, at: Span, context: &Context, report: &mut Report) -> Option<Whose> {
    let network = match &event.network {
        Some(name) => Some(network_of(name, context.replaced, context.lab, report)?),
        None => None,
    };
    let Event { nodes, interfaces, between, from, to, direction, .. } = event;
    match (interfaces, nodes, between, from, to) {
        (Some(written), None, None, None, None) => some_ports(written, network, context, report).map(Whose::Ports),
        (None, Some(written), None, None, None) => {
            let ports = some_ports(written, network, context, report)?;
            let twice = ports.among.windows(2).any(|pair| pair[0].0 == pair[1].0);
            if ports.choose.is_some() && twice {
                let help = "write `interfaces`, such as `{choose: 2, of: 'n*:eth0'}`, or name a `network`";
                report.add(written.at, "a choice of nodes of which some have more than one interface", help);
            }
            Some(Whose::Ports(ports))
        }
        (None, None, None, None, None) if network.is_some() => {
            let on = |node: NodeId| {
                let slots = context.lab.nodes[node].interfaces.iter().enumerate();
                let fitting = slots.filter(|(_, interface)| Some(interface.network) == network);
                fitting.map(move |(slot, _)| (node, slot)).collect::<Vec<_>>()
            };
            let among = context.lab.nodes.ids().flat_map(on).collect();
            selection(among, None, at, report).map(Whose::Ports)
        }
        (None, None, ..) => {
            if let Some(direction) = direction {
                let help = "leave it out; `from` and `to` say which way";
                report.add(direction.at, "a direction of what is between nodes", help);
            }
            pairs(event, at, network, context, report).map(Whose::Pairs)
        }
        _ => {
            let help = "keep one of `interfaces`, `nodes`, `between`, or `from` with `to`";
            report.add(at, "it is said more than once whose conditions these are", help);
            None
        }
    }
}

fn pairs(event: &Event, at: Span, network: Option<NetworkId>, context: &Context, report: &mut Report) -> Option<Pairs> {
    let (from, to, both, place) = match (&event.between, &event.from, &event.to) {
        (Some(between), None, None) => match between.value.as_slice() {
            [a, b] => (a, b, true, between.at),
            other => {
                let message = format!("`between` takes two, and here are {}", other.len());
                report.add(between.at, message, "write `between: [a, b]`; for more nodes, name groups or lists");
                return None;
            }
        },
        (None, Some(from), Some(to)) => (&from.value, &to.value, false, from.at),
        _ => {
            let help =
                "add `interfaces: 'n1:eth0'`, `nodes: n*`, `network: net`, `between: [a, b]`, or `from: a` and `to: b`";
            report.add(at, "it is not said whose conditions these are", help);
            return None;
        }
    };
    let mut members = |members: &Members| {
        let nodes = nodes(members.words(), context, report);
        (!nodes.is_empty()).then_some(nodes)
    };
    let (from, to) = (members(from), members(to));
    let (from, to) = (from?, to?);
    if !check_ends(&from, &to, network, context.replaced, place, context.lab, report) {
        return None;
    }
    let both = both && from != to;
    Some(Pairs { from, to, both, network })
}
