//! `slipway campaign worker`: one worker of a campaign on a machine of a cluster. Coordinators start it; users do not.

use std::path::PathBuf;

use slipway_study::campaign::far;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;

/// Run one worker of a campaign whose coordinator is on another machine
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder of the campaign, which both machines see
    folder: PathBuf,
    /// The worker's number, from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    number: u32,
    /// Which of the worker's starts this is
    #[arg(long, value_name = "N")]
    start: u64,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let Self { folder, number, start } = self;
        if let Err(failure) = labs::need_privilege() {
            far::decline(&folder, number, start, &failure.account())?;
            return Err(failure);
        }
        far::join(&context.machine()?, &folder, number, start, &mut |_| {})?;
        Ok(Exit::Success)
    }
}
