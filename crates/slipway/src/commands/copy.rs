//! `slipway copy`

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Serialize;
use slipway_engine::copy::{Bounds, Copied, Way, into, out_of};
use slipway_engine::exec::{Entry, Launcher};
use slipway_document::units::{Bytes, Seconds};

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::meter::{Meter, Progress};
use crate::parts::Elsewhere;
use crate::{labs, view};

/// Copy files and folders into a node or out of it
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "cp",
    after_help = "\
One side is in a node: LAB:NODE:PATH, or NODE:PATH where one lab runs. A folder
goes with its content into the destination where that is a folder, else it
becomes the destination. Symbolic links stay links. Copies belong to the caller
outside, to root inside. They keep permissions, times and holes, and lose
set-user-id bits. A warning counts sockets, FIFOs and devices, which stay out.

A node is not trusted. Its data goes only to the path that you name. The command
follows no symbolic link on the way there, and ends a copy from a node that
sends without end, or nothing.

Units of --max-size: B, KiB, MiB, GiB; of --patience: ms, s, min

Examples:
  slipway copy input.dat demo:n1:/scratch/
  slipway copy demo:n1:/scratch/results ./results-n1
  slipway copy n1:/etc/hosts .                        where one lab runs"
)]
pub(crate) struct Args {
    /// The file or folder to copy
    #[arg(value_name = "SOURCE")]
    from: String,
    /// The file or folder to copy to
    #[arg(value_name = "DESTINATION")]
    to: String,
    /// Greatest size of a copy out of a node [default: nine tenths of the free space at the destination]
    #[arg(long, value_name = "SIZE")]
    max_size: Option<Bytes>,
    /// End after this time with next to no data
    #[arg(long, value_name = "TIME", default_value = "30s")]
    patience: Seconds,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Answer {
    from: String,
    to: String,
    /// `None` with --dry-run.
    copied: Option<Copied>,
}

/// A side of the copy.
enum Place {
    Here(PathBuf),
    Node { words: Vec<String>, path: PathBuf },
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (inside, outside, inwards) = match (Place::read(&self.from), Place::read(&self.to)) {
            (Place::Node { words, path }, Place::Here(here)) => ((words, path), here, false),
            (Place::Here(here), Place::Node { words, path }) => ((words, path), here, true),
            (Place::Here(_), Place::Here(_)) => {
                return Err(Failure::usage("copy: neither side is in a node\nHint: write one as LAB:NODE:PATH, as in demo:n1:/tmp"));
            }
            (Place::Node { .. }, Place::Node { .. }) => {
                return Err(Failure::usage("copy: both sides are in nodes\nHint: copy out of the one, then into the other"));
            }
        };
        let (words, path) = inside;
        let (running, node) = labs::node(&context.root, &words)?;
        let mut answer = Answer { from: self.from, to: self.to, copied: None };
        if self.dry_run.dry_run {
            context.answer(&answer, |answer| format!("would copy {} to {}\n", answer.from, answer.to))?;
            return Ok(Exit::Success);
        }
        let launcher = Launcher::new().map_err(Failure::io("prepare to start programs"))?;
        let elsewhere = Elsewhere::find(&running, node, "exec", Vec::new())?;
        let (entry, there);
        let way = if let Some(elsewhere) = &elsewhere {
            there = |argv: Vec<OsString>| elsewhere.command(std::iter::once("--".into()).chain(argv));
            Way::There(&running.lab.nodes[node].name, &there)
        } else {
            entry = Entry::to(&running, node)?;
            Way::Here(&launcher, &entry)
        };
        let mut meter = Meter::new(&context.global);
        let mut show = |done, total| meter.show(Progress::Copy { done, total });
        let bounds = Bounds { most: self.max_size, patience: self.patience.duration() };
        let copied = if inwards {
            into(way, &outside, &path, bounds, &mut show)
        } else {
            out_of(way, &path, &outside, bounds, &mut show)
        };
        meter.finish();
        let copied = copied?;
        if copied.skipped > 0 {
            tracing::warn!("left out {}: sockets, FIFOs and devices are not copied", view::count(copied.skipped, "file"));
        }
        if !inwards && copied.outward > 0 {
            tracing::warn!(
                "{} out of the copy: look before a program follows one",
                if copied.outward == 1 { "a symbolic link leads".to_owned() } else { format!("{} symbolic links lead", copied.outward) }
            );
        }
        answer.copied = Some(copied);
        context.tell(&answer, |_| {
            format!("copied {} ({})\n", view::count(copied.entries, "file"), view::size(Bytes(copied.bytes)))
        })?;
        Ok(Exit::Success)
    }
}

impl Place {
    /// `LAB:NODE:PATH` and `NODE:PATH` are in a node. A path of this machine that looks like one is written `./a:b`.
    fn read(word: &str) -> Self {
        let is_name = |part: &&str| !part.is_empty() && !part.contains('/');
        let mut parts = word.splitn(3, ':');
        let words: Vec<&str> = parts.by_ref().take(2).collect();
        match (words.as_slice(), parts.next()) {
            ([lab, node], Some(path)) if labs::is_file(lab) || is_name(lab) && is_name(node) => {
                Self::Node { words: vec![(*lab).to_owned(), (*node).to_owned()], path: path.into() }
            }
            ([node, path], None) if is_name(node) && !labs::is_file(node) => {
                Self::Node { words: vec![(*node).to_owned()], path: path.into() }
            }
            _ => Self::Here(word.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_side_is_in_a_node() {
        let read = |word| match Place::read(word) {
            Place::Here(path) => format!("here {}", path.display()),
            Place::Node { words, path } => format!("{} {}", words.join("/"), path.display()),
        };
        assert_eq!(read("demo:n1:/tmp/x"), "demo/n1 /tmp/x");
        assert_eq!(read("n1:/tmp/x"), "n1 /tmp/x");
        assert_eq!(read("demo:n1:/a:b"), "demo/n1 /a:b");
        assert_eq!(read("./lab.yaml:n1:/x"), "./lab.yaml/n1 /x");
        for here in ["file", "./a:b", "/a:b", "."] {
            assert_eq!(read(here), format!("here {here}"));
        }
    }
}
