//! `slipway resume`

use slipway_engine::scenario::Knock;

use super::pause::knock;
use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;

/// Let a scenario go on that `slipway pause` holds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A scenario whose player was killed goes on with `slipway play LAB --resume`.

Examples:
  slipway resume demo")]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs)
    lab: Option<String>,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        knock(context, self.lab.as_deref(), Knock::Resume, ("resume", "resumed"), self.dry_run)
    }
}
