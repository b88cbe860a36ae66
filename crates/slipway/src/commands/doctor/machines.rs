//! `slipway doctor --machines`: several machines, and the network between them.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use slipway_engine::facts::{Check, Verdict};
use slipway_lab::model::Machine;
use slipway_machines::batch;
use slipway_machines::doctor::{Findings, Patient, look};
use slipway_machines::rsh::Rsh;

use super::line;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;

/// Looks at the machines of a lab file, or at those that a list names.
pub(super) fn run(context: &Context, word: &str, strict: bool) -> Result<Exit, Failure> {
    let machines = named(word)?;
    let number = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::from(since.subsec_nanos()));
    let number = (number << 32) | u64::from(std::process::id());
    let findings = look(&Rsh::from_env()?, &machines, number);
    context.answer(&findings, text)?;
    let fails = |check: &&Check| check.verdict == Verdict::Missing || (strict && check.verdict == Verdict::Partial);
    let failing = findings.checks().filter(fails).count();
    if failing == 0 {
        return Ok(Exit::Success);
    }
    Err(Failure::new(Exit::Unable, &format!("find all that labs over these machines need: {failing} of the lines above say why")))
}

fn named(word: &str) -> Result<Vec<Machine>, Failure> {
    let is_file = Path::new(word).extension().is_some_and(|end| end == "yaml" || end == "yml");
    if !is_file {
        return batch::machines(batch::named(word).map_err(Failure::usage)?).map_err(Failure::usage);
    }
    let lab = labs::read(Some(Path::new(word)))?;
    if lab.machines.is_empty() {
        let hint = "Hint: write `machines:` in it, or name machines: `--machines a,b`";
        return Err(Failure::usage(format!("find machines in {word}: it has none\n{hint}")));
    }
    Ok(lab.machines.iter().cloned().collect())
}

fn text(findings: &Findings) -> String {
    let of_machine = |Patient { machine, address, checks }: &Patient| {
        format!("machine {machine} ({address})\n{}\n", checks.iter().map(line).collect::<String>())
    };
    let mut text: String = findings.machines.iter().map(of_machine).collect();
    if !findings.ways.is_empty() {
        text.push_str("from machine to machine\n");
        text.extend(findings.ways.iter().map(|way| line(&way.check)));
    }
    text
}
