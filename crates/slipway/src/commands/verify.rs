//! `slipway verify`

use std::collections::BTreeSet;
use std::time::Duration;

use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_verify::{Effort, Route};
use slipway_document::units::Seconds;
use slipway_measure::check::{self, CheckedPath, Tally};
use slipway_study::check as study;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::targets::{self, Target};
use crate::view;
use crate::events::Steps;

/// Measure whether links meet their conditions
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway verify [OPTIONS] [LAB] [TARGET]...",
    after_help = "\
The command sends numbered packets over all paths at once, and compares arrivals with the conditions in force: delay,
jitter, loss, duplicates, reordering. Then it measures rates, path by path, with more packets than they let through. Paths
may lead through gateways.

A simulation gives the expected values: the same packets pass models of the wire, netem or tbf. A check passes within the
range of 999 of 1000 checks of simulated right links. The machine may add 0.5 ms and 1 % to a delay, and 3 % to a rate.
Corrupt packets count as lost, since receivers drop them. `not judged` means that the time was too short: a share, for
example, needs enough packets to tell it from none and from twice as much.

Over several machines, a path's ends have two clocks. The command compares them, and allows a delay what it cannot know of
their difference.

A TARGET is some nodes (all paths between them) or the packets that some nodes send to others (`n1->n2`, in quotes). Without
one the command measures all paths, or in a large lab those of each node to the next.

Exit code 1: a link misses its conditions.

Examples:
  slipway verify demo
  slipway verify demo 'site1->site2' --packets 20000
  slipway verify demo --time 1m
  slipway verify demo --json | jq '.[] | select(.checks[].verdict == \"off\")'"
)]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs), then targets
    #[arg(value_names = ["LAB", "TARGET"], num_args = 0..)]
    words: Vec<String>,
    /// Packets of each path [default: 1000, or as many as a small share needs, within the time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    packets: Option<u32>,
    /// Time between two packets of a path; longer with many paths, or a low rate [default: 1ms, or less for many packets]
    #[arg(long, value_name = "TIME")]
    interval: Option<Seconds>,
    /// Time to measure a rate; longer where it is low
    #[arg(long, default_value = "500ms", value_name = "TIME")]
    rate_time: Seconds,
    /// Greatest time of all checks, about; checks beyond it are not judged [default: 10 s a path at most]
    #[arg(long, value_name = "TIME")]
    time: Option<Seconds>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, words) = targets::lab_and_words(&context.root, &self.words)?;
        let (links, alive) = study::look(&running)?;
        let routes = routes(&running.lab, &alive, words)?;
        let effort = Effort {
            packets: self.packets,
            interval: self.interval.map(|interval| interval.duration().max(Duration::from_micros(1))),
            rate_time: self.rate_time.duration(),
            time: self.time.map(Seconds::duration),
        };
        let mut steps = Steps::new(&context.global);
        let checked = study::measure(&running, &links, &routes, effort, &mut |event| steps.show(event))?;
        context.answer(&checked, |checked| text(checked))?;
        Ok(if checked.iter().all(CheckedPath::is_as_asked) { Exit::Success } else { Exit::Failed })
    }
}

/// The paths that `words` choose.
fn routes(lab: &Lab, alive: &BTreeSet<NodeId>, words: &[String]) -> Result<Vec<Route>, Failure> {
    if words.is_empty() {
        return Ok(study::all(lab, alive));
    }
    let mut routes = Vec::new();
    for word in words {
        let (from, to) = match targets::target(lab, word)? {
            Target::Pair { from, to } => (from, to),
            Target::Interfaces { nodes, interface: None, direction: None } => (nodes.clone(), nodes),
            Target::Interfaces { .. } => {
                return Err(Failure::usage(format!(
                    "verify `{word}`: a path has two ends\nHint: write nodes, or `n1->n2`"
                )));
            }
        };
        for &from in &from {
            for &to in to.iter().filter(|&&to| to != from) {
                let route = Route::between(lab, from, to).map_err(|error| Failure::usage(&error))?;
                if !routes.contains(&route) {
                    routes.push(route);
                }
            }
        }
    }
    Ok(routes)
}

/// Those of [`check::HEADINGS`], as tables of the terminal have them.
const HEADINGS: [&str; 7] = ["PATH", "CONDITION", "EXPECTED", "MEASURED", "AS ASKED WITHIN", "BY", "VERDICT"];

fn text(checked: &[CheckedPath]) -> String {
    let table = view::table(HEADINGS, check::rows(checked));
    format!("{table}\n{}\n", Tally::of(checked))
}
