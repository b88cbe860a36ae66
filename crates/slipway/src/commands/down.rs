//! `slipway down`

use std::time::Duration;

use serde::Serialize;
use slipway_document::units::Seconds;
use slipway_engine::lab::{Removed, down, leftovers};
use slipway_machines::away::{Away, Outcome};
use slipway_machines::rsh::Rsh;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, parts};

/// Take labs down, whatever state they are in
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command ends every process of the lab, and removes its networks and files.
Images stay for the next time. A lab that is not there is no error. The command
reports a thing that it cannot remove, and removes the rest.

Examples:
  slipway down                 the only lab there is
  slipway down demo            by name
  slipway down lab.yaml        the lab that the file names
  slipway down --all           all labs, and the remains of crashes")]
pub(crate) struct Args {
    /// Names of labs, or lab files [default: the only lab there is]
    #[arg(value_name = "LAB")]
    labs: Vec<String>,
    /// All labs, and the remains of crashes
    #[arg(short, long, conflicts_with = "labs")]
    all: bool,
    /// Time to wait for another process that holds a lab
    #[arg(long, value_name = "TIME", default_value = "30s")]
    patience: Seconds,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize, Default)]
struct Answer {
    removed: Vec<Removed>,
    absent: Vec<String>,
}

#[derive(Serialize)]
struct Planned {
    would_remove: Vec<String>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        labs::need_privilege()?;
        let names = self.names(context)?;
        if self.dry_run.dry_run {
            let known = leftovers(&context.root)?;
            let planned = Planned { would_remove: names.into_iter().filter(|name| known.contains(name)).collect() };
            context.answer(&planned, |planned| match planned.would_remove.as_slice() {
                [] => "would remove nothing: there is no such lab\n".to_owned(),
                names => format!("would remove: {}\n", names.join(", ")),
            })?;
            return Ok(Exit::Success);
        }
        let (mut answer, mut failures) = (Answer::default(), Vec::new());
        for name in names {
            // Before its part here is gone, and with it the list of machines.
            let mut there = elsewhere(context, &name, self.patience.duration())?;
            failures.extend(there.failed.iter().map(ToString::to_string));
            if !there.failed.is_empty() {
                failures.push(format!("take all of lab `{name}` down\nHint: `slipway down --all` on this machine tries again"));
            }
            let here = down(&context.root, &name, self.patience.duration());
            // Best effort: `down --all` there finds that nothing is left to do.
            if let Err(error) = there.forget(&name) {
                tracing::debug!("failed to {error}");
            }
            match here {
                Ok(Some(removed)) => answer.removed.push(removed),
                Ok(None) if there.was_there => answer.removed.push(Removed { lab: name, was_running: false }),
                Ok(None) => answer.absent.push(name),
                Err(error) => failures.push(format!("take lab `{name}` down: {error}")),
            }
        }
        context.tell(&answer, text)?;
        if failures.is_empty() { Ok(Exit::Success) } else { Err(Failure::new(Exit::Failed, &failures.join("\n"))) }
    }

    fn names(&self, context: &Context) -> Result<Vec<String>, Failure> {
        if self.all {
            let mut names = leftovers(&context.root)?;
            if !context.global.part {
                names.extend(Away::below(context.root.path()).labs().map_err(Failure::io("list labs"))?);
                names.sort_unstable();
                names.dedup();
            }
            return Ok(names);
        }
        let known = context.root.labs()?;
        match (self.labs.as_slice(), known.len()) {
            ([], 0 | 1) => Ok(known),
            ([], several) => Err(Failure::usage(format!(
                "choose a lab: there are {several}\nHint: name one of {}, or all with --all",
                known.join(", ")
            ))),
            (words, _) => words.iter().map(|word| labs::name(word)).collect(),
        }
    }
}

/// Takes the parts of a lab down that other machines have, and those that it left there earlier.
fn elsewhere(context: &Context, name: &str, patience: Duration) -> Result<Outcome, Failure> {
    let away = Away::below(context.root.path());
    // A lab of which nothing can be read has its part here removed all the same.
    let lab = context.root.lab(name).read_lab().ok();
    let others = lab.as_ref().map(|lab| parts::others(context, lab)).unwrap_or_default();
    if context.global.part || others.is_empty() && !away.knows(name) {
        return Ok(Outcome::default());
    }
    let lab = lab.as_ref().filter(|_| !others.is_empty()).map(|lab| (lab, others.as_slice()));
    away.down(&Rsh::from_env()?, name, lab, patience).map_err(Failure::io(format!("keep note of lab {name}")))
}

fn text(answer: &Answer) -> String {
    let removed = answer.removed.iter().map(|Removed { lab, was_running }| {
        if *was_running { format!("lab {lab} is down\n") } else { format!("removed what a crash had left of lab {lab}\n") }
    });
    let absent = answer.absent.iter().map(|lab| format!("lab {lab} is not there: nothing to remove\n"));
    let lines: Vec<String> = removed.chain(absent).collect();
    if lines.is_empty() { "no lab is up: nothing to remove\n".to_owned() } else { lines.concat() }
}
