//! `slipway shell`

use std::io::{self, IsTerminal as _};

use super::exec;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Open a shell in a node
#[derive(Debug, clap::Args)]
#[command(override_usage = "slipway shell [OPTIONS] [LAB] <NODE>", after_help = "\
The shell is bash where the node has it, else sh. It has a terminal where
standard input is one.

Examples:
  slipway shell demo n1
  slipway shell n1 < script.sh")]
pub(crate) struct Args {
    /// Lab (name or file) and node; the node alone where one lab runs
    #[arg(value_names = ["LAB", "NODE"], num_args = 1..=2, required = true)]
    words: Vec<String>,
    #[command(flatten)]
    way: exec::Way,
}

const SHELL: &str = "command -v bash >/dev/null && exec bash; exec sh";

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let argv = ["/bin/sh", "-c", SHELL].map(Into::into).to_vec();
        exec::enter(context, &self.words, argv, &self.way, io::stdin().is_terminal())
    }
}
