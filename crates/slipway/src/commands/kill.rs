//! `slipway kill`

use clap::ValueEnum;
use slipway_lab::scenario::{Kill, Order};
use slipway_document::units::Seconds;

use super::stop::Chosen;
use crate::context::{Context, DryRun};
use crate::done::{Done, warn_of_hosts_network};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parts;

/// End nodes by a failure: graceful, soft or hard
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway kill [OPTIONS] [LAB] <NODE>...",
    after_help = "\
graceful  a shutdown: every program gets SIGTERM and the time of --grace. The
          command then ends the rest, and the kernel closes its connections
soft      a crash: the command resets connections, and ends every process at once
hard      a power failure: the links go silent first, so that no packet leaves.
          Then every process ends: peers see nothing at all

After each of them the node answers nothing and forwards nothing. On driver host
it shares its host's network, which still answers.

Files and links stay: `slipway start` brings the node back.

Examples:
  slipway kill demo n3
  slipway kill demo n1,n2 --how hard
  slipway kill demo 'n*' --how graceful --grace 1min

Units of --grace: us, ms, s, min, h"
)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// Kind of failure
    #[arg(long, value_name = "HOW", default_value = "soft")]
    how: How,
    /// Time that programs have to end, where the kind is graceful
    #[arg(long, value_name = "TIME", default_value = "5s")]
    grace: Seconds,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum How {
    Graceful,
    Soft,
    Hard,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, nodes) = self.chosen.open(context)?;
        let how = match self.how {
            How::Graceful => Kill::Graceful { grace: self.grace },
            How::Soft => Kill::Soft,
            How::Hard => Kill::Hard,
        };
        warn_of_hosts_network(&running.lab, &nodes);
        let done = Done::to_nodes(("kill", "killed"), &["stopped", "dead"], &running, &nodes, self.dry_run)?;
        done.make(context, || parts::give(context, &running, &Order::Kill { nodes, how }).map(drop))
    }
}
