//! `slipway verify`

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use slipway_engine::lab::Running;
use slipway_engine::verify::{Check, Effort, Outcome, Route, Verdict, verify};
use slipway_lab::model::DriverKind;
use slipway_lab::units::Seconds;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::meter::{Meter, Progress};
use crate::targets::{self, Target};
use crate::view;

/// Paths that are measured where none is named.
const MOST_PATHS: usize = 400;

/// Measure whether links are what they are asked to be
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway verify [OPTIONS] [LAB] [TARGET]...",
    after_help = "\
Packets with a number and a time go from node to node over all paths at once; what arrives is held against the conditions
in force: delay, jitter, loss, duplicates, reordering. Rates follow, path by path, by sending more than they let through.
Shares must lie where 99 of 100 measurements of a link as asked do (so one check in a hundred is off by chance), delays
within 0.5 ms and 1 % of what is asked, rates within 2 %. Corrupt packets count as lost, since receivers drop them.

A TARGET is some nodes (all paths between them) or what some nodes send to others (`n1->n2`, in quotes). Without one all
paths are measured, or in a large lab those of each node to the next.

Exit code 1: something is not as asked.

Examples:
  slipway verify demo
  slipway verify demo 'site1->site2' --packets 20000
  slipway verify demo --json | jq '.[] | select(.checks[].verdict == \"off\")'"
)]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs), then targets
    #[arg(value_names = ["LAB", "TARGET"], num_args = 0..)]
    words: Vec<String>,
    /// Packets of each path; a share of 0.1 % takes tens of thousands to tell
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    packets: u32,
    /// Between two packets of a path; longer where there are many paths
    #[arg(long, default_value = "1ms", value_name = "TIME")]
    interval: Seconds,
    /// How long a rate is measured
    #[arg(long, default_value = "500ms", value_name = "TIME")]
    rate_time: Seconds,
}

/// A path as it is said.
#[derive(Serialize)]
struct Said<'a> {
    from: &'a str,
    to: &'a str,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, words) = targets::lab_and_words(&context.root, &self.words)?;
        let routes = routes(&running, words)?;
        let effort = Effort {
            packets: self.packets,
            interval: self.interval.duration().max(Duration::from_micros(1)),
            rate_time: self.rate_time.duration(),
        };
        let mut meter = Meter::new(&context.global);
        let links = running.links()?;
        let outcomes = verify(&running, &links, &routes, effort, &mut |done| meter.show(Progress::Measuring(done)))?;
        meter.finish();
        let name = |(node, _): (usize, usize)| running.lab.nodes[node].name.as_str();
        let said: Vec<Said<'_>> = outcomes
            .iter()
            .map(|outcome| Said { from: name(outcome.route.from), to: name(outcome.route.to), outcome })
            .collect();
        context.answer(&said, |said| text(said))?;
        Ok(if outcomes.iter().all(Outcome::is_as_asked) { Exit::Success } else { Exit::Failed })
    }
}

/// The paths that `words` choose.
fn routes(running: &Running, words: &[String]) -> Result<Vec<Route>, Failure> {
    let lab = &running.lab;
    let own = |&node: &usize| {
        running.init(node).is_ok()
            && lab.nodes[node].interfaces.iter().all(|of| lab.networks[of.network].driver != DriverKind::Host)
    };
    let mut routes = Vec::new();
    if words.is_empty() {
        let nodes: Vec<usize> = (0..lab.nodes.len()).filter(own).collect();
        let few = nodes.len() * nodes.len() <= MOST_PATHS;
        for (at, &from) in nodes.iter().enumerate() {
            let next = [nodes[(at + 1) % nodes.len()]];
            let to = if few { nodes.as_slice() } else { &next };
            // Nodes without a network in common are no path.
            routes.extend(to.iter().filter(|&&to| to != from).filter_map(|&to| Route::between(lab, from, to).ok()));
        }
        return Ok(routes);
    }
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

fn text(said: &[Said<'_>]) -> String {
    let rows = said.iter().flat_map(|path| {
        path.outcome.checks.iter().map(|check| {
            let [asked, measured, low, high] =
                [check.asked, check.measured, check.within.0, check.within.1].map(|value| amount(check, value));
            [
                format!("{}->{}", path.from, path.to),
                check.what.clone(),
                asked,
                measured,
                format!("{low} – {high}"),
                path.outcome.mechanism.clone(),
                verdict(check),
            ]
        })
    });
    let mut text = view::table(["PATH", "CONDITION", "ASKED", "MEASURED", "AS ASKED WITHIN", "BY", "VERDICT"], rows);
    let count = |verdict: Verdict| {
        said.iter().flat_map(|path| &path.outcome.checks).filter(|check| check.verdict == verdict).count()
    };
    let (met, off, unknown) = (count(Verdict::Met), count(Verdict::Off), count(Verdict::Unknown));
    let _ = writeln!(
        text,
        "\n{} on {}: {met} as asked, {off} not, {unknown} unknown",
        view::count(met + off + unknown, "check"),
        view::count(said.len(), "path")
    );
    text
}

fn verdict(check: &Check) -> String {
    let word = match check.verdict {
        Verdict::Met => "as asked",
        Verdict::Off => "NOT AS ASKED",
        Verdict::Unknown => "unknown",
    };
    check.note.as_ref().map_or_else(|| word.to_owned(), |note| format!("{word}: {note}"))
}

/// A value in a unit that people read.
fn amount(check: &Check, value: f64) -> String {
    match check.unit.as_str() {
        "s" => format!("{:.3} ms", value * 1e3),
        "bit/s" => format!("{:.3} Mbit/s", value / 1e6),
        _ => format!("{:.3} %", value * 1e2),
    }
}
