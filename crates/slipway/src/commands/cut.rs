//! `slipway cut`, and what it shares with the other commands that change links and ask no more than which.

use slipway_engine::condition::Place;
use slipway_engine::lab::Running;
use slipway_lab::scenario::{LinkAction, Order};

use crate::context::{Context, DryRun};
use crate::done::Done;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parts;
use crate::targets::{self, Target};

/// Cut links: nothing passes, and programs receive no error
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway cut [OPTIONS] [LAB] <TARGET>...",
    after_help = "\
A TARGET is all interfaces of a node (`n1`) or one of them (`n1:eth0`). The cut
loses packets both ways, those under way too, and the interface stays up, as if
the cable were cut somewhere behind the switch. `slipway heal` ends it.

Examples:
  slipway cut demo n1:eth0
  slipway cut demo 'n*'"
)]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs), then nodes, groups or patterns, also as n1:eth0
    #[arg(value_names = ["LAB", "TARGET"], num_args = 1.., required = true)]
    words: Vec<String>,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, words) = targets::lab_and_words(&context.root, &self.words)?;
        if words.is_empty() {
            let name = &running.lab.name;
            return Err(Failure::usage(format!(
                "cut links of lab `{name}`: no interface is named\nHint: name nodes or interfaces, as in `slipway cut {name} n1:eth0`"
            )));
        }
        let interfaces = places(&running, words)?;
        let done = Done::to_links(("cut", "cut"), true, &running, &interfaces, self.dry_run)?;
        done.make(context, || Ok(parts::give(context, &running, &Order::from(LinkAction::Cut { interfaces }))?.connections))
    }
}

/// The interfaces that words name, whole.
pub(super) fn places(running: &Running, words: &[String]) -> Result<Vec<Place>, Failure> {
    let mut places = Vec::new();
    for word in words {
        match targets::target(&running.lab, word)? {
            Target::Interfaces { nodes, interface, direction: None } => {
                places.extend(targets::interfaces(&running.lab, &nodes, interface.as_deref(), None)?);
            }
            _ => {
                return Err(Failure::usage(format!(
                    "cut or heal `{word}`: a cut is always both ways, and for all peers\nHint: one way: `slipway set '{word}' loss=100%`"
                )));
            }
        }
    }
    places.sort_unstable();
    places.dedup();
    Ok(places)
}
