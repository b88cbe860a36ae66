//! `slipway agent`

mod key;
mod run;
mod serve;

use std::path::PathBuf;

use slipway_agent::AgentError;
use slipway_agent::keys::{FOLDER, Keys};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Reach other machines over mutual TLS, in the place of ssh
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each machine has a key, and a file of the machines that it knows: `machines` in
the folder, the same on all. A line is NAME ADDRESS[:PORT] KEY. A machine whose
key is in the file may have any command of Slipway executed, as root may over
ssh. Nothing else is executed, and nobody else is let in.

SLIPWAY_RSH='slipway agent run' has all commands go that way.

Examples:
  slipway agent key >> keys                   on each machine: its public key
  echo 'n1 192.0.2.1 6dd7…' >> /etc/slipway/agent/machines
  slipway agent serve                         on each machine, or by systemd:
  systemctl enable --now slipway-agent
  slipway agent run n1 slipway ps             try it
  SLIPWAY_RSH='slipway agent run' slipway up wide.yaml")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// Folder of this machine's key, and of the file of machines
    #[arg(long, value_name = "FOLDER", default_value = FOLDER, global = true)]
    folder: PathBuf,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Let the machines of the file execute commands of Slipway here
    Serve(serve::Args),
    /// Print this machine's public key, which is made where it is missing
    Key,
    /// Execute a command of Slipway on a machine
    Run(run::Args),
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let keys = Keys::of(self.folder);
        match self.what {
            What::Serve(args) => args.run(context, keys),
            What::Key => key::run(context, &keys),
            What::Run(args) => args.run(&keys),
        }
    }
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        Self::new(Exit::Failed, &error)
    }
}
