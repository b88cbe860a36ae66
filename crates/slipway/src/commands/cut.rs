//! `slipway cut`, and what it shares with the other commands that change links and ask no more than which.

use std::collections::BTreeSet;

use serde::Serialize;
use slipway_engine::condition::{LinkAction, Place};
use slipway_engine::lab::Running;

use super::stop::changed;
use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::targets::{self, Target};
use crate::view;

/// Cut links: nothing passes any more, and nobody is told
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway cut [OPTIONS] [LAB] <TARGET>...",
    after_help = "\
A TARGET is all interfaces of a node (`n1`) or one of them (`n1:eth0`). Packets
are lost both ways, those under way too, and the interface stays up: it is as if
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
                "cut links of lab `{name}`: none is named\nHint: name nodes or interfaces, as in `slipway cut {name} n1:eth0`"
            )));
        }
        let interfaces = places(&running, words)?;
        let done = Done::new(("cut", "cut"), true, &running, &interfaces, self.dry_run)?;
        done.make(context, || Ok(running.change_links(LinkAction::Cut { interfaces })?))
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
                    "cut or heal `{word}`: a link is cut both ways, for all\nHint: one way: `slipway set '{word}' loss=100%`"
                )));
            }
        }
    }
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// What is done to which interfaces.
#[derive(Serialize)]
pub(super) struct Done {
    lab: String,
    action: &'static str,
    #[serde(skip)]
    participle: &'static str,
    interfaces: Vec<String>,
    /// Those of them that were so already.
    unchanged: Vec<String>,
    /// Connections that were on the fast path.
    ended: u64,
    dry_run: bool,
}

impl Done {
    /// `action` is a verb, `participle` what the links are afterwards; links that are `cut` to the same end stay as they are.
    pub(super) fn new(
        (action, participle): (&'static str, &'static str),
        cut: bool,
        running: &Running,
        places: &[Place],
        DryRun { dry_run }: DryRun,
    ) -> Result<Self, Failure> {
        let named = |places: &[Place]| places.iter().map(|&place| running.lab.port_name(place)).collect();
        let are_cut: BTreeSet<Place> = running
            .links()?
            .interfaces
            .iter()
            .filter(|interface| interface.cut)
            .map(|interface| (interface.node, interface.slot))
            .collect();
        let so: Vec<Place> = places.iter().copied().filter(|place| are_cut.contains(place) == cut).collect();
        let (interfaces, unchanged) = (named(places), named(&so));
        Ok(Self { lab: running.lab.name.clone(), action, participle, interfaces, unchanged, ended: 0, dry_run })
    }

    /// Does it, unless it is only to be said, and says so.
    pub(super) fn make(mut self, context: &Context, act: impl FnOnce() -> Result<u64, Failure>) -> Result<Exit, Failure> {
        let text = |done: &Self, what: &str| changed(what, &done.interfaces, &done.unchanged, &done.lab);
        if self.dry_run {
            context.answer(&self, |done| text(done, &format!("would {}", done.action)))?;
        } else {
            self.ended = act()?;
            context.tell(&self, |done| text(done, done.participle) + &view::ended(done.ended))?;
        }
        Ok(Exit::Success)
    }
}
