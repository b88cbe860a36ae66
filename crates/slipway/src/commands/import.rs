//! `slipway import`

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use slipway_platform::{self as platform, ImportError, Platform};

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;

/// Make a lab file of a SimGrid or Distem platform
#[derive(Debug, clap::Args)]
#[command(after_help = "\
SimGrid's XML of version 4 becomes nodes on one network: processor time by the
hosts' speeds, delays and rates by the routes. Distem's JSON becomes the same
nodes, networks, addresses, conditions and limits. The command reports parts
without a counterpart, also in comments at the top of the lab file.

Examples:
  slipway import platform.xml -o lab.yaml
  slipway import saved.json -o lab.yaml && slipway up lab.yaml
  slipway import platform.xml | less         where no matrix is needed")]
pub(crate) struct Args {
    /// A platform: SimGrid's XML, or the JSON that Distem saves
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// simgrid (XML) or distem (JSON) [default: by its content]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<Format>,
    /// Write the lab file here instead of to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// SimGrid's XML
    Simgrid,
    /// Distem's JSON
    Distem,
}

#[derive(Serialize)]
struct Imported {
    /// `None` where it went into a file.
    lab: Option<String>,
    file: Option<PathBuf>,
    /// A file beside the lab's that it names.
    matrix: Option<PathBuf>,
    /// How things were taken that are not the same in a lab.
    notes: Vec<String>,
    /// Parts of the platform without a counterpart in a lab.
    lost: Vec<String>,
    dry_run: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let shown = self.file.display().to_string();
        let text = fs::read_to_string(&self.file).map_err(|error| {
            let hint = match error.kind() {
                std::io::ErrorKind::NotFound => "\nHint: check the path",
                std::io::ErrorKind::InvalidData => "\nHint: a platform is XML or JSON in UTF-8",
                _ => "",
            };
            Failure::usage(format!("read the platform {shown}: {error}{hint}"))
        })?;
        let name = self.file.file_name().map_or_else(|| shown.clone(), |name| name.to_string_lossy().into_owned());
        let beside = self.output.as_deref().map(|output| output.with_extension("delays.csv"));
        let matrix = beside.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let matrix = matrix.as_deref().unwrap_or("delays.csv");
        let platform = match self.format {
            None => platform::import(&name, &text, matrix),
            Some(Format::Simgrid) => platform::from_simgrid(&name, &text, matrix),
            Some(Format::Distem) => platform::from_distem(&name, &text),
        };
        let Platform { text, matrix, notes, lost } = platform.map_err(|error| match error {
            ImportError::Wrong(errors) => Failure::from(errors),
            ImportError::Lab(error) => Failure::new(Exit::Failed, &error),
        })?;
        let DryRun { dry_run } = self.dry_run;
        let mut imported = Imported { lab: None, file: self.output, matrix: None, notes, lost, dry_run };
        if let (Some(file), Some(beside)) = (imported.file.clone(), beside) {
            let write = |path: &Path, text: &str| {
                let written = if dry_run { Ok(()) } else { fs::write(path, text) };
                written.map_err(Failure::io(format!("write {}", path.display())))
            };
            if let Some(matrix) = matrix {
                write(&beside, &matrix)?;
                imported.matrix = Some(beside);
            }
            write(&file, &text)?;
            told(context, &imported.lost);
            let verb = if dry_run { "would write" } else { "wrote" };
            context.tell(&imported, |imported| match &imported.matrix {
                Some(matrix) => format!("{verb} {} and {}\n", file.display(), matrix.display()),
                None => format!("{verb} {}\n", file.display()),
            })?;
            return Ok(Exit::Success);
        }
        if matrix.is_some() {
            return Err(Failure::usage(format!(
                "write the lab of {shown}: its delays go into a file beside it\nHint: name the lab file, as in `-o lab.yaml`"
            )));
        }
        imported.lab = Some(text);
        told(context, &imported.lost);
        context.answer(&imported, |imported| imported.lab.clone().unwrap_or_default())?;
        Ok(Exit::Success)
    }
}

/// Says on standard error what was lost, for it matters to who trusts the lab.
pub(crate) fn told(context: &Context, lost: &[String]) {
    if !context.global.json {
        for lost in lost {
            eprintln!("lost: {lost}");
        }
    }
}
