//! `slipway pause`, and what it shares with `slipway resume`.

use serde::Serialize;
use slipway_engine::protocol::{Operation, Pause, PlayerRequest};
use slipway_engine::scenario::Folder;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;

/// Stop the clock of a scenario that plays
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Conditions stay; no event becomes due until `slipway resume`.

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
    action: &'static str,
    dry_run: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        ask(context, self.lab.as_deref(), Pause {}, ("pause", "paused"), self.dry_run)
    }
}

/// Asks the player of a lab for something.
pub(super) fn ask<O: Operation<Service = PlayerRequest, Reply = ()>>(
    context: &Context,
    lab: Option<&str>,
    operation: O,
    (verb, participle): (&'static str, &str),
    DryRun { dry_run }: DryRun,
) -> Result<Exit, Failure> {
    let running = labs::running(&context.root, lab)?;
    if running.lab.machines.len() > 1 {
        return Err(Failure::usage(format!(
            "{verb} a scenario over several machines: each plays by its own clock, and no word stops all at the same time\nHint: Ctrl-C ends the scenario on all machines"
        )));
    }
    let folder = Folder::of(running.dir());
    let asked = Asked { lab: running.lab.name.clone(), action: verb, dry_run };
    if dry_run {
        folder.need_player()?;
        context.answer(&asked, |asked| format!("would {verb} the scenario of lab {}\n", asked.lab))?;
    } else {
        folder.ask(operation)?;
        context.tell(&asked, |asked| format!("{participle} the scenario of lab {}\n", asked.lab))?;
    }
    Ok(Exit::Success)
}
