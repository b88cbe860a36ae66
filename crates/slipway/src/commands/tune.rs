//! `slipway tune`

mod apply;
mod check;
mod facts;
mod record;
mod rollback;
mod rules;
mod status;
mod trial;
mod wanted;

use std::path::{Path, PathBuf};

use slipway_host::facts::Source;
use slipway_host::setting::{Journal, Life, Outcome, State};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Hold a machine against rules for moving data, set it up, and undo it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
`check` changes nothing. Its advice depends on the path: give the round-trip
time and the rate that transfers are to reach.

Settings have names such as `sysctl net.core.rmem_max`, `nic eth0 ring-rx`,
`nic eth0 feature rx-gro`, `block sda readahead` and `cpu governor`.

Slipway notes each former value on disk before it changes the setting. In a
container, or in a network namespace of its own, it changes only what belongs
to that: `net.ipv4` and other parameters of a namespace, and its interfaces.

Examples:
  slipway tune check --rtt 80ms --rate 10gbit --profile dtn
  slipway tune rules tcp-receive-buffer   one rule, its reason and its source
  slipway tune facts                      what Slipway sees of this machine
  slipway tune record dtn7.txt            take the facts to another machine:
  slipway tune check --root dtn7.txt
  slipway tune apply 'sysctl net.core.rmem_max=67108864' --dry-run
  slipway tune apply 'sysctl net.core.rmem_max=67108864' --persist
  slipway tune try --group tcp-buffers --peer 192.0.2.7   keep what helps
  slipway tune status                     has somebody changed it since?
  slipway tune rollback                   the values of before, exactly")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Check(check::Args),
    Facts(facts::Args),
    Record(record::Args),
    Rules(rules::Args),
    Apply(apply::Args),
    Try(trial::Args),
    Rollback(rollback::Args),
    Status(status::Args),
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self.what {
            What::Check(args) => args.run(context),
            What::Facts(args) => args.run(context),
            What::Record(args) => args.run(context),
            What::Rules(args) => args.run(context),
            What::Apply(args) => args.run(context),
            What::Try(args) => args.run(context),
            What::Rollback(args) => args.run(context),
            What::Status(args) => args.run(context),
        }
    }
}

/// The machine that a command is about.
#[derive(Debug, clap::Args)]
struct Where {
    /// Another machine: a folder with its files, or what `slipway tune record` wrote
    #[arg(long, value_name = "PATH")]
    root: Option<PathBuf>,
}

impl Where {
    fn open(&self) -> Result<Source, Failure> {
        Ok(match &self.root {
            Some(path) => Source::open(path)?,
            None => Source::machine()?,
        })
    }
}

/// Where the journal is, and files that set values again after a reboot.
#[derive(Debug, clap::Args)]
struct Place {
    /// Folder of the journal
    #[arg(long, value_name = "DIR", default_value = "/var/lib/slipway/tune")]
    state: PathBuf,
    /// Root of the file system with `etc`, for files that outlive a reboot
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

impl Place {
    fn root(&self) -> &Path {
        self.root.as_deref().unwrap_or(Path::new("/"))
    }

    /// The journal, locked.
    fn journal(&self) -> Result<Journal, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::new(
                Exit::Unable,
                &"open the journal of settings: that takes root\nHint: `sudo slipway tune …`",
            ));
        }
        let now = Life::now().map_err(Failure::io("read the machine's boot ID"))?;
        Ok(Journal::open(State::open(&self.state)?, now)?)
    }
}

/// Names of the settings that a rollback did not restore.
fn left(outcomes: &[Outcome]) -> Vec<String> {
    outcomes.iter().filter(|outcome| !outcome.is_done()).map(|outcome| outcome.key.to_string()).collect()
}

/// A value in a column of a table.
fn cell(value: &str) -> String {
    const WIDEST: usize = 40;
    match value.chars().count() {
        0 => "-".to_owned(),
        length if length > WIDEST => value.chars().take(WIDEST - 1).chain(['…']).collect(),
        _ => value.to_owned(),
    }
}
