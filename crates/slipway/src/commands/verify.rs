//! `slipway verify`

use std::time::Duration;

use slipway_engine::lab::Running;
use slipway_engine::verify::{Effort, Route};
use slipway_lab::units::Seconds;
use slipway_measure::check::{self, CheckedPath, Tally};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::targets::{self, Target};
use crate::{verification, view};

/// Measure whether links are what they are asked to be
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway verify [OPTIONS] [LAB] [TARGET]...",
    after_help = "\
Packets with a number and a time go from node to node over all paths at once; what arrives is held against what the
mechanism in use makes of the conditions in force: delay, jitter, loss, duplicates, reordering. Rates follow, path by path,
by sending more than they let through. Paths may lead through gateways.

What is expected is simulated: the same packets pass models of the wire, netem or tbf. What simulated links as asked show in
999 of 1000 checks is as asked; beyond that the machine may add 0.5 ms and 1 % to a delay, and 3 % to a rate. Corrupt packets
count as lost, since receivers drop them. What cannot be told in the time for measuring is `not judged`, never `as asked`:
so is a share of which the packets are too few to tell it from none and from twice as much.

A TARGET is some nodes (all paths between them) or what some nodes send to others (`n1->n2`, in quotes). Without one all
paths are measured, or in a large lab those of each node to the next.

Exit code 1: something is not as asked.

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
    /// Packets of each path [default: 1000, or as many as a small share takes, as far as there is time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    packets: Option<u32>,
    /// Between two packets of a path; longer where there are many paths, or a low rate [default: 1ms, or less for many packets]
    #[arg(long, value_name = "TIME")]
    interval: Option<Seconds>,
    /// How long a rate is measured; longer where it is low
    #[arg(long, default_value = "500ms", value_name = "TIME")]
    rate_time: Seconds,
    /// About how long all of it may take; what does not fit in is not judged [default: 10 s a path at most]
    #[arg(long, value_name = "TIME")]
    time: Option<Seconds>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, words) = targets::lab_and_words(&context.root, &self.words)?;
        let routes = routes(&running, words)?;
        let effort = Effort {
            packets: self.packets,
            interval: self.interval.map(|interval| interval.duration().max(Duration::from_micros(1))),
            rate_time: self.rate_time.duration(),
            time: self.time.map(Seconds::duration),
        };
        let links = running.links()?;
        let checked = verification::measure(context, &running, &links, &routes, effort)?;
        context.answer(&checked, |checked| text(checked))?;
        Ok(if checked.iter().all(CheckedPath::is_as_asked) { Exit::Success } else { Exit::Failed })
    }
}

/// The paths that `words` choose.
fn routes(running: &Running, words: &[String]) -> Result<Vec<Route>, Failure> {
    let lab = &running.lab;
    if words.is_empty() {
        return Ok(verification::all(running));
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
