//! `slipway thaw`

use slipway_lab::scenario::Order;

use super::stop::Chosen;
use crate::context::{Context, DryRun};
use crate::done::Done;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parts;

/// Continue frozen nodes
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "unfreeze",
    override_usage = "slipway thaw [OPTIONS] [LAB] <NODE>...",
    after_help = "\
Examples:
  slipway thaw demo n3
  slipway thaw demo 'n*'"
)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, nodes) = self.chosen.open(context)?;
        let done = Done::to_nodes(("thaw", "thawed"), &["running"], &running, &nodes, self.dry_run)?;
        done.make(context, || parts::give(context, &running, &Order::Thaw { nodes }).map(drop))
    }
}
