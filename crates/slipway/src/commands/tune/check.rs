//! `slipway tune check`

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;
use slipway_document::units::{Rate, Seconds};
use slipway_host::check::{Advice, Checked, Target, Verdict, check};
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
Nothing is changed. What changes most comes first. `slipway tune rules RULE`
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
        Ok(check(&facts, &rules, &target))
    }
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let checked = self.aim.check(&self.place)?;
        context.answer(&checked, |checked| text(checked, self.all))?;
        let is_good = checked.count(Verdict::Advised) == 0 && checked.conflicts.is_empty();
        Ok(if is_good || !self.strict { Exit::Success } else { Exit::Strained })
    }
}

fn text(checked: &Checked, all: bool) -> String {
    let Target { profile, rtt, rate, .. } = &checked.target;
    let flight = checked.target.bdp() / 1_048_576.0;
    let mut text = format!(
        "profile {}: {} Gbit/s over {} ms, {flight:.1} MiB in flight\n",
        profile.name(),
        rate / 1e9,
        rtt * 1e3,
    );
    section(&mut text, checked, Verdict::Advised, "advised", advised);
    if !checked.conflicts.is_empty() {
        text.push_str("\nrules in conflict\n");
        for conflict in &checked.conflicts {
            let _ = writeln!(
                text,
                "  {}: {} wants `{}`, which {} does not accept",
                conflict.key, conflict.rule, conflict.want, conflict.against
            );
        }
    }
    section(&mut text, checked, Verdict::CannotTell, "cannot tell", reason);
    if all {
        section(&mut text, checked, Verdict::Good, "good", good);
        section(&mut text, checked, Verdict::NotApplicable, "does not apply", reason);
    }
    let count = |verdict| checked.count(verdict);
    let _ = writeln!(
        text,
        "\n{} advised, {} good, {} cannot tell, {} not for this machine or use",
        count(Verdict::Advised),
        count(Verdict::Good),
        count(Verdict::CannotTell),
        count(Verdict::NotApplicable),
    );
    if count(Verdict::Advised) > 0 {
        text.push_str("Hint: `slipway tune rules RULE` gives the source of an advice\n");
    }
    text
}

/// Advices of one verdict, by group. The group of the advice that changes most comes first; one rule's advices on many like
/// things are one.
fn section(text: &mut String, checked: &Checked, verdict: Verdict, heading: &str, show: fn(&Advice, &str) -> String) {
    let advices: Vec<&Advice> = checked.advices.iter().filter(|advice| advice.verdict == verdict).collect();
    let mut groups: Vec<&str> = Vec::new();
    for advice in &advices {
        if !groups.contains(&advice.group.as_str()) {
            groups.push(&advice.group);
        }
    }
    if !groups.is_empty() {
        let _ = write!(text, "\n{heading}\n");
    }
    for group in groups {
        let _ = writeln!(text, "  {group}");
        let mut shown: Vec<(&Advice, Vec<String>)> = Vec::new();
        for advice in advices.iter().filter(|advice| advice.group == group) {
            let same = |(other, _): &&mut (&Advice, Vec<String>)| {
                other.rule == advice.rule && other.want == advice.want && other.reason == advice.reason
            };
            match shown.iter_mut().find(same) {
                Some((_, subjects)) => subjects.push(advice.subject.clone()),
                None => shown.push((advice, vec![advice.subject.clone()])),
            }
        }
        for (advice, subjects) in shown {
            let subjects = if subjects.len() > 3 {
                format!("{} and {} more", subjects[0], subjects.len() - 1)
            } else {
                subjects.join(", ")
            };
            text.push_str(&show(advice, &subjects));
        }
    }
}

fn value(value: Option<&String>) -> &str {
    value.map_or("?", String::as_str)
}

fn advised(advice: &Advice, subjects: &str) -> String {
    let (is, want) = (value(advice.is.as_ref()), value(advice.want.as_ref()));
    let what = advice.key.as_ref().map_or_else(|| advice.title.clone(), ToString::to_string);
    let on = if subjects == "machine" || advice.key.is_some() && !subjects.contains(" and ") && !subjects.contains(", ") {
        String::new()
    } else {
        format!(" ({subjects})")
    };
    let by_hand = if advice.key.is_some() { String::new() } else { format!("      By hand: {}\n", advice.how) };
    format!(
        "    {}: {what}{on}\n      {is} → {want}\n      {} Gain: {}. Risk: {}.\n{by_hand}",
        advice.rule, advice.why, advice.gain, advice.risk
    )
}

fn good(advice: &Advice, subjects: &str) -> String {
    format!("    {}: {} ({subjects})\n", advice.rule, value(advice.is.as_ref()))
}

fn reason(advice: &Advice, subjects: &str) -> String {
    format!("    {}: {} ({subjects})\n", advice.rule, value(advice.reason.as_ref()))
}
