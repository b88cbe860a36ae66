//! `slipway tune try`

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;
use slipway_document::units::{Bytes, Seconds};
use slipway_host::setting::{Change, Journal, Key, Machine, Plan, apply, rollback};
use slipway_study::bench::disk::{Disk, Mode};
use slipway_study::bench::path::{Ends, Path};
use slipway_study::bench::trial::{self, Outcome, Tried};
use slipway_study::bench::{self, Subject};

use super::left;
use super::wanted::{Planned, Wanted, plan_text};
use crate::commands::bench::{news, whole};
use crate::context::{self, Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Measure with and without settings in turn, and keep those that help
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each round measures once with the settings as they are and once with the new
ones, in an order drawn from the seed. The settings stay only where the interval
of the ratio lies on the better side of 1. Else they are as before.

--peer measures TCP to another machine, where `slipway bench serve` runs; --disk
measures reads and writes of a folder. Each former value is noted on disk first,
so `slipway tune rollback` undoes a trial that was killed.

Examples:
  slipway bench serve                                      on the other machine
  slipway tune try --group tcp-buffers --peer 192.0.2.7 --rtt 80ms
  slipway tune try 'sysctl net.ipv4.tcp_congestion_control=bbr' --peer 192.0.2.7
  slipway tune try 'block sda readahead=4096' --disk /data --size 4GiB
  slipway tune try --rule ring-rx --peer 192.0.2.7 --reverse --no-keep")]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Another machine, where `slipway bench serve` runs
    #[arg(long, value_name = "ADDRESS", required_unless_present = "disk", conflicts_with = "disk")]
    peer: Option<IpAddr>,
    /// A folder on a disk
    #[arg(long, value_name = "FOLDER")]
    disk: Option<PathBuf>,
    /// TCP port of the peer's server
    #[arg(long, default_value_t = 5201, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The peer sends
    #[arg(long, requires = "peer")]
    reverse: bool,
    /// Parallel streams to the peer
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    streams: u16,
    /// Size of the file on the disk
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    size: Bytes,
    /// Duration of each measurement
    #[arg(long, default_value = "3s", value_name = "TIME")]
    time: Seconds,
    /// Rounds that count
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Seed of the order within rounds
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Put the settings back whatever the result is
    #[arg(long)]
    no_keep: bool,
    /// New folder for records.jsonl, summary.json and report.html [default: slipway-results/tune-try-…-TIME]
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Answer {
    plan: Plan,
    #[serde(flatten)]
    tried: Tried,
    /// True where the settings stay.
    kept: bool,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let Planned { plan, journal, .. } = self.wanted.planned(self.dry_run.dry_run)?;
        let (Some(journal), false) = (journal, self.dry_run.dry_run) else {
            context.answer(&plan, plan_text)?;
            return Ok(Exit::Success);
        };
        if plan.changes.is_empty() {
            return Err(Failure::usage("try settings: none would change\nHint: --dry-run shows the plan"));
        }
        let earlier = |change: &&Change| journal.entries().iter().any(|entry| entry.key == change.wish.key);
        if let Some(change) = plan.changes.iter().find(earlier) {
            let account = format!(
                "try {}: Slipway has changed it already\nHint: `slipway tune rollback '{0}'` first",
                change.wish.key
            );
            return Err(Failure::usage(account));
        }
        if !self.wanted.agreed(context, &plan)? {
            return Err(Failure::new(Exit::Failed, &"change settings: the answer was no"));
        }
        let mut settings = Settings { plan, journal, on: false };
        let study = bench::Plan {
            subject: self.subject(),
            repeat: self.repeat,
            warm_up: 1,
            seed: self.seed,
            timeout: std::time::Duration::from_mins(10),
            output: context::output(self.out.as_deref()),
            command: context::words(),
        };
        let tried = trial::run(&study, &mut |on| settings.switch(on), &mut |event| news(context, &event));
        let kept = !self.no_keep && matches!(&tried, Ok(Tried { outcome: Outcome::Helps, failed: false, .. }));
        settings.switch(kept).map_err(|why| Failure::new(Exit::Failed, &why))?;
        let answer = Answer { plan: settings.plan, tried: tried?, kept };
        context.answer(&answer, text)?;
        Ok(if answer.tried.failed { Exit::Failed } else { Exit::Success })
    }

    fn subject(&self) -> Subject {
        let seconds = whole(self.time);
        if let Some(folder) = &self.disk {
            return Subject::Disk(Disk {
                folder: folder.clone(),
                size: self.size,
                blocks: vec![Bytes(1 << 20)],
                modes: vec![Mode::Synced],
                depth: 1,
                readaheads: Vec::new(),
                limit: None,
                most_seconds: seconds,
            });
        }
        // One of the two is given.
        let peer = Ends::Peer(self.peer.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)));
        Subject::Path(Path {
            streams: vec![self.streams],
            reverse: self.reverse,
            seconds,
            port: self.port,
            ..Path::plain(peer)
        })
    }
}

/// The settings that are tried, in place or not.
struct Settings {
    plan: Plan,
    journal: Journal,
    on: bool,
}

impl Settings {
    fn switch(&mut self, on: bool) -> Result<(), String> {
        if on == self.on {
            return Ok(());
        }
        if on {
            apply(&mut Machine, &mut self.journal, &self.plan).map_err(|error| error.to_string())?;
        } else {
            let is_tried = |key: &Key| self.plan.changes.iter().any(|change| change.wish.key == *key);
            let outcomes = rollback(&mut Machine, &mut self.journal, false, |entry| is_tried(&entry.key));
            let outcomes = outcomes.map_err(|error| error.to_string())?;
            let left = left(&outcomes);
            if !left.is_empty() {
                return Err(format!(
                    "restore {}\nHint: `slipway tune status` shows the values, `slipway tune rollback --force` restores them",
                    view::listed(&left)
                ));
            }
        }
        self.on = on;
        Ok(())
    }
}

fn text(answer: &Answer) -> String {
    let mut text = plan_text(&answer.plan);
    let summary = &answer.tried.summary;
    for figure in summary.figures.iter().filter(|figure| figure.headline) {
        let headings = ["settings", "n", "median", "95 % interval", "ratio", "95 % interval", "verdict"];
        let rows = figure.rows.iter().map(|row| figure.cells(row, &summary.baseline));
        let _ = writeln!(text, "{} ({})\n{}", figure.name, figure.unit, view::table(headings, rows));
    }
    let outcome = match answer.tried.outcome {
        Outcome::Helps => "the settings help",
        Outcome::Hurts => "the settings hurt",
        Outcome::Mixed => "one figure is better and another worse",
        Outcome::NoDifference => "no difference beyond noise",
        Outcome::TooFew => "too few rounds to tell: give a greater --repeat",
    };
    let now = if answer.kept {
        "they stay until the next reboot; `slipway tune apply --persist` keeps them, `slipway tune rollback` undoes them"
    } else {
        "the former values are back"
    };
    let _ = writeln!(text, "{outcome}: {now}");
    let folder = answer.tried.folder.display();
    let _ = writeln!(text, "report: {folder}/report.html\nrecords: {folder}/records.jsonl");
    text
}
