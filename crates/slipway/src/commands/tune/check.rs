//! `slipway tune check`

mod text;

use std::path::PathBuf;

use clap::ValueEnum;
use slipway_document::units::{Rate, Seconds};
use slipway_host::check::{Checked, Target, Verdict, check};
use slipway_host::facts::Facts;
use slipway_host::rules::Profile;

use super::Where;
use super::rules::load;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Say what is wrong for moving data, why, and what a change would gain
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Nothing is changed. Advice with the largest effect comes first. `slipway tune rules RULE`
shows where an advice comes from, and for which kernels it holds.

The exit code is 0; with --strict it is 5 where anything is advised, or rules
are in conflict.

Units of --rtt: us, ms, s; of --rate: mbit, gbit

Examples:
  slipway tune check --rtt 80ms --rate 10gbit --profile dtn
  slipway tune check --all                     with what is good, and why not
  slipway tune check --rules /etc/our-rules    with rules of your own
  slipway tune check --json | jq -r '.advices[] | select(.verdict == \"advised\") | .rule'")]
pub(crate) struct Args {
    #[command(flatten)]
    aim: Aim,
    #[command(flatten)]
    place: Where,
    /// Show what is good and what does not apply, too
    #[arg(long)]
    all: bool,
    /// Exit with 5 where anything is advised
    #[arg(long)]
    strict: bool,
}

/// The path and the use that rules are asked for.
#[derive(Debug, clap::Args)]
pub(super) struct Aim {
    /// Round-trip time of the path [default: 100ms for dtn, 30ms for server, 1ms for hpc]
    #[arg(long, value_name = "TIME")]
    rtt: Option<Seconds>,
    /// Rate that transfers are to reach [default: that of the fastest link]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Use of the machine
    #[arg(long, value_enum, default_value_t = Use::Dtn)]
    profile: Use,
    /// Add the rules of a folder
    #[arg(long, value_name = "FOLDER")]
    rules: Option<PathBuf>,
}

/// The use of a machine, as a word of the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Use {
    /// Transfers over long paths
    Dtn,
    /// Programs that compute together
    Hpc,
    /// Any server that moves much data
    Server,
}

impl Aim {
    /// Holds a machine against the rules.
    pub(super) fn check(&self, place: &Where) -> Result<Checked, Failure> {
        self.look(place).map(|(_, checked)| checked)
    }

    /// Holds a machine against the rules, and gives its facts too.
    fn look(&self, place: &Where) -> Result<(Facts, Checked), Failure> {
        let rules = load(self.rules.as_ref())?;
        let facts = Facts::gather(&place.open()?);
        let profile = match self.profile {
            Use::Dtn => Profile::Dtn,
            Use::Hpc => Profile::Hpc,
            Use::Server => Profile::Server,
        };
        let target = Target {
            profile,
            rtt: self.rtt.map_or_else(|| profile.usual_rtt(), |Seconds(rtt)| rtt),
            rate: self.rate.map_or_else(|| Target::usual_rate(&facts), |Rate(rate)| rate as f64),
        };
        let checked = check(&facts, &rules, &target);
        Ok((facts, checked))
    }

    /// The parts of the path that the caller did not give.
    fn assumed(&self, facts: &Facts) -> Vec<String> {
        let links = facts.nics.iter().any(|nic| nic.speed.known().is_some());
        let rate = if links { "the rate of the fastest link (--rate)" } else { "a rate, since no link tells its own (--rate)" };
        let rtt = "a usual round-trip time (--rtt)";
        [self.rtt.is_none().then_some(rtt), self.rate.is_none().then_some(rate)]
            .into_iter()
            .flatten()
            .map(str::to_owned)
            .collect()
    }
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (facts, checked) = self.aim.look(&self.place)?;
        let assumed = self.aim.assumed(&facts);
        context.answer(&checked, |checked| text::text(&facts, checked, &assumed, self.all))?;
        let is_good = checked.count(Verdict::Advised) == 0 && checked.conflicts.is_empty();
        Ok(if is_good || !self.strict { Exit::Success } else { Exit::Strained })
    }
}
