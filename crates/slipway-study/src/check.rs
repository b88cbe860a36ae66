//! Measuring, before a study, whether links are as asked: the choice of paths, and the measurement.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use nix::sys::signal::Signal;
use slipway_document::units::Seconds;
use slipway_engine::condition::LinkReport;
use slipway_engine::lab::Running;
use slipway_lab::id::NodeId;
use slipway_lab::model::{DriverKind, Lab};
use slipway_machines::rsh::Rsh;
use slipway_machines::verify::{self, Machines};
use slipway_measure::check::CheckedPath;
use slipway_sys::signals::Taken;
use slipway_verify::{Effort, Part, Plan, Route, is_conditioned};

use crate::{Event, Events, StudyError};

/// The most paths of a small lab, all of which are measured.
const MOST_PATHS: usize = 400;

/// Measures where a time is given; tells of a lab whose links have no conditions.
pub(crate) fn before(
    running: &Running,
    most: Option<Seconds>,
    events: &mut Events<'_>,
) -> Result<Vec<CheckedPath>, StudyError> {
    let Some(most) = most else { return Ok(Vec::new()) };
    let checked = under(running, most, "", events)?;
    if checked.is_empty() {
        events(Event::NothingToCheck { lab: &running.lab.name });
    }
    Ok(checked)
}

/// Measures those of [`all`] paths that have conditions, for about `most` at most. `under` is the driver and setting of a
/// comparison.
pub(crate) fn under(
    running: &Running,
    most: Seconds,
    under: &str,
    events: &mut Events<'_>,
) -> Result<Vec<CheckedPath>, StudyError> {
    let (links, alive) = look(running)?;
    let routes: Vec<Route> =
        all(&running.lab, &alive).into_iter().filter(|route| is_conditioned(&links, route)).collect();
    if routes.is_empty() {
        return Ok(Vec::new());
    }
    let effort = Effort { time: Some(most.duration()), ..Effort::default() };
    let mut checked = measure(running, &links, &routes, effort, events)?;
    for path in &mut checked {
        under.clone_into(&mut path.under);
    }
    events(Event::Checked { under, paths: &checked });
    Ok(checked)
}

/// Measures `routes`. `SIGINT` and `SIGTERM` end the measurement.
///
/// # Errors
/// When a path cannot be measured, or a signal came.
pub fn measure(
    running: &Running,
    links: &LinkReport,
    routes: &[Route],
    effort: Effort,
    events: &mut Events<'_>,
) -> Result<Vec<CheckedPath>, StudyError> {
    let plan = Plan::new(running, links, routes, effort);
    let interrupt = Taken::new(&[Signal::SIGINT, Signal::SIGTERM]).map_err(StudyError::io("take signals"))?;
    let mut signal = None;
    events(Event::CheckStarting { paths: routes.len(), lasts: plan.lasts() });
    let mut progress = |done| {
        events(Event::CheckProgress(done));
        signal = interrupt.take().ok().flatten();
        if signal.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let is_here = |route: &Route| running.lab.has_here(route.ends().0) && running.lab.has_here(route.ends().1);
    let checked = if routes.iter().all(is_here) {
        Part::whole(running, routes).and_then(|mut part| plan.run(&mut part, &mut progress)).map_err(StudyError::from)
    } else {
        let machines =
            Rsh::from_env().map_err(StudyError::from).and_then(|rsh| Ok(Machines::open(&rsh, &running.lab, routes)?));
        machines.and_then(|mut machines| Ok(plan.run(&mut machines, &mut progress)?))
    };
    events(Event::CheckDone);
    match (checked, signal) {
        (Err(_), Some(signal)) => Err(StudyError::CheckInterrupted(number(signal))),
        (checked, _) => checked,
    }
}

/// The links of a lab, and its nodes that run, on all of its machines.
///
/// # Errors
/// When a machine cannot be asked.
pub fn look(running: &Running) -> Result<(LinkReport, BTreeSet<NodeId>), StudyError> {
    if running.lab.is_spread() {
        return Ok(verify::look(&Rsh::from_env()?, running)?);
    }
    Ok(verify::here(running)?)
}

/// A signal's number.
pub(crate) fn number(signal: Signal) -> u8 {
    u8::try_from(signal as i32).unwrap_or(0)
}

/// All paths between nodes that run, as `alive` has them, and that can be under conditions; in a large lab those of each node
/// to the next.
#[must_use]
pub fn all(lab: &Lab, alive: &BTreeSet<NodeId>) -> Vec<Route> {
    let own = |&node: &NodeId| {
        alive.contains(&node)
            && lab.nodes[node].interfaces.iter().all(|of| lab.networks[of.network].driver != DriverKind::Host)
    };
    let nodes: Vec<NodeId> = lab.nodes.ids().filter(own).collect();
    let few = nodes.len() * nodes.len() <= MOST_PATHS;
    let mut routes = Vec::new();
    for (at, &from) in nodes.iter().enumerate() {
        let next = [nodes[(at + 1) % nodes.len()]];
        let to = if few { nodes.as_slice() } else { &next };
        // Nodes without a network in common are no path.
        routes.extend(to.iter().filter(|&&to| to != from).filter_map(|&to| Route::between(lab, from, to).ok()));
    }
    routes
}
