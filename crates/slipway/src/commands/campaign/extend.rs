//! `slipway campaign extend`

use serde_json::json;

use super::Which;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Give a campaign more points; those that it has stay as they are
#[derive(Debug, clap::Args)]
#[command(after_help = "\
SIZE is the new size in the design's own unit: generations of nsga2, spea2 and pso,
trajectories of morris, base samples of saltelli, points of the others. Grids, one
at a time and fast have no extension. The campaign must not run meanwhile.

Examples:
  slipway campaign extend 40       then `slipway campaign run` goes on")]
pub(super) struct Args {
    /// The new size
    size: u64,
    #[command(flatten)]
    which: Which,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?.extended(self.size)?;
        let points = study.plan.len();
        context.tell(&json!({"campaign": study.campaign.name, "points": points}), |_| {
            format!("{} now; `slipway campaign run` goes on\n", view::count(points, "point"))
        })?;
        Ok(Exit::Success)
    }
}
