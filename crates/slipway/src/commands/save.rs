//! `slipway save`

use std::os::fd::AsFd as _;
use std::path::PathBuf;

use serde::Serialize;
use slipway_image::{Saved, save};
use slipway_document::units::Bytes;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, view};

/// Save a node's changes to its file system as a new image
#[derive(Debug, clap::Args)]
#[command(override_usage = "slipway save [OPTIONS] [LAB] <NODE> <ARCHIVE>", after_help = "\
The image has the files that the node wrote, changed and deleted. In a lab file
its `base` is the image of the node. Bind mounts, /scratch, /tmp, /run and /dev
are not of the root and stay out. So do the files that each node has from its
lab: /etc/hosts, /etc/hostname, /etc/resolv.conf. For a picture of one moment,
freeze the node first.

Examples:
  slipway save demo n1 built.tar.zst
and then in a lab file:
  images:
    built: {path: built.tar.zst, base: host}")]
pub(crate) struct Args {
    /// Lab (name or file) and node; the node alone where one lab runs; then the archive: .tar.zst, .tar.gz or .tar
    #[arg(value_names = ["LAB", "NODE", "ARCHIVE"], num_args = 2..=3, required = true)]
    words: Vec<String>,
    /// Greatest size of the archive [default: nine tenths of the free space there]
    #[arg(long, value_name = "SIZE")]
    max_size: Option<Bytes>,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Answer {
    lab: String,
    node: String,
    base: String,
    file: PathBuf,
    /// `None` with --dry-run.
    saved: Option<Saved>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (archive, words) = self.words.split_last().expect("clap asks for two or three");
        let (running, index) = labs::node(&context.root, words)?;
        let node = &running.lab.nodes[index];
        let mut answer = Answer {
            lab: running.lab.name.clone(),
            node: node.name.clone(),
            base: running.lab.images[node.image].name.clone(),
            file: archive.into(),
            saved: None,
        };
        let shown = answer.file.display().to_string();
        if self.dry_run.dry_run {
            context.answer(&answer, |answer| format!("would save what {} changed in {shown}\n", answer.node))?;
            return Ok(Exit::Success);
        }
        let saved = save(running.upper(index)?.as_fd(), &running.furnished(index), &answer.file, self.max_size)?;
        answer.saved = Some(saved);
        context.tell(&answer, |answer| {
            format!(
                "saved {} ({}) in {shown}\ntry, in a lab file: images: {{new: {{path: {shown}, base: {}}}}}\n",
                view::count(saved.entries, "change"),
                view::size(Bytes(saved.bytes)),
                answer.base,
            )
        })?;
        Ok(Exit::Success)
    }
}
