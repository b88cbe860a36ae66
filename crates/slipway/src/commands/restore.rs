//! `slipway restore`

use serde::{Deserialize, Serialize};
use slipway_engine::scenario;
use slipway_lab::id::NodeId;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, parts, view};

/// Reset links and limits of a lab to its file
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command takes back all changes by `slipway set`, `cut`, `partition`, `freeze`
or a scenario. If the process that carries frames has died, it starts another.
It ends a scenario whose player was killed.

Examples:
  slipway restore demo
  slipway restore demo --nodes      start stopped and dead nodes too")]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs)
    lab: Option<String>,
    /// Start nodes that are stopped or dead
    #[arg(long)]
    nodes: bool,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize, Deserialize)]
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
        let names = |nodes: &[NodeId]| labs::names(&running.lab, nodes);
        let mut restored = Restored {
            lab: running.lab.name.clone(),
            limits: names(&done.limits),
            thawed: names(&done.thawed),
            started: names(&done.started),
            scenario: done.scenario,
            dry_run,
        };
        if !dry_run {
            let words = [&["restore", &running.lab.name][..], if self.nodes { &["--nodes"] } else { &[] }].concat();
            for (_, part) in parts::answers::<Restored>(context, &running.lab, &words)? {
                restored.add(part);
            }
        }
        context.tell(&restored, |restored| match dry_run {
            true if self.nodes => format!("would restore lab {} and start its nodes\n", restored.lab),
            true => format!("would restore lab {}\n", restored.lab),
            false => text(restored),
        })?;
        Ok(Exit::Success)
    }
}

impl Restored {
    /// Adds another machine's part.
    fn add(&mut self, part: Self) {
        self.limits.extend(part.limits);
        self.thawed.extend(part.thawed);
        self.started.extend(part.started);
        self.scenario |= part.scenario;
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
