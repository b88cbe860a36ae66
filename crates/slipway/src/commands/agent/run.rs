//! `slipway agent run`

use slipway_agent::keys::Keys;

use crate::exit::Exit;
use crate::failure::Failure;

/// Exit code of a machine that is not reached, as ssh's.
const UNREACHED: Exit = Exit::Program(255);

/// Execute a command of Slipway on a machine
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Standard input, output and error are the command's, and so is the exit code.
255: the machine is not reached.

Examples:
  slipway agent run n1 slipway ps
  slipway agent run n1 slipway down --all")]
pub(super) struct Args {
    /// Machine, as the file of machines names it
    #[arg(value_name = "MACHINE")]
    machine: String,
    /// `slipway`, and its words
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl Args {
    pub(super) fn run(self, keys: &Keys) -> Result<Exit, Failure> {
        let ran = slipway_agent::run(keys, &self.machine, &self.command);
        ran.map(Exit::Program).map_err(|error| Failure::from(error).with_exit(UNREACHED))
    }
}
