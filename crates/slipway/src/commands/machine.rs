//! `slipway machine`: this machine's part of labs over several machines. Coordinators start it; users do not.

use std::io::{BufReader, stdin, stdout};
use std::os::fd::{AsFd as _, BorrowedFd};

use nix::sys::signal::Signal;
use slipway_machines::input::Input;
use slipway_sys::signals::{ENDING, Taken, ignore};

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
    /// Serve the part of a job instead, by messages and streams of programs
    #[arg(long)]
    job: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        labs::need_privilege()?;
        // A batch system warns all processes of a job alike (`sbatch --signal`). The warning is for programs in nodes, and
        // the lab outlives it.
        ignore(&[Signal::SIGUSR1, Signal::SIGUSR2]).map_err(Failure::io("ignore signals"))?;
        if self.job {
            let own = |descriptor: BorrowedFd<'_>| descriptor.try_clone_to_owned();
            let pipes = own(stdin().as_fd()).and_then(|input| Ok((input, own(stdout().as_fd())?)));
            let (input, output) = pipes.map_err(Failure::io("take standard input and output"))?;
            slipway_engine::job::serve(&context.root, input, output)?;
            return Ok(Exit::Success);
        }
        let served = if self.player {
            slipway_machines::play::part::player(&context.root, &mut BufReader::new(stdin()), &mut stdout())
        } else {
            // A batch system signals all processes of a step at once, and kills the rest once this one has ended.
            let signals = self.stay.then(|| Taken::new(&ENDING)).transpose();
            let signals = signals.map_err(Failure::io("take signals"))?;
            let input = Input::of(stdin().as_fd()).map_err(Failure::io("take standard input"))?;
            slipway_machines::serve::serve(&context.machine()?, signals.as_ref(), input, &mut stdout())
        };
        served.map_err(Failure::io("serve a part of a lab"))?;
        Ok(Exit::Success)
    }
}
