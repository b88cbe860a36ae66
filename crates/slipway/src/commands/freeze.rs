//! `slipway freeze`

use slipway_lab::scenario::Order;

use super::stop::Chosen;
use crate::context::{Context, DryRun};
use crate::done::{Done, warn_of_hosts_network};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parts;

/// Halt every process of nodes
#[derive(Debug, clap::Args)]
#[command(override_usage = "slipway freeze [OPTIONS] [LAB] <NODE>...", after_help = "\
The node keeps its memory and connections. Its interfaces pass nothing, so it
answers and forwards nothing, until `slipway thaw`. Connections of the fast path
stay: data from peers waits in buffers. On driver host the node shares its
host's network, which still answers.

Examples:
  slipway freeze demo n3
  slipway freeze demo 'n*'")]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, nodes) = self.chosen.open(context)?;
        warn_of_hosts_network(&running.lab, &nodes);
        let done = Done::to_nodes(("freeze", "frozen"), &["frozen"], &running, &nodes, self.dry_run)?;
        done.make(context, || parts::give(context, &running, &Order::Freeze { nodes }).map(drop))
    }
}
