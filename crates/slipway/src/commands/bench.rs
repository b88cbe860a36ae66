//! `slipway bench`

mod disk;
mod path;
mod serve;
mod transfer;

use std::fmt::Write as _;
use std::path::PathBuf;

use slipway_document::units::Seconds;
use slipway_measure::record::Measurement;
use slipway_study::Event;
use slipway_study::bench::transfer::COST;
use slipway_study::bench::{self, Done, Plan, Subject};

use crate::context::{self, Context, DryRun};
use crate::events::say;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Measure a disk, a path or transfers against the limit, and what was saturated
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each value of an option is a way; several are compared. Rounds take all ways in turn, in an order drawn from the seed.
The first way is the limit, and ratios are to it, paired by round, with bootstrap 95 % intervals. The kernel's counters
say for each way which resource was saturated.

Examples:
  slipway bench disk /data --size 4GiB
  slipway bench disk /data --block 16KiB,256KiB,1MiB,16MiB --mode direct
  slipway bench tcp lab n1 n2 --buffer 256KiB,4MiB --streams 1,4
  slipway bench tcp lab n1 n2 --congestion all
  slipway bench udp lab n1 n2 --mtu 1500,9000
  slipway bench transfer lab n1 n2 --data /data/set --into /data/in
  slipway bench serve                          on the other machine
  slipway bench tcp --peer 192.0.2.7           and here
  slipway bench tcp lab n1 n2 --json | jq '.saturated[] | {way, words}'")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Disk(disk::Args),
    Tcp(path::Tcp),
    Udp(path::Udp),
    Transfer(transfer::Args),
    Serve(serve::Args),
}

/// Repetition and results, of every benchmark.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Rounds and results")]
struct Rounds {
    /// Rounds that count
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Rounds before them that do not count
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    warm_up: u32,
    /// Seed of the order within rounds
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// End each program after this time
    #[arg(long, default_value = "10min", value_name = "TIME")]
    timeout: Seconds,
    /// New folder for records.jsonl, summary.json and report.html [default: slipway-results/bench-…-TIME]
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self.what {
            What::Disk(args) => args.run(context),
            What::Tcp(args) => args.run(context),
            What::Udp(args) => args.run(context),
            What::Transfer(args) => args.run(context),
            What::Serve(args) => args.run(context),
        }
    }
}

/// Takes a benchmark, and answers.
fn take(context: &Context, subject: Subject, rounds: Rounds) -> Result<Exit, Failure> {
    let Rounds { repeat, warm_up, seed, timeout, out, dry_run } = rounds;
    let output = context::output(out.as_deref());
    let timeout = timeout.duration();
    let plan = Plan { subject, repeat, warm_up, seed, timeout, output, command: context::words() };
    if dry_run.dry_run {
        context.answer(&bench::describe(&plan)?, |lines| {
            format!("would measure, in each of {} rounds:\n{}\n", warm_up + repeat, lines.join("\n"))
        })?;
        return Ok(Exit::Success);
    }
    let done = bench::run(&plan, &mut |event| news(context, &event))?;
    context.answer(&done, text)?;
    Ok(if done.failed { Exit::Failed } else { Exit::Success })
}

/// Tells of a measurement.
pub(super) fn news(context: &Context, event: &Event<'_>) {
    if let Event::Measured { rounds, measurement: Measurement { round, job, driver, seconds, error, .. } } = event {
        let news = error.as_ref().map_or_else(|| format!("{seconds:.1} s"), |why| format!("failed to {why}"));
        say(&context.global, &format!("round {round}/{rounds}: {job}, {driver}: {news}"));
    }
}

fn text(done: &Done) -> String {
    let mut text = String::new();
    let summary = &done.summary;
    for figure in summary.figures.iter().filter(|figure| figure.headline || figure.name == COST) {
        let headings = ["way", "n", "median", "95 % interval", "of limit", "95 % interval", "saturated"];
        let rows = figure.rows.iter().map(|row| {
            let mut cells = figure.cells(row, &summary.baseline);
            let found = summary.saturated.iter().find(|one| (&one.way, &one.figure) == (&row.driver, &figure.name));
            cells[6] = found.map_or_else(|| "-".to_owned(), |found| found.bottleneck.words.clone());
            cells
        });
        let _ = writeln!(text, "{} ({})\n{}", figure.name, figure.unit, view::table(headings, rows));
    }
    let _ = writeln!(text, "limit: {}", done.limit);
    for refused in &done.refused {
        let _ = writeln!(text, "refused: {}: {}", refused.way, refused.why);
    }
    let folder = done.folder.display();
    let _ = writeln!(text, "report: {folder}/report.html\nrecords: {folder}/records.jsonl");
    text
}

/// Whole seconds, at least one, as the measuring programs take them.
pub(super) fn whole(time: Seconds) -> u16 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
    let seconds = time.0.ceil().clamp(1.0, 3600.0) as u16;
    seconds
}

/// The values of a list, each once.
fn distinct<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}
