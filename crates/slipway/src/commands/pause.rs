//! `slipway pause`, and what it shares with `slipway resume`.

use serde::Serialize;
use slipway_engine::scenario::{Folder, Knock};

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;

/// Hold a scenario that is being played: its clock stands still
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What has taken effect stays; nothing more happens until `slipway resume`.

Examples:
  slipway pause demo")]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs)
    lab: Option<String>,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Asked {
    lab: String,
    action: Knock,
    dry_run: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        knock(context, self.lab.as_deref(), Knock::Pause, ("pause", "paused"), self.dry_run)
    }
}

/// Asks the player of a lab for something.
pub(super) fn knock(
    context: &Context,
    lab: Option<&str>,
    action: Knock,
    (verb, participle): (&str, &str),
    DryRun { dry_run }: DryRun,
) -> Result<Exit, Failure> {
    let running = labs::running(&context.root, lab)?;
    let folder = Folder::of(running.dir());
    let asked = Asked { lab: running.lab.name.clone(), action, dry_run };
    if dry_run {
        folder.need_player()?;
        context.answer(&asked, |asked| format!("would {verb} the scenario of lab {}\n", asked.lab))?;
    } else {
        folder.knock(action)?;
        context.tell(&asked, |asked| format!("{participle} the scenario of lab {}\n", asked.lab))?;
    }
    Ok(Exit::Success)
}
