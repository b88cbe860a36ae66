//! Whether links are what they are asked to be: which paths are measured, and measuring them before something runs.

use std::ops::ControlFlow;

use nix::sys::signal::Signal;
use slipway_engine::condition::LinkReport;
use slipway_engine::lab::Running;
use slipway_lab::model::DriverKind;
use slipway_lab::units::Seconds;
use slipway_measure::check::{self, CheckedPath, Tally};
use slipway_sys::signals::Taken;
use slipway_verify::{Effort, Plan, Route, VerifyError, is_conditioned};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::meter::{Meter, Progress};
use crate::view;

/// Paths that are measured where none is named.
const MOST_PATHS: usize = 400;
/// Warnings that are shown one by one.
const MOST_SHOWN: usize = 5;

/// For commands that run something on a lab and keep records of it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Verify {
    /// First measure whether links meet their conditions, for at most about TIME [10s where it is left out]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10s")]
    verify: Option<Seconds>,
}

impl Verify {
    /// Measures, where that is asked for. Where nothing is under conditions, it says so.
    pub(crate) fn before(self, context: &Context, running: &Running) -> Result<Vec<CheckedPath>, Failure> {
        let Some(most) = self.verify else { return Ok(Vec::new()) };
        let checked = before(context, running, most, "")?;
        if checked.is_empty() && !context.global.quiet {
            tracing::warn!("lab {} has no link under conditions: there was nothing to verify", running.lab.name);
        }
        Ok(checked)
    }
}

/// Measures those of [`all`] paths of which anything is asked, for at most about `most`; `under` is what the lab is under, in
/// a comparison.
pub(crate) fn before(
    context: &Context,
    running: &Running,
    most: Seconds,
    under: &str,
) -> Result<Vec<CheckedPath>, Failure> {
    let links = running.links()?;
    let routes: Vec<Route> = all(running).into_iter().filter(|route| is_conditioned(&links, route)).collect();
    if routes.is_empty() {
        return Ok(Vec::new());
    }
    let effort = Effort { time: Some(most.duration()), ..Effort::default() };
    let mut checked = measure(context, running, &links, &routes, effort)?;
    for path in &mut checked {
        under.clone_into(&mut path.under);
    }
    tell(context, &checked, under);
    Ok(checked)
}

/// Measures `routes`; says before how long it takes, and meanwhile how far it is.
pub(crate) fn measure(
    context: &Context,
    running: &Running,
    links: &LinkReport,
    routes: &[Route],
    effort: Effort,
) -> Result<Vec<CheckedPath>, Failure> {
    let plan = Plan::new(running, links, routes, effort)?;
    let interrupt = Taken::new(&[Signal::SIGINT, Signal::SIGTERM]).map_err(Failure::io("take signals"))?;
    let mut signal = None;
    let mut meter = Meter::new(&context.global);
    let paths = view::count(routes.len(), "path");
    let about = plan.lasts().as_secs_f64().ceil();
    meter.say(&format!("measuring {paths}, for about {about} s"));
    let checked = plan.run(&mut |done| {
        meter.show(Progress::Measuring(done));
        signal = interrupt.take().ok().flatten();
        if signal.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    meter.finish();
    match (checked, signal) {
        (Err(error @ VerifyError::Interrupted), Some(signal)) => {
            let code = u8::try_from(signal as i32).unwrap_or(0).saturating_add(128);
            Err(Failure::new(Exit::Program(code), &error))
        }
        (checked, _) => Ok(checked?),
    }
}

/// Summarizes the result.
fn tell(context: &Context, checked: &[CheckedPath], under: &str) {
    if context.global.quiet || context.global.json {
        return;
    }
    let under = if under.is_empty() { String::new() } else { format!(" under {under}") };
    eprintln!("links{under}: {}", Tally::of(checked));
    let warnings = check::warnings(checked);
    for warning in warnings.iter().take(MOST_SHOWN) {
        tracing::warn!("{warning}");
    }
    if let Some(more @ 1..) = warnings.len().checked_sub(MOST_SHOWN) {
        tracing::warn!("{more} more are not as asked; the records have all");
    }
}

/// All paths between running nodes that can be under conditions; in a large lab those of each node to the next.
pub(crate) fn all(running: &Running) -> Vec<Route> {
    let lab = &running.lab;
    let own = |&node: &usize| {
        running.init(node).is_ok()
            && lab.nodes[node].interfaces.iter().all(|of| lab.networks[of.network].driver != DriverKind::Host)
    };
    let nodes: Vec<usize> = (0..lab.nodes.len()).filter(own).collect();
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
