//! `slipway machine`: this machine's part of labs over several machines. Coordinators start it; users do not.

use std::io::{BufReader, stdin, stdout};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;

/// Serve this machine's part of labs, by orders on standard input
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Stay for as long as the lab, and take it down on SIGTERM
    #[arg(long)]
    stay: bool,
    /// Play a part of a scenario instead
    #[arg(long)]
    player: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        labs::need_privilege()?;
        let (mut from, mut to) = (BufReader::new(stdin()), stdout());
        let served = if self.player {
            slipway_machines::play::part::player(&context.root, &mut from, &mut to)
        } else {
            slipway_machines::serve::serve(&context.machine()?, self.stay, &mut from, &mut to)
        };
        served.map_err(Failure::io("serve a part of a lab"))?;
        Ok(Exit::Success)
    }
}
