//! `slipway resume`

use slipway_engine::protocol::Resume;

use super::pause::ask;
use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;

/// Continue a scenario after `slipway pause`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
`slipway play LAB --resume` continues a scenario whose player was killed.

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
        ask(context, self.lab.as_deref(), Resume {}, ("resume", "resumed"), self.dry_run)
    }
}
