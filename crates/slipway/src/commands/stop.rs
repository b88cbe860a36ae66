//! `slipway stop`, and what it shares with the other commands that change nodes.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;
use slipway_engine::lab::Running;
use slipway_lab::units::Seconds;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, view};

/// Stop nodes; their files and links are kept
#[derive(Debug, clap::Args)]
#[command(override_usage = "slipway stop [OPTIONS] [LAB] <NODE>...", after_help = "\
Every program in the node gets SIGTERM and the time of --grace; then all is
ended, and its links go silent.

Examples:
  slipway stop demo n3
  slipway stop demo n1,n2 --grace 0s         at once
  slipway stop demo 'n*' --grace 1min

Units of --grace: us, ms, s, min, h")]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// How long programs may take to end
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = seconds)]
    grace: Seconds,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, nodes) = self.chosen.open(context)?;
        let done = Done::new(("stop", "stopped"), &["stopped"], &running, &nodes, self.dry_run)?;
        done.make(context, || Ok(running.stop(&nodes, self.grace.duration())?))
    }
}

pub(super) fn seconds(text: &str) -> Result<Seconds, String> {
    text.parse().map_err(|error: slipway_lab::units::UnitError| error.to_string())
}

/// A lab and some of its nodes, as written.
#[derive(Debug, clap::Args)]
pub(crate) struct Chosen {
    /// Lab (name or file; may be left out where one runs), then nodes, groups or patterns, also as n1,n2
    #[arg(value_names = ["LAB", "NODE"], num_args = 1.., required = true)]
    words: Vec<String>,
}

impl Chosen {
    /// The lab, opened, and the nodes' indices.
    pub(crate) fn open(&self, context: &Context) -> Result<(Running, Vec<usize>), Failure> {
        labs::nodes(&context.root, &self.words)
    }
}

/// Which of `all` a command changed, and which it found so already.
pub(super) fn changed(what: &str, all: &[String], unchanged: &[String], lab: &str) -> String {
    // A lab has up to ten thousand nodes: no list is searched for each.
    let same: BTreeSet<&String> = unchanged.iter().collect();
    let changed: Vec<String> = all.iter().filter(|name| !same.contains(name)).cloned().collect();
    let mut text = String::new();
    if !changed.is_empty() {
        text = format!("{what} {} of lab {lab}\n", view::listed(&changed));
    }
    if !unchanged.is_empty() || all.is_empty() {
        let which = if unchanged.is_empty() { "nothing".to_owned() } else { view::listed(unchanged) };
        let _ = writeln!(text, "unchanged: {which} of lab {lab}");
    }
    text
}

/// What is done to which nodes.
#[derive(Serialize)]
pub(crate) struct Done {
    lab: String,
    action: &'static str,
    #[serde(skip)]
    participle: &'static str,
    nodes: Vec<String>,
    /// Those of them that were so already.
    unchanged: Vec<String>,
    dry_run: bool,
}

impl Done {
    /// `action` is a verb, `participle` what the nodes are afterwards, and `already` the statuses of nodes that it leaves as
    /// they are.
    pub(crate) fn new(
        (action, participle): (&'static str, &'static str),
        already: &[&str],
        running: &Running,
        nodes: &[usize],
        DryRun { dry_run }: DryRun,
    ) -> Result<Self, Failure> {
        let lab = &running.lab;
        let mut unchanged = Vec::new();
        for &node in nodes {
            let row = running.row(node)?;
            if already.contains(&row.status.as_str()) {
                unchanged.push(row.name);
            }
        }
        Ok(Self { lab: lab.name.clone(), action, participle, nodes: labs::names(lab, nodes), unchanged, dry_run })
    }

    /// Does it, unless it is only to be said, and says so.
    pub(crate) fn make(&self, context: &Context, act: impl FnOnce() -> Result<(), Failure>) -> Result<Exit, Failure> {
        if self.dry_run {
            context.answer(self, |done| changed(&format!("would {}", done.action), &done.nodes, &done.unchanged, &done.lab))?;
        } else {
            act()?;
            context.tell(self, |done| changed(done.participle, &done.nodes, &done.unchanged, &done.lab))?;
        }
        Ok(Exit::Success)
    }
}
