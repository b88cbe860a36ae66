//! `slipway restore`

use serde::Serialize;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;

/// Make all links of a lab what its file says
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Ends cuts and partitions and takes back all that `slipway set` or a scenario has
changed on links. If the process that carries frames has died, another takes its
place.

Examples:
  slipway restore demo")]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs)
    lab: Option<String>,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Restored {
    lab: String,
    dry_run: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let running = labs::running(&context.root, self.lab.as_deref())?;
        let restored = Restored { lab: running.lab.name.clone(), dry_run: self.dry_run.dry_run };
        if self.dry_run.dry_run {
            context.answer(&restored, |restored| format!("would restore the links of lab {}\n", restored.lab))?;
        } else {
            running.restore_links()?;
            context.tell(&restored, |restored| format!("restored the links of lab {}\n", restored.lab))?;
        }
        Ok(Exit::Success)
    }
}
