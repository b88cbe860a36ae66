//! `slipway save`

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::Serialize;
use slipway_image::{Saved, receive, save};
use slipway_document::units::Bytes;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parts::{Elsewhere, option};
use crate::{labs, view};

/// Longest line of a result from another machine, bytes.
const LONGEST_RESULT: u64 = 4096;

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
    /// Write to standard output: the result as a line, then the archive, in the form that its name says
    #[arg(long, hide = true)]
    to_output: bool,
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
        let own = |file: &Path| -> Result<Saved, Failure> {
            Ok(save(running.upper(index)?.as_fd(), &running.furnished(index), file, self.max_size)?)
        };
        if self.to_output {
            return to_output(&answer.file, own);
        }
        let mut options = option("--max-size", self.max_size.map(|most| most.to_string()));
        options.push("--to-output".into());
        let saved = match Elsewhere::find(&running, index, "save", options)? {
            Some(elsewhere) => from_elsewhere(&elsewhere, &answer.file, self.max_size)?,
            None => own(&answer.file)?,
        };
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

/// Saves in a folder of its own, and writes all to standard output once it is whole.
fn to_output(name: &Path, own: impl FnOnce(&Path) -> Result<Saved, Failure>) -> Result<Exit, Failure> {
    let says = || Failure::io("write the archive to standard output");
    let folder = tempfile::tempdir().map_err(Failure::io("make a folder for the archive"))?;
    let file = folder.path().join(name.file_name().unwrap_or_default());
    let saved = own(&file)?;
    let mut out = io::stdout().lock();
    let line = serde_json::to_string(&saved).map_err(|error| says()(error.into()))?;
    let written = writeln!(out, "{line}").and_then(|()| io::copy(&mut File::open(&file)?, &mut out));
    written.and_then(|_| out.flush()).map_err(says())?;
    Ok(Exit::Success)
}

/// Takes what [`to_output`] writes on the node's machine.
fn from_elsewhere(elsewhere: &Elsewhere<'_>, file: &Path, most: Option<Bytes>) -> Result<Saved, Failure> {
    let lost = || Failure::io(format!("take the archive from machine {}", elsewhere.machine()));
    let name = file.file_name().unwrap_or_default().to_owned();
    let mut there = elsewhere.command([name]).stdout(Stdio::piped()).spawn().map_err(lost())?;
    let mut from = BufReader::new(there.stdout.take().expect("it is piped"));
    let mut line = String::new();
    from.by_ref().take(LONGEST_RESULT).read_line(&mut line).map_err(lost())?;
    receive(&mut from, file, most, || {
        if !there.wait().map_err(lost())?.success() {
            return Err(lost()(io::Error::other("it did not save it")));
        }
        serde_json::from_str(&line).map_err(|error| lost()(error.into()))
    })
}
