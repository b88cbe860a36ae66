//! Keys that events of several effects have.

use slipway_document::errors::{Report, Span};
use slipway_document::units::Seconds;

use super::Context;
use super::target::{check_linked, some_nodes};
use crate::file::{Event, How};
use crate::id::NodeId;
use crate::scenario::{Direction, Kill, Selection};

/// How long programs have to end where it is not said.
const GRACE: Seconds = Seconds(10.0);

/// Nodes whose limits change.
pub(super) fn only_nodes(event: &Event, at: Span, context: &Context, report: &mut Report) -> Option<Selection<NodeId>> {
    let misplaced = event
        .keys()
        .into_iter()
        .filter(|(key, _)| matches!(*key, "interfaces" | "network" | "between" | "from" | "to" | "direction"));
    for (key, at) in misplaced {
        report.add(at, format!("`{key}` is about links, and this is about nodes"), "write `nodes: n*`");
    }
    let Some(nodes) = &event.nodes else {
        report.add(at, "it is not said whose this is", "add `nodes: n*`");
        return None;
    };
    some_nodes(nodes, context, report)
}

/// The direction of packets that an event changes.
pub(super) fn direction(event: &Event) -> Direction {
    event.direction.as_ref().map_or(Direction::Egress, |direction| direction.value)
}

/// How the nodes of an event end.
pub(super) fn how(event: &Event, on: &Selection<NodeId>, context: &Context, report: &mut Report) -> Kill {
    let how = event.how.as_ref();
    let graceful = how.is_some_and(|how| how.value == How::Graceful);
    if let Some(grace) = event.grace.as_ref().filter(|_| !graceful && event.stop.is_none()) {
        report.add(grace.at, "only who is asked to end has time for it", "add `how: graceful`, or leave `grace` out");
    }
    match how.map(|how| how.value) {
        Some(How::Graceful) => Kill::Graceful { grace: grace(event) },
        Some(How::Hard) => {
            // Its links cannot go silent where it uses its host's.
            let at = how.map_or_else(Span::default, |how| how.at);
            check_linked(&on.among, at, context, report);
            Kill::Hard
        }
        Some(How::Soft) | None => Kill::Soft,
    }
}

/// How long the programs of an event have to end.
pub(super) fn grace(event: &Event) -> Seconds {
    event.grace.as_ref().map_or(GRACE, |grace| grace.value)
}
