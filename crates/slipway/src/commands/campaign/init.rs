//! `slipway campaign init` and `slipway campaign schema`

use std::path::PathBuf;

use crate::commands::init::{Kind, write};
use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;

/// Write a campaign file with comments to start from
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file to write
    #[arg(default_value = "campaign.yaml")]
    file: PathBuf,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let kind = Kind {
            usual: "campaign.yaml",
            text: slipway_campaign::example(),
            init: "slipway campaign init",
            next: "slipway campaign run",
        };
        write(context, self.file, self.dry_run, &kind)
    }
}

/// Print the JSON Schema of campaign files, for editors
#[derive(Debug, clap::Args)]
pub(super) struct Schema {}

impl Schema {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let Self {} = self;
        context.answer(&slipway_campaign::json_schema(), |schema| format!("{schema:#}\n"))?;
        Ok(Exit::Success)
    }
}
