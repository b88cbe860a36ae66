//! `slipway partition`

use serde::Serialize;
use slipway_lab::scenario::{LinkAction, Order};

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, parts, targets, view};

/// Divide nodes into groups that no longer reach each other
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway partition [OPTIONS] [LAB] <GROUP> <GROUP>...",
    after_help = "\
A GROUP is nodes, groups of the lab file or patterns, as in n1,n2 or `web*`; the
word `rest` stands for all nodes that no other group names. Packets between
groups are lost; nodes in no group reach all others. Partitions add up, at most
8, until `slipway join` ends them.

Examples:
  slipway partition demo n1,n2 n3,n4
  slipway partition demo n1 rest                n1 alone"
)]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs), then the groups
    #[arg(value_names = ["LAB", "GROUP"], num_args = 1.., required = true)]
    words: Vec<String>,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Parted {
    lab: String,
    groups: Vec<Vec<String>>,
    /// Connections that were on the fast path.
    ended: u64,
    dry_run: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, words) = targets::lab_and_words(&context.root, &self.words)?;
        let lab = &running.lab;
        let is_rest = |word: &&String| word.as_str() == "rest" && lab.node("rest").is_none();
        let named = words.iter().filter(|word| !is_rest(word));
        let mut groups = named.map(|word| lab.select(&[word])).collect::<Result<Vec<_>, _>>()?;
        if words.iter().any(|word| is_rest(&word)) {
            let rest = lab.nodes.ids().filter(|node| !groups.iter().flatten().any(|named| named == node));
            groups.push(rest.collect());
        }
        if groups.len() < 2 {
            return Err(Failure::usage(format!(
                "part nodes of lab `{}`: that takes two groups or more\nHint: `{} rest` parts some from all others",
                lab.name,
                words.first().map_or("n1", String::as_str)
            )));
        }
        let said = groups.iter().map(|group| labs::names(lab, group)).collect();
        let mut parted = Parted { lab: lab.name.clone(), groups: said, ended: 0, dry_run: self.dry_run.dry_run };
        let text = |parted: &Parted| {
            let groups: Vec<String> = parted.groups.iter().map(|group| view::listed(group)).collect();
            format!("{} of lab {}\n", groups.join(" | "), parted.lab)
        };
        if self.dry_run.dry_run {
            context.answer(&parted, |parted| format!("would part {}", text(parted)))?;
        } else {
            parted.ended = parts::give(context, &running, &Order::from(LinkAction::Partition { groups }))?.connections;
            context.tell(&parted, |parted| format!("parted {}{}", text(parted), view::ended(parted.ended)))?;
        }
        Ok(Exit::Success)
    }
}
