//! `slipway heal`


use super::cut::places;
use slipway_lab::scenario::{LinkAction, Order};
use crate::context::{Context, DryRun};
use crate::done::Done;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{parts, targets};

/// Heal links that were cut
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway heal [OPTIONS] [LAB] [TARGET]...",
    after_help = "\
Other conditions of the links stay. Without a target the command heals all cut
links of the lab.

Examples:
  slipway heal demo n1:eth0
  slipway heal demo"
)]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs), then nodes, groups or patterns, also as n1:eth0
    #[arg(value_names = ["LAB", "TARGET"], num_args = 0..)]
    words: Vec<String>,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, words) = targets::lab_and_words(&context.root, &self.words)?;
        let interfaces = if words.is_empty() {
            let cut = running.links()?.interfaces.into_iter().filter(|interface| interface.cut);
            cut.map(|interface| (interface.node, interface.slot)).collect()
        } else {
            places(&running, words)?
        };
        let done = Done::to_links(("heal", "healed"), false, &running, &interfaces, self.dry_run)?;
        done.make(context, || Ok(parts::give(context, &running, &Order::from(LinkAction::Heal { interfaces }))?.connections))
    }
}
