//! From the file to the campaign. Each step goes on after an error with something plausible in its place, so that all
//! errors are found.

mod baseline;
mod design;
mod engine;
mod objective;
mod output;
mod run;
mod search;
mod storage;
mod variable;
mod workers;

use std::path::{Component, Path, PathBuf};

use slipway_document::de::{self, Spanned};
use slipway_document::errors::{DocumentErrors, Report};
use slipway_document::names;
use slipway_document::tree::Tree;
use slipway_document::units::Seconds;

use crate::file::{File, Input as WrittenInput, Inputs, Program};
use crate::kind::CAMPAIGN_FILE;
use crate::model::{Attempts, Campaign, Content, Design, Input, Run, Source};

/// Most points of a design: beyond, their numbers no longer fit a table's column of whole numbers exactly.
const MOST: u64 = 1 << 40;

/// Reads a campaign file.
///
/// `file` is its name, for messages and for the campaign's own name where the file gives none. Relative paths in it are
/// resolved against `base_dir`, which should be absolute. Nothing is read from disk.
///
/// # Errors
/// Everything that is wrong with the file, at once.
pub fn parse(file: &str, text: &str, base_dir: &Path) -> Result<Campaign, DocumentErrors> {
    let mut report = Report::default();
    let campaign = Tree::parse(CAMPAIGN_FILE, text, &mut report)
        .and_then(|tree| de::read::<File>(&tree, &mut report))
        .and_then(|written| campaign(&written, file, base_dir, &mut report));
    match campaign {
        Some(campaign) if report.is_empty() => Ok(campaign),
        _ => Err(report.finish(file, text)),
    }
}

fn campaign(file: &File, file_name: &str, base_dir: &Path, report: &mut Report) -> Option<Campaign> {
    if let Some(name) = &file.campaign {
        names::check(name, report);
    }
    let variables = variable::variables(&file.variables, report);
    let baseline = baseline::baseline(file.baseline.as_ref(), &variables, report);
    let design = design::design(file.design.as_ref(), &variables, base_dir, report);
    let mut reads = engine::reads(&file.run.value);
    let outputs = output::outputs(&file.outputs, &variables, &mut reads, report);
    let objectives = objective::objectives(&file.objectives, &outputs, report);
    let constraints = objective::constraints(&file.constraints, &outputs, report);
    if let (Some(written), Design::Search(search)) = (&file.design, &design) {
        search::check(search, &objectives, &constraints, written.at, report);
    }
    let names: Vec<String> = variables.iter().map(|variable| variable.name.clone()).collect();
    let mut inputs = inputs(&file.inputs, base_dir, report);
    let env = run::environment(&file.env, &names, report);
    let run = match &file.run.value {
        Program::Engine(engines) => {
            let returned = output::returned(&outputs);
            let reports = reads.into_reports();
            engine::engine(engines, (file.run.at, file.run.whole), &names, &returned, reports, base_dir, report).map(
                |prepared| {
                    engine::add_inputs(&mut inputs, prepared.inputs, file.run.at, report);
                    Run { command: prepared.command, env, engine: Some(prepared.engine) }
                },
            )
        }
        program => {
            let command = run::command(program, file.run.at, &names, report);
            command.map(|command| Run { command, env, engine: None })
        }
    };
    let attempts = attempts(file, report);
    let workers = workers::workers(file.workers.as_ref(), base_dir, report);
    Some(Campaign {
        name: file.campaign.as_ref().map_or_else(|| names::from_file(file_name, "campaign"), |name| name.value.clone()),
        seed: file.seed.unwrap_or(0),
        inputs,
        variables,
        design,
        baseline,
        run: run?,
        outputs,
        objectives,
        constraints,
        attempts,
        workers,
        storage: storage::storage(file.storage.as_ref(), base_dir, report),
        keep: file.keep.unwrap_or_default(),
    })
}

/// A path below a point's folder.
fn inside(path: &Spanned<String>, report: &mut Report) -> PathBuf {
    let read = PathBuf::from(&path.value);
    let plain = read.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if path.value.is_empty() || !plain || path.value.contains('\0') {
        report.add(path.at, "this path leaves the point's folder", "write a relative path without `..`");
    }
    read
}

fn inputs(written: &Inputs, base_dir: &Path, report: &mut Report) -> Vec<Input> {
    let mut inputs: Vec<Input> = Vec::new();
    let mut add = |name: &Spanned<String>, path: &Spanned<String>, template, report: &mut Report| {
        let name = Spanned { value: name.value.trim_end_matches('/').to_owned(), ..name.clone() };
        if path.value.is_empty() || path.value.contains('\0') {
            report.add(path.at, "this is no path", "write the path of a file or folder");
        }
        let content = if template { Content::Template } else { Content::Same };
        let source = Source::Path(base_dir.join(&path.value));
        let input = Input { name: inside(&name, report), source, content };
        if inputs.iter().any(|other| other.name == input.name) {
            report.add(path.at, "two inputs have this name in the point's folder", "write a map with a name for each");
        }
        inputs.push(input);
    };
    match written {
        Inputs::Paths(paths) => {
            for path in paths {
                let last = path.value.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                add(&Spanned { value: last.to_owned(), ..path.clone() }, path, false, report);
            }
        }
        Inputs::Named(named) => {
            for entry in &named.0 {
                match &entry.value {
                    None => add(&entry.name, &entry.name, false, report),
                    Some(WrittenInput::Path(path)) => add(&entry.name, path, false, report),
                    Some(WrittenInput::Settings(of)) => {
                        add(&entry.name, &of.path, of.template.unwrap_or(false), report);
                    }
                }
            }
        }
    }
    inputs
}

fn attempts(file: &File, report: &mut Report) -> Attempts {
    let most = file.attempts.as_ref().map_or(3, |attempts| attempts.value);
    if let Some(attempts) = file.attempts.as_ref().filter(|attempts| !(1..=100).contains(&attempts.value)) {
        report.add(attempts.at, format!("a point cannot have {} attempts", attempts.value), "write 1 to 100");
    }
    positive(file.timeout.as_ref(), "an attempt that ends before it begins", report);
    Attempts {
        most,
        timeout: file.timeout.as_ref().map(|timeout| timeout.value),
        pause: file.pause.as_ref().map_or(Seconds(1.0), |pause| pause.value),
    }
}

fn positive(time: Option<&Spanned<Seconds>>, message: &str, report: &mut Report) {
    if let Some(time) = time.filter(|time| time.value.0 <= 0.0) {
        report.add(time.at, message, "write a longer time, or leave it out");
    }
}
