//! `slipway join`

use serde::Serialize;
use slipway_lab::scenario::{LinkAction, Order};

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, parts};

/// End all partitions of a lab
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Cut links stay cut (`slipway heal`).

Examples:
  slipway join demo")]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs)
    lab: Option<String>,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Joined {
    lab: String,
    dry_run: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let running = labs::running(&context.root, self.lab.as_deref())?;
        let joined = Joined { lab: running.lab.name.clone(), dry_run: self.dry_run.dry_run };
        if self.dry_run.dry_run {
            context.answer(&joined, |joined| format!("would join the nodes of lab {}\n", joined.lab))?;
        } else {
            parts::give(context, &running, &Order::from(LinkAction::Join))?;
            context.tell(&joined, |joined| format!("joined the nodes of lab {}\n", joined.lab))?;
        }
        Ok(Exit::Success)
    }
}
