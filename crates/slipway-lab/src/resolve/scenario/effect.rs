//! The effect of an entry, and its targets.

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};

use super::Context;
use super::amount::{Keyed, duration, setting};
use super::event::{direction, grace, how, only_nodes};
use super::target::{Whose, all_nodes, check_linked, links, some_nodes, some_ports};
use super::trace::replay;
use crate::file::{Amount, Event, Selection as Written};
use crate::id::{List, NodeId};
use crate::resolve::link::network;
use crate::resolve::program;
use crate::scenario::{Effect, Generator, Kill, LinkAct, NodeAct, PairAct};

/// The word for all nodes that no other side has.
pub(super) const REST: &str = "rest";

pub(super) fn effect(event: &Event, at: Span, context: &Context, report: &mut Report) -> Option<Effect> {
    let nodes = |written: &Option<Spanned<Written>>, act: NodeAct, report: &mut Report| {
        written.as_ref().map(|written| Some(Effect::Nodes { on: some_nodes(written, context, report)?, act }))
    };
    let grace = grace(event);
    let simple = [
        (&event.stop, NodeAct::Kill(Kill::Graceful { grace })),
        (&event.start, NodeAct::Start),
        (&event.restart, NodeAct::Restart { grace }),
        (&event.freeze, NodeAct::Freeze),
        (&event.thaw, NodeAct::Thaw),
    ];
    for (written, act) in simple {
        if let Some(effect) = nodes(written, act, report) {
            return effect;
        }
    }
    let ports = |written: &Spanned<Written>, act: LinkAct, report: &mut Report| {
        let network = match &event.network {
            Some(name) => Some(network(name, context.replaced, context.lab, report)?),
            None => None,
        };
        Some(Effect::Links { on: some_ports(written, network, context, report)?, act })
    };
    if let Some(cut) = &event.cut {
        return ports(cut, LinkAct::Cut, report);
    }
    if let Some(heal) = &event.heal {
        return ports(heal, LinkAct::Heal, report);
    }
    if event.join.is_some() {
        return Some(Effect::Join);
    }
    if let Some(flap) = &event.flap {
        let up = lasting(event.up.as_ref(), "up", at, context, report);
        let down = lasting(event.down.as_ref(), "down", at, context, report);
        return ports(flap, LinkAct::Flap { up: up?, down: down? }, report);
    }
    if let Some(kill) = &event.kill {
        let on = some_nodes(kill, context, report)?;
        let how = how(event, &on, context, report);
        return Some(Effect::Nodes { on, act: NodeAct::Kill(how) });
    }
    if let Some(churn) = &event.churn {
        let availability = lasting(event.availability.as_ref(), "availability", at, context, report);
        let unavailability = lasting(event.unavailability.as_ref(), "unavailability", at, context, report);
        let on = some_nodes(churn, context, report)?;
        let how = how(event, &on, context, report);
        let act = NodeAct::Churn { how, availability: availability?, unavailability: unavailability? };
        return Some(Effect::Nodes { on, act });
    }
    if let Some(sides) = &event.partition {
        return partition(sides, context, report);
    }
    if let Some(run) = &event.run {
        let on = match &run.value.nodes {
            Some(nodes) => some_nodes(nodes, context, report),
            None => Some(all_nodes(context)),
        };
        let command = program::words(&run.value.command, report);
        return Some(Effect::Nodes { on: on?, act: NodeAct::Run { command: command? } });
    }
    match (&event.set, &event.trace) {
        (Some(set), _) => match setting(set, report)? {
            Keyed::Node(setting) => {
                Some(Effect::Nodes { on: only_nodes(event, at, context, report)?, act: NodeAct::Set(setting) })
            }
            Keyed::Link(setting) => Some(match links(event, at, context, report)? {
                Whose::Ports(on) => Effect::Links { on, act: LinkAct::Set { direction: direction(event), setting } },
                Whose::Pairs(pairs) => Effect::Pairs { pairs, act: PairAct::Set(setting) },
            }),
        },
        (None, Some(trace)) => replay(trace, event, at, context, report),
        (None, None) => None,
    }
}

/// A duration that must be said, and may be without an end.
fn lasting(
    written: Option<&Spanned<Amount>>,
    key: &str,
    at: Span,
    context: &Context,
    report: &mut Report,
) -> Option<Generator> {
    let Some(written) = written else {
        report.add(
            at,
            format!("`{key}` is missing"),
            format!("add for example `{key}: {{exponential: {{mean: 60s}}}}`"),
        );
        return None;
    };
    let generator = duration(written, context, report)?;
    if generator == Generator::Constant(0.0) {
        report.add(written.at, "a time of nothing", "write a longer one");
    }
    Some(generator)
}

fn partition(sides: &Spanned<Vec<Spanned<Written>>>, context: &Context, report: &mut Report) -> Option<Effect> {
    let mut selections = Vec::new();
    let mut rest = false;
    let mut side_of: List<NodeId, _> = vec![None; context.lab.nodes.len()].into();
    for (i, written) in sides.value.iter().enumerate() {
        if matches!(&written.value, Written::Word(word) if word.value == REST) {
            rest = true;
            continue;
        }
        let side = some_nodes(written, context, report)?;
        check_linked(&side.among, written.at, context, report);
        let twice = side.among.iter().find(|node| side_of[**node].replace(i).is_some_and(|other| other != i));
        if let Some(node) = twice {
            let message = format!("{} is on two sides", context.lab.nodes[*node].name);
            report.add(written.at, message, "name each node on one side; one that is on none reaches all");
        }
        selections.push(side);
    }
    if selections.len() + usize::from(rest) < 2 {
        if !report.touches(sides.whole) {
            let help = "write two or more, such as `[[n1, n2], [n3]]` or `[n1, rest]`";
            report.add(sides.at, "a partition has two sides at least", help);
        }
        return None;
    }
    Some(Effect::Partition { sides: selections, rest })
}
