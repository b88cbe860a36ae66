//! `slipway man`: for packagers, hidden.

use std::fs;
use std::path::PathBuf;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Write the manual pages of slipway and its subcommands
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder; it is made where it is missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let folder = &self.folder;
        let write = || {
            fs::create_dir_all(folder)?;
            clap_mangen::generate_to((context.command)().disable_help_subcommand(true), folder)
        };
        write().map_err(Failure::io(format!("write manual pages in {}", folder.display())))?;
        Ok(Exit::Success)
    }
}
