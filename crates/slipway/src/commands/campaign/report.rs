//! `slipway campaign report`

use std::path::PathBuf;

use serde_json::json;
use slipway_study::campaign::report;

use super::Which;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Write a page with pictures of a campaign: one HTML file
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Results over time, the time of workers, and for each output its values, its
scatter against each variable, and how much each variable matters. The page needs
no network, and each of its pictures has a table. It is made from the campaign's
folder alone, also while the campaign runs.

Examples:
  slipway campaign report                    report.html in the campaign's folder
  slipway campaign report --out page.html study.yaml")]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// The file to write [default: report.html in the campaign's folder]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        let file = self.out.unwrap_or_else(|| study.folder().join("report.html"));
        let page = report::page(&study)?;
        std::fs::write(&file, page).map_err(Failure::io(format!("write {}", file.display())))?;
        let answer = json!({"campaign": study.campaign.name, "report": file});
        context.tell(&answer, |_| format!("wrote {}\n", file.display()))?;
        Ok(Exit::Success)
    }
}
