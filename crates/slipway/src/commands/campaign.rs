//! `slipway campaign`

mod best;
mod change;
mod extend;
mod files;
mod import;
mod init;
mod number;
mod prioritise;
mod query;
mod report;
mod results;
mod run;
mod serve;
mod status;
mod watch;
mod worker;

use std::path::{Path, PathBuf};

use slipway_study::campaign::Study;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Run one program at many points: designs of experiments, on workers in nodes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
CAMPAIGN is a campaign file, or the folder of a campaign that ran. Without it,
commands take campaign.yaml in this folder. State and results are in
slipway-campaigns/NAME beside the file, or in the file's `storage`.

`slipway campaign run` goes on with a campaign that was interrupted. Every point
gets one result, whatever ends meanwhile: a worker, the command, the machine.

Examples:
  slipway campaign init                      write a commented campaign.yaml
  slipway campaign run                       run it
  slipway campaign watch                     from another terminal
  slipway campaign report                    a page with pictures
  slipway campaign results > results.csv
  slipway campaign query 'select state, count(*) from points group by state'
  slipway campaign points --state failed     points that failed, and why
  slipway campaign retry --failure timeout   run these again, with all attempts")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Init(init::Args),
    Import(import::Args),
    Run(run::Args),
    Status(status::Args),
    Watch(watch::Args),
    Points(status::Points),
    Results(results::Args),
    Query(query::Args),
    Best(best::Args),
    Sensitivity(results::Sensitivity),
    Report(report::Args),
    Logs(files::Logs),
    Export(files::Export),
    Pause(change::Pause),
    Resume(change::Resume),
    Cancel(change::Cancel),
    Retry(change::Retry),
    Prioritise(prioritise::Args),
    Extend(extend::Args),
    Verify(files::Verify),
    Gc(files::Gc),
    Serve(serve::Args),
    Token(serve::Token),
    Schema(init::Schema),
    #[command(hide = true)]
    Worker(worker::Args),
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self.what {
            What::Init(args) => args.run(context),
            What::Import(args) => args.run(context),
            What::Run(args) => args.run(context),
            What::Status(args) => args.run(context),
            What::Watch(args) => args.run(context),
            What::Points(args) => args.run(context),
            What::Results(args) => args.run(context),
            What::Query(args) => args.run(context),
            What::Best(args) => args.run(context),
            What::Sensitivity(args) => args.run(context),
            What::Report(args) => args.run(context),
            What::Logs(args) => args.run(context),
            What::Export(args) => args.run(context),
            What::Pause(args) => args.run(context),
            What::Resume(args) => args.run(context),
            What::Cancel(args) => args.run(context),
            What::Retry(args) => args.run(context),
            What::Prioritise(args) => args.run(context),
            What::Extend(args) => args.run(context),
            What::Verify(args) => args.run(context),
            What::Gc(args) => args.run(context),
            What::Serve(args) => args.run(context),
            What::Token(args) => args.run(context),
            What::Schema(args) => args.run(context),
            What::Worker(args) => args.run(context),
        }
    }
}

/// The campaign that a command is about.
#[derive(Debug, clap::Args)]
struct Which {
    /// Campaign (file or folder)
    #[arg(default_value = "campaign.yaml")]
    campaign: PathBuf,
}

impl Which {
    /// The campaign as it is in its folder: the one that ran, whatever its file says meanwhile.
    fn open(&self) -> Result<Study, Failure> {
        let path = &self.campaign;
        if path.is_dir() {
            return Ok(Study::open(path)?);
        }
        Ok(Study::open(read(path)?.folder())?)
    }
}

/// Reads a campaign file.
fn read(path: &Path) -> Result<Study, Failure> {
    Ok(Study::read(path)?)
}
