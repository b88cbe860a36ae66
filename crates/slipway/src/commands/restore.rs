//! `slipway restore`

use serde::Serialize;
use slipway_engine::scenario;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, view};

/// Make links and limits of a lab what its file says
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Takes back all that `slipway set`, `cut`, `partition` and `freeze` or a scenario
have changed. If the process that carries frames has died, another takes its
place. A scenario whose player was killed is over then.

Examples:
  slipway restore demo
  slipway restore demo --nodes      nodes that are stopped or dead are started")]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs)
    lab: Option<String>,
    /// Start nodes that are stopped or dead
    #[arg(long)]
    nodes: bool,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Restored {
    lab: String,
    /// Nodes whose limits had been changed.
    limits: Vec<String>,
    /// Nodes that were frozen.
    thawed: Vec<String>,
    /// Nodes that were stopped or dead.
    started: Vec<String>,
    /// A scenario that had been interrupted is over.
    scenario: bool,
    dry_run: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let running = labs::running(&context.root, self.lab.as_deref())?;
        let dry_run = self.dry_run.dry_run;
        let done = if dry_run { scenario::Restored::default() } else { scenario::restore(&running, self.nodes)? };
        let names = |nodes: &[usize]| labs::names(&running.lab, nodes);
        let restored = Restored {
            lab: running.lab.name.clone(),
            limits: names(&done.limits),
            thawed: names(&done.thawed),
            started: names(&done.started),
            scenario: done.scenario,
            dry_run,
        };
        context.tell(&restored, |restored| match dry_run {
            true if self.nodes => format!("would restore lab {} and start its nodes\n", restored.lab),
            true => format!("would restore lab {}\n", restored.lab),
            false => text(restored),
        })?;
        Ok(Exit::Success)
    }
}

fn text(restored: &Restored) -> String {
    let mut parts = vec!["links".to_owned()];
    for (nodes, what) in [(&restored.limits, "limits of"), (&restored.thawed, "thawed"), (&restored.started, "started")]
    {
        if !nodes.is_empty() {
            parts.push(format!("{what} {}", view::count(nodes.len(), "node")));
        }
    }
    format!("restored lab {}: {}\n", restored.lab, parts.join(", "))
}
