//! `slipway tune status`

use std::fmt::Write as _;

use serde::Serialize;
use slipway_host::setting::{Drift, Machine, Standing, drift};

use super::{Place, cell};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Show settings that Slipway changed, and whether they are so still
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command changes nothing. With --strict the exit code is 5 where a setting is
no longer as Slipway set it.

Examples:
  slipway tune status
  slipway tune status --strict       for a monitor of drift")]
pub(super) struct Args {
    /// Fail with exit code 5 where a value differs
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Serialize)]
struct Answer {
    settings: Vec<Drift>,
    /// Files that set values again after a reboot.
    files: Vec<String>,
    /// The machine was started again since the settings changed.
    rebooted: bool,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let journal = self.place.journal()?;
        let files =
            journal.files().iter().map(|file| self.place.root().join(&file.path).display().to_string()).collect();
        let rebooted = journal.is_of_an_earlier_boot() && !journal.entries().is_empty();
        let answer = Answer { settings: drift(&Machine, &journal), files, rebooted };
        context.answer(&answer, text)?;
        let kept = answer.settings.iter().all(|drift| drift.standing == Standing::Kept);
        Ok(if self.strict && !kept { Exit::Strained } else { Exit::Success })
    }
}

fn text(answer: &Answer) -> String {
    if answer.settings.is_empty() && answer.files.is_empty() {
        return "Slipway has changed no setting\n".to_owned();
    }
    let mut text = view::table(
        ["SETTING", "FORMER", "SET", "IS", ""],
        answer.settings.iter().map(|Drift { entry, is, standing }| {
            let set = entry.pending.as_ref().or(entry.wrote.as_ref());
            let standing = match standing {
                Standing::Kept => "as set",
                Standing::Unfinished => "a command ended in the middle",
                Standing::Former => "the former value is back",
                Standing::Drifted => "somebody else changed it",
                Standing::Gone => "the device or parameter is gone",
                Standing::Unknown => "the kernel does not tell",
            };
            let set = cell(set.map_or("", String::as_str));
            let is = cell(is.as_deref().unwrap_or_default());
            [entry.key.to_string(), cell(&entry.former), set, is, standing.to_owned()]
        }),
    );
    for file in &answer.files {
        let _ = writeln!(text, "after a reboot: {file}");
    }
    if answer.rebooted {
        text.push_str("the machine was started again since; `slipway tune rollback` closes the journal\n");
    }
    text
}
