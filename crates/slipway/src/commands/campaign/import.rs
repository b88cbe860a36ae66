//! `slipway campaign import`

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use slipway_openstudio::{Files, ImportError, Imported, Note, read, read_workflow};

use crate::context::{Context, DryRun};
use crate::events::say;
use crate::exit::Exit;
use crate::failure::Failure;

/// Most files of an analysis that are looked for; with more, none is.
const MOST: usize = 100_000;
/// Deepest folder of them.
const DEEPEST: usize = 12;

/// Make a campaign of an OpenStudio analysis or workflow
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An analysis (OSA, JSON) becomes a campaign file, a workflow (workflow.osw) and,
where no design has its points, a list of them (points.csv). They are written
beside the analysis, since they name its measures, seed model and weather file.
The command says which parts the campaign has otherwise. It refuses an analysis
that cannot be a campaign, with the place of each reason, and writes nothing.

Examples:
  slipway campaign import analysis.json && slipway campaign run
  slipway campaign import analysis.json point-1.json point-2.json
  slipway campaign import workflow.osw -o retrofit.yaml
  slipway campaign import --dry-run analysis.json")]
pub(super) struct Args {
    /// An analysis (JSON) or a workflow (OSW)
    file: PathBuf,
    /// Data points, or batches of them (JSON)
    points: Vec<PathBuf>,
    /// The campaign file to write, in the folder of the analysis [default: campaign.yaml there]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Written {
    /// The campaign file and those beside it.
    files: Vec<PathBuf>,
    /// The campaign file's text.
    campaign: String,
    /// Parts that the campaign has otherwise, or not at all.
    changes: Vec<Note>,
    dry_run: bool,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let folder = self.file.parent().unwrap_or(Path::new("")).to_owned();
        let output = self.output.unwrap_or_else(|| folder.join("campaign.yaml"));
        if output.parent().unwrap_or(Path::new("")) != folder {
            return Err(Failure::usage(format!(
                "write {}: a campaign names the analysis' files from beside them\nHint: name a file in the folder of {}",
                output.display(),
                self.file.display()
            )));
        }
        let text = text(&self.file)?;
        let name = self.file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let made = if self.file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("osw")) {
            read_workflow(&name, &text)
        } else {
            let data_points = self.points.iter().map(|path| self::text(path)).collect::<Result<_, _>>()?;
            read(&text, &Files { names: names(&folder), data_points })
        };
        let Imported { campaign, files, changes, .. } = made.map_err(|error: ImportError| {
            Failure::usage(format!("import {}: {error}", self.file.display()))
        })?;
        for note in &changes {
            say(&context.global, &format!("otherwise: {note}"));
        }
        let DryRun { dry_run } = self.dry_run;
        let files: Vec<(PathBuf, String)> = std::iter::once((output.clone(), campaign.clone()))
            .chain(files.into_iter().map(|(name, text)| (folder.join(name), text)))
            .collect();
        if let Some((path, _)) = files.iter().find(|(path, _)| path.exists()) {
            return Err(Failure::new(
                Exit::Failed,
                &format!("write {}: it is there already\nHint: it stays as it is; move it, or remove it", path.display()),
            ));
        }
        let written = Written { files: files.iter().map(|(path, _)| path.clone()).collect(), campaign, changes, dry_run };
        if dry_run {
            context.answer(&written, |written| written.campaign.clone())?;
            return Ok(Exit::Success);
        }
        for (path, text) in &files {
            let file = OpenOptions::new().write(true).create_new(true).open(path);
            file.and_then(|mut file| file.write_all(text.as_bytes()))
                .map_err(Failure::io(format!("write {}", path.display())))?;
        }
        context.tell(&written, |written| {
            let names: Vec<String> = written.files.iter().map(|path| path.display().to_string()).collect();
            format!("wrote {}\ntry: slipway campaign run {}\n", names.join(", "), output.display())
        })?;
        Ok(Exit::Success)
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => "\nHint: check the path",
            ErrorKind::InvalidData => "\nHint: files of OpenStudio are JSON in UTF-8",
            _ => "",
        };
        Failure::usage(format!("read {}: {error}{hint}", path.display()))
    })
}

/// Paths of all files in a folder; none where there are too many.
fn names(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let start = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut open = vec![(start.to_owned(), String::new(), 0)];
    while let Some((path, prefix, depth)) = open.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().filter_map(Result::ok) {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if names.len() + open.len() > MOST {
                return BTreeSet::new();
            }
            if entry.path().is_dir() && depth < DEEPEST {
                open.push((entry.path(), format!("{name}/"), depth + 1));
            } else {
                names.insert(name);
            }
        }
    }
    names
}
