//! `slipway doctor`

mod machines;

use serde::Serialize;
use slipway_engine::facts::{Check, Facts, Verdict};
use slipway_lab::model::DriverWord;
use slipway_document::units::Bytes;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Report the abilities of this machine, and how to add those that it lacks
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command changes nothing. The exit code is 0 where labs can run at all. With
drivers named it is 3 where one of them is missing, and with --strict where
anything is.

Examples:
  slipway doctor
  slipway doctor ovs vxlan      does this machine run these drivers?
  slipway doctor --strict       for scripts that prepare a machine
  slipway doctor --machines 'a,b[1-3]'   several machines, and the way between them
  slipway doctor --machines lab.yaml     those of a lab file

With --machines it compares versions and clocks, and sends packets from each
machine to each other: to the UDP port of tunnels (4789), in several sizes. A
firewall that drops them is found, and named with the port.")]
pub(crate) struct Args {
    /// Network drivers to require: host, bridge, ovs, macvlan, vxlan, sriov, fast
    #[arg(value_name = "DRIVER")]
    drivers: Vec<DriverWord>,
    /// Require everything
    #[arg(long)]
    strict: bool,
    /// Several machines: NAME, USER@NAME, NAME[1-4] or NAME=ADDRESS, or those of a lab file
    #[arg(long, value_name = "LIST|LAB.yaml", conflicts_with = "drivers")]
    machines: Option<String>,
}

#[derive(Serialize)]
struct Answer {
    facts: Facts,
    checks: Vec<Check>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        if let Some(word) = &self.machines {
            return machines::run(context, word, self.strict);
        }
        let facts = Facts::gather();
        let answer = Answer { checks: facts.checks(), facts };
        context.answer(&answer, text)?;
        let fails = |check: &&Check| match check.verdict {
            Verdict::Good => false,
            Verdict::Partial => self.strict || self.drivers.iter().any(|driver| check.subject == format!("driver {driver}")),
            Verdict::Missing => true,
        };
        let failing: Vec<&str> =
            answer.checks.iter().filter(fails).map(|check| check.subject.as_str()).collect();
        if failing.is_empty() {
            return Ok(Exit::Success);
        }
        Err(Failure::new(Exit::Unable, &format!("find all that is needed on this machine: {}", failing.join(", "))))
    }
}

fn text(answer: &Answer) -> String {
    let Facts { kernel, architecture, system, processor, cpus, memory, .. } = &answer.facts;
    let machine = view::facts(&[
        ("machine", format!("{system}, Linux {kernel}, {architecture}")),
        ("", format!("{processor}, {}, {}", view::count(*cpus, "processor"), view::size(Bytes(*memory)))),
    ]);
    let checks = answer.checks.iter().map(line);
    format!("{machine}\n{}", checks.collect::<String>())
}

/// A check, with its hint.
fn line(Check { subject, verdict, found, hint }: &Check) -> String {
    let mark = if *verdict == Verdict::Good { '✔' } else { '✘' };
    let hint = hint.as_ref().map_or_else(String::new, |hint| format!("\n      Hint: {}", indented(hint)));
    format!("{mark} {subject}: {}{hint}\n", indented(found))
}

fn indented(text: &str) -> String {
    text.trim().replace('\n', "\n      ")
}
