//! `slipway schema`

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Print the JSON Schema of lab files, for editors
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  slipway schema > lab.schema.json
Then, as a lab file's first line, for editors with yaml-language-server:
  # yaml-language-server: $schema=lab.schema.json")]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let Self {} = self;
        let schema = slipway_lab::json_schema();
        context.answer(&schema, |schema| format!("{schema:#}\n"))?;
        Ok(Exit::Success)
    }
}
