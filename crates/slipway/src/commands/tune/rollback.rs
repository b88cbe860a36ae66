//! `slipway tune rollback`

use serde::Serialize;
use slipway_host::setting::{Fate, Key, Machine, Outcome, TunedProfile, rollback, tuned_profile, unpersist};

use super::{Place, cell, left};
use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Restore the values from before `slipway tune apply`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The journal says what each value was. A setting that somebody else changed
meanwhile stays as it is: the command names it, and ends with exit code 1.
--force restores the former value all the same.

After a crash in the middle of `apply`, the command restores the settings that
had changed. After a reboot, values that no file set again are gone anyway.

Examples:
  slipway tune rollback --dry-run
  slipway tune rollback
  slipway tune rollback 'nic eth0 mtu'        this setting alone")]
pub(super) struct Args {
    /// Settings to restore [default: all]
    #[arg(value_name = "SETTING")]
    settings: Vec<Key>,
    /// Restore settings too that somebody else changed meanwhile, and remove edited files
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Answer {
    outcomes: Vec<Outcome>,
    /// The standing of Slipway's profile of tuned.
    tuned: Option<TunedProfile>,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let mut journal = self.place.journal()?;
        for key in &self.settings {
            if !journal.entries().iter().any(|entry| entry.key == *key) {
                let account =
                    format!("restore {key}: Slipway has not changed it\nHint: `slipway tune status` lists settings");
                return Err(Failure::usage(account));
            }
        }
        let chosen = |key: &Key| self.settings.is_empty() || self.settings.contains(key);
        if self.dry_run.dry_run {
            let entries: Vec<_> = journal.entries().iter().filter(|entry| chosen(&entry.key)).collect();
            context.answer(&entries, |entries| {
                let lines = entries.iter().map(|entry| format!("would restore {} to {}\n", entry.key, entry.former));
                lines.collect::<Vec<_>>().concat()
            })?;
            return Ok(Exit::Success);
        }
        let outcomes = rollback(&mut Machine, &mut journal, self.force, |entry| chosen(&entry.key))?;
        unpersist(&mut journal, self.place.root(), self.force)?;
        let left = left(&outcomes);
        let tuned = tuned_profile(&journal, self.place.root());
        context.answer(&Answer { outcomes, tuned }, text)?;
        if left.is_empty() {
            return Ok(Exit::Success);
        }
        let account = format!(
            "restore {}\nHint: `slipway tune status` shows the values; --force restores what somebody else changed",
            view::listed(&left)
        );
        Err(Failure::new(Exit::Failed, &account))
    }
}

fn text(answer: &Answer) -> String {
    if answer.outcomes.is_empty() {
        return "nothing to restore\n".to_owned();
    }
    let note = match answer.tuned {
        Some(TunedProfile::Lost) => "tuned is told to use the profile slipway, which is gone: choose another with `tuned-adm profile`\n",
        Some(TunedProfile::Active) => "tuned uses the profile slipway: `tuned-adm profile slipway` reads it again\n",
        Some(TunedProfile::Written) | None => "",
    };
    view::table(
        ["SETTING", "FOUND", "FORMER", ""],
        answer.outcomes.iter().map(|Outcome { key, former, found, fate }| {
            let fate = match fate {
                Fate::Restored => "restored".to_owned(),
                Fate::Already => "was so already".to_owned(),
                Fate::Rebooted => "the reboot had undone the change".to_owned(),
                Fate::Gone => "the device or parameter is gone".to_owned(),
                Fate::Drifted => "left: somebody else changed it".to_owned(),
                Fate::Failed(why) => format!("failed to {why}"),
            };
            [key.to_string(), cell(found.as_deref().unwrap_or_default()), cell(former), fate]
        }),
    ) + note
}
