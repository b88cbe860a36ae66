//! `slipway stop`, and what it shares with the other commands that change nodes.

use slipway_engine::lab::Running;
use slipway_document::units::Seconds;
use slipway_lab::id::NodeId;

use crate::context::{Context, DryRun};
use crate::done::Done;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, parts};

/// Stop nodes, and keep their files and links
#[derive(Debug, clap::Args)]
#[command(override_usage = "slipway stop [OPTIONS] [LAB] <NODE>...", after_help = "\
Every program in the node gets SIGTERM and the time of --grace to end. Then the
command ends the rest, and the node's links go silent.

Examples:
  slipway stop demo n3
  slipway stop demo n1,n2 --grace 0s         at once
  slipway stop demo 'n*' --grace 1min

Units of --grace: us, ms, s, min, h")]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// Time that programs have to end
    #[arg(long, value_name = "TIME", default_value = "10s")]
    grace: Seconds,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, nodes) = self.chosen.open(context)?;
        let done = Done::to_nodes(("stop", "stopped"), &["stopped"], &running, &nodes, self.dry_run)?;
        let (here, elsewhere): (Vec<NodeId>, Vec<NodeId>) =
            nodes.iter().partition(|&&node| running.lab.has_here(node));
        done.make(context, || {
            if !elsewhere.is_empty() {
                let (grace, names) = (self.grace.to_string(), labs::names(&running.lab, &elsewhere));
                let mut words = vec!["stop", "--grace", &grace, &running.lab.name];
                words.extend(names.iter().map(String::as_str));
                parts::answers::<serde_json::Value>(context, &running.lab, &words)?;
            }
            Ok(running.stop(&here, self.grace.duration())?)
        })
    }
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
    pub(crate) fn open(&self, context: &Context) -> Result<(Running, Vec<NodeId>), Failure> {
        labs::nodes(&context.root, &self.words)
    }
}
