//! `slipway pause`, and what it shares with `slipway resume`.

use serde::Serialize;
use slipway_engine::scenario::{Folder, Knock};

use crate::context::Context;
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
}

#[derive(Serialize)]
struct Asked {
    lab: String,
    action: Knock,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        knock(context, self.lab.as_deref(), Knock::Pause, "paused")
    }
}

/// Asks the player of a lab for something.
pub(super) fn knock(context: &Context, lab: Option<&str>, action: Knock, participle: &str) -> Result<Exit, Failure> {
    let running = labs::running(&context.root, lab)?;
    Folder::of(running.dir()).knock(action)?;
    let asked = Asked { lab: running.lab.name, action };
    context.tell(&asked, |asked| format!("{participle} the scenario of lab {}\n", asked.lab))?;
    Ok(Exit::Success)
}
