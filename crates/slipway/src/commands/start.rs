//! `slipway start`

use slipway_lab::scenario::Order;

use super::stop::Chosen;
use crate::context::{Context, DryRun};
use crate::done::Done;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parts;

/// Start stopped or dead nodes, with their files and links
#[derive(Debug, clap::Args)]
#[command(override_usage = "slipway start [OPTIONS] [LAB] <NODE>...", after_help = "\
The command leaves running nodes alone.

Examples:
  slipway start demo n3
  slipway start demo n1,web,'db*'")]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, nodes) = self.chosen.open(context)?;
        let done = Done::to_nodes(("start", "started"), &["running", "frozen"], &running, &nodes, self.dry_run)?;
        done.make(context, || parts::give(context, &running, &Order::Start { nodes }).map(drop))
    }
}
