//! `slipway tune record`

use std::path::PathBuf;

use serde::Serialize;
use slipway_host::facts::Facts;

use super::Where;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Record everything that the facts of a machine come from
#[derive(Debug, clap::Args)]
#[command(after_help = "\
PATH becomes a folder of files, or one text where its name ends with .txt. Look
at it before you give it away: it has the kernel's command line and the list of
mounted file systems.

Examples:
  slipway tune record dtn7.txt
  slipway tune facts --root dtn7.txt       the same facts, on any machine
  slipway tune record --root dtn7.txt dtn7 the same recording, as a folder")]
pub(crate) struct Args {
    /// Folder or file to write; it must not be there yet
    #[arg(value_name = "PATH")]
    to: PathBuf,
    #[command(flatten)]
    place: Where,
}

#[derive(Serialize)]
struct Answer {
    path: PathBuf,
    files: usize,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let source = self.place.open()?;
        let _ = Facts::gather(&source);
        let recording = source.recording();
        recording.write(&self.to)?;
        let files = recording.0.keys().filter(|path| !path.ends_with('/')).count();
        let answer = Answer { path: self.to, files };
        context.tell(&answer, |answer| {
            format!("recorded {} in {}\n", view::count(answer.files, "file"), answer.path.display())
        })?;
        Ok(Exit::Success)
    }
}
