//! `slipway campaign logs|export|verify|gc`

use std::path::PathBuf;

use serde_json::json;
use slipway_document::text::printable;
use slipway_document::units::Bytes;
use slipway_results::objects::unpack;
use slipway_study::campaign::{CampaignError, results, tables};

use super::Which;
use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

fn nothing_kept(point: u64) -> Failure {
    Failure::new(
        Exit::NotFound,
        &format!(
            "find files of point {point}: the campaign keeps none of it\nHint: `keep: all` in the campaign file keeps files of all points, `keep: failures` those of the failed"
        ),
    )
}

/// Print the output of a point's program
#[derive(Debug, clap::Args)]
pub(super) struct Logs {
    /// The point
    point: u64,
    #[command(flatten)]
    which: Which,
}

impl Logs {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        let (storage, manifest) = results::files(&study, self.point)?.ok_or_else(|| nothing_kept(self.point))?;
        let read = |name| -> Result<String, Failure> {
            let bytes = results::file(storage.as_ref(), &manifest, name)?.unwrap_or_default();
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (output, error) = (read("slipway.stdout")?, read("slipway.stderr")?);
        context.answer(&json!({"point": self.point, "stdout": output, "stderr": error}), |_| {
            let gap = if output.is_empty() || output.ends_with('\n') { "" } else { "\n" };
            printable(&format!("{output}{gap}{error}"))
        })?;
        Ok(Exit::Success)
    }
}

/// Write the files of a point to a new folder
#[derive(Debug, clap::Args)]
pub(super) struct Export {
    /// The point
    point: u64,
    /// The folder
    folder: PathBuf,
    #[command(flatten)]
    which: Which,
}

impl Export {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        let (storage, manifest) = results::files(&study, self.point)?.ok_or_else(|| nothing_kept(self.point))?;
        std::fs::create_dir(&self.folder)
            .map_err(Failure::io(format!("make folder {}", self.folder.display())))?;
        let bytes = unpack(storage.as_ref(), &manifest, &self.folder).map_err(CampaignError::from)?;
        let answer = json!({"point": self.point, "folder": self.folder, "bytes": bytes});
        context.tell(&answer, |_| format!("wrote {}\n", self.folder.display()))?;
        Ok(Exit::Success)
    }
}

/// Compare queue, results, files and tables of a campaign
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every result is one of a point that is done, every point that is done has one,
each file of a result is in storage with the content that its name says, and tables
have the queue's values.

Examples:
  slipway campaign verify
  slipway campaign verify --again     points with damaged results run again")]
pub(super) struct Verify {
    #[command(flatten)]
    which: Which,
    /// Drop results that are damaged, and have their points run again
    #[arg(long)]
    again: bool,
}

/// Remove files that no result names
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Files of attempts whose results came too late stay in storage, and so do those of
results that `verify --again` dropped. No coordinator may run the campaign.")]
pub(super) struct Gc {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Gc {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        let dry_run = self.dry_run.dry_run;
        let swept = results::collect(&study, dry_run)?;
        let (objects, bytes) = (swept.objects, swept.bytes);
        let answer =
            json!({"campaign": study.campaign.name, "objects": objects, "bytes": bytes, "dry_run": dry_run});
        context.tell(&answer, |_| {
            let verb = if dry_run { "would remove" } else { "removed" };
            format!("{verb} {}, {}\n", view::count(objects, "object"), view::size(Bytes(bytes)))
        })?;
        Ok(Exit::Success)
    }
}

impl Verify {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        let mut faults = results::verify(&study)?;
        // Before results are dropped, since the next query alone takes them from the tables.
        let wrong = tables::verify(&study).map_err(CampaignError::from)?;
        let fault = |tables::TableFault { file, what }| results::Fault { point: None, what: format!("{file}: {what}") };
        faults.extend(wrong.into_iter().map(fault));
        let again = if self.again { results::redo(&study, &faults)? } else { 0 };
        context.answer(&json!({"campaign": study.campaign.name, "faults": faults, "again": again}), |_| {
            let line = |fault: &results::Fault| match fault.point {
                Some(point) => format!("point {point}: {}\n", fault.what),
                None => format!("{}\n", fault.what),
            };
            match faults.len() {
                0 => "queue, results, files and tables agree\n".to_owned(),
                count => {
                    let next = match (again, faults.iter().any(|fault| fault.point.is_some())) {
                        (0, false) => String::new(),
                        (0, true) => "; `slipway campaign verify --again` has these points run again".to_owned(),
                        _ => format!("; {} will run again", view::count(again, "point")),
                    };
                    let lines: String = faults.iter().map(line).collect();
                    format!("{lines}{}{next}\n", view::count(count, "fault"))
                }
            }
        })?;
        Ok(if faults.is_empty() { Exit::Success } else { Exit::Failed })
    }
}
