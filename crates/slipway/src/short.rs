//! Changes of links that leave them a limit below what is under way.

use std::collections::BTreeMap;

use slipway_engine::condition::{LinkReport, Place};
use slipway_lab::change::{Keys as _, LinkChange};
use slipway_lab::condition::LinkConditions;
use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_lab::scenario::{Action, Direction, LinkAction, Order};

use crate::view;

/// Limits that an action would leave too short, in words. `report` is of links as they are; without it they are as in the lab's file.
pub(crate) fn of_action(lab: &Lab, report: Option<&LinkReport>, action: &LinkAction) -> Vec<String> {
    match action {
        LinkAction::Link { interfaces, direction, change } => {
            let now = |place| (now(lab, report, place, *direction), LinkConditions::default());
            told(lab, change, interfaces.iter().copied(), now)
        }
        LinkAction::Pair(pair) => {
            let slots = |&node: &NodeId| (0..lab.nodes[node].interfaces.len()).map(move |slot| (node, slot));
            let on = |&(node, slot): &Place| {
                pair.network.is_none_or(|network| network == lab.nodes[node].interfaces[slot].network)
            };
            let now = |place| (own(report, place, &pair.to), now(lab, report, place, Direction::Egress));
            told(lab, &pair.change, pair.from.iter().flat_map(slots).filter(on), now)
        }
        _ => Vec::new(),
    }
}

/// The same of a scenario's event, on links as in the lab's file.
pub(crate) fn of_event(lab: &Lab, action: &Action) -> Vec<String> {
    match action {
        Action::Order(Order::Links(action)) => of_action(lab, None, action),
        _ => Vec::new(),
    }
}

/// `now` gives what the change is made to, and what holds beneath it.
fn told(
    lab: &Lab,
    change: &LinkChange,
    places: impl Iterator<Item = Place>,
    now: impl Fn(Place) -> (LinkConditions, LinkConditions),
) -> Vec<String> {
    let mut short: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for place in places {
        let mtu = lab.networks[lab.nodes[place.0].interfaces[place.1].network].mtu;
        let (own, under) = now(place);
        let (before, after) = (own.over(&under), change.apply(&own).over(&under));
        if let Some((message, help)) = after.short_limit(mtu).filter(|_| before.short_limit(mtu).is_none()) {
            short.entry(format!("{message}; {help}")).or_default().push(lab.port_name(place));
        }
    }
    short.into_iter().map(|(message, names)| format!("{}: {message}", view::listed(&names))).collect()
}

/// Conditions of one direction of an interface.
fn now(lab: &Lab, report: Option<&LinkReport>, place: Place, direction: Direction) -> LinkConditions {
    let reported = report.and_then(|report| report.interfaces.iter().find(|of| (of.node, of.slot) == place));
    let file = &lab.nodes[place.0].interfaces[place.1].conditions;
    match (direction, reported) {
        (Direction::Egress, Some(reported)) => reported.egress.now.clone(),
        (Direction::Ingress, Some(reported)) => reported.ingress.now.clone(),
        (Direction::Egress, None) => file.egress.clone(),
        (Direction::Ingress, None) => file.ingress.clone(),
    }
}

/// Conditions of what an interface sends to the first of some nodes.
fn own(report: Option<&LinkReport>, place: Place, to: &[NodeId]) -> LinkConditions {
    let reported = report.and_then(|report| report.interfaces.iter().find(|of| (of.node, of.slot) == place));
    let peers = reported.into_iter().flat_map(|of| &of.egress.peers);
    peers.into_iter().find(|peer| to.contains(&peer.node)).map(|peer| peer.own.clone()).unwrap_or_default()
}
