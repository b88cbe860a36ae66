//! `slipway init`

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use serde::Serialize;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;

/// Write a lab file with comments to start from
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command never overwrites a file.

Examples:
  slipway init                write slipway.yaml
  slipway init mylab.yaml     write another
  slipway init --dry-run      show what would be written")]
pub(crate) struct Args {
    /// The file to write
    #[arg(default_value = "slipway.yaml")]
    file: PathBuf,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Written {
    file: PathBuf,
    text: &'static str,
    dry_run: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let kind = Kind { usual: "slipway.yaml", text: slipway_lab::template(), init: "slipway init", next: "slipway up" };
        write(context, self.file, self.dry_run, &kind)
    }
}

/// A kind of file to start from.
pub(super) struct Kind {
    /// The name that commands look for.
    pub(super) usual: &'static str,
    /// The file's text.
    pub(super) text: &'static str,
    /// The command that writes it.
    pub(super) init: &'static str,
    /// The command to try then.
    pub(super) next: &'static str,
}

/// Writes a file that is not there yet.
pub(super) fn write(context: &Context, file: PathBuf, dry_run: DryRun, kind: &Kind) -> Result<Exit, Failure> {
    let written = Written { file, text: kind.text, dry_run: dry_run.dry_run };
    if written.dry_run {
        context.answer(&written, |written| written.text.to_owned())?;
        return Ok(Exit::Success);
    }
    let shown = written.file.display();
    let file = OpenOptions::new().write(true).create_new(true).open(&written.file);
    file.and_then(|mut file| file.write_all(written.text.as_bytes())).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AlreadyExists => {
                format!("\nHint: it stays as it is; give another name: `{} NAME.yaml`", kind.init)
            }
            _ => String::new(),
        };
        Failure::new(Exit::Failed, &format!("write {shown}: {error}{hint}"))
    })?;
    let argument = if written.file.as_os_str() == kind.usual { String::new() } else { format!(" {shown}") };
    context.tell(&written, |_| format!("wrote {shown}\ntry: {}{argument}\n", kind.next))?;
    Ok(Exit::Success)
}
