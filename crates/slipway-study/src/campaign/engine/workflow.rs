//! Files of an OpenStudio workflow, found as OpenStudio finds them.

use std::fs;
use std::path::{Path, PathBuf};

use slipway_document::{FileError, suggest};
use slipway_openstudio::osw::{Step, Workflow};

use super::EngineError;

/// Folders where files are looked for, besides those that the workflow names.
const FILES: [&str; 5] = ["files", "weather", "seeds", "seed", "."];
/// Folders of measures, likewise.
const MEASURES: [&str; 2] = ["measures", "."];

fn read(path: &Path) -> Result<Workflow, EngineError> {
    let text = fs::read_to_string(path).map_err(FileError::of("read", path))?;
    Workflow::parse(&text).map_err(|source| EngineError::Osw { path: path.to_owned(), source })
}

/// All files of a workflow, each with its name in the points' folder `workflow`.
pub(super) fn files(path: &Path) -> Result<Vec<(PathBuf, PathBuf)>, EngineError> {
    let workflow = read(path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let failed = |what| EngineError::Workflow { path: path.to_owned(), what };
    let mut found = vec![(PathBuf::from("in.osw"), path.to_owned())];
    for name in workflow.seed_file.iter().chain(&workflow.weather_file) {
        let places =
            workflow.file_paths.iter().map(String::as_str).chain(FILES).map(|place| folder.join(place).join(name));
        let file = places.into_iter().find(|place| place.is_file());
        let file =
            file.ok_or_else(|| failed(format!("its file {name} is not there\nHint: add its folder to `file_paths`")))?;
        let last = Path::new(name).file_name().unwrap_or_default();
        found.push((Path::new("files").join(last), file));
    }
    for place in workflow.file_paths.iter().map(|place| folder.join(place)).filter(|place| place.is_dir()) {
        // Files that measures' arguments name; a folder beside others keeps only what is not there yet.
        let entries = fs::read_dir(&place).map_err(FileError::of("read", &place))?;
        for entry in entries.filter_map(Result::ok) {
            let name = Path::new("files").join(entry.file_name());
            let is_file = entry.path().is_file();
            if is_file && !found.iter().any(|(other, _)| *other == name) {
                found.push((name, entry.path()));
            }
        }
    }
    for step in &workflow.steps {
        let name = Path::new("measures").join(step.folder());
        if !found.iter().any(|(other, _)| *other == name) {
            found.push((name, measure(&workflow, folder, step).map_err(failed)?));
        }
    }
    within(folder, &found).map_err(failed)?;
    Ok(found)
}

/// Refuses files that are not below the workflow's folder: a workflow from elsewhere could name any file of this machine.
fn within(folder: &Path, found: &[(PathBuf, PathBuf)]) -> Result<(), String> {
    let root = folder.canonicalize().map_err(|error| format!("its folder: {error}"))?;
    for (_, path) in found {
        let place = path.canonicalize().map_err(|error| format!("its file {}: {error}", path.display()))?;
        if !place.starts_with(&root) {
            let hint = "Hint: copy it into the workflow's folder";
            return Err(format!("its file {} is not below the workflow's folder\n{hint}", path.display()));
        }
    }
    Ok(())
}

/// The folder of a step's measure.
fn measure(workflow: &Workflow, folder: &Path, step: &Step) -> Result<PathBuf, String> {
    let places = workflow.measure_paths.iter().map(String::as_str).chain(MEASURES);
    let mut places = places.map(|place| folder.join(place).join(&step.measure_dir_name));
    let is_measure = |place: &PathBuf| ["measure.py", "measure.rb"].iter().any(|file| place.join(file).is_file());
    places.find(is_measure).ok_or_else(|| {
        format!("its measure {} is not there\nHint: add the measure's folder to `measure_paths`", step.measure_dir_name)
    })
}

/// Looks for steps that cannot run here, and for arguments of steps that there are not.
pub(super) fn check(path: &Path, arguments: &[(String, String)]) -> Result<(), EngineError> {
    let workflow = read(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let failed = |what: String| EngineError::Workflow { path: path.to_owned(), what };
    if workflow.weather_file.is_none() {
        return Err(failed("it names no `weather_file`".to_owned()));
    }
    let ruby: Vec<&str> = workflow
        .steps
        .iter()
        .filter(|step| measure(&workflow, folder, step).is_ok_and(|place| !place.join("measure.py").is_file()))
        .map(Step::folder)
        .collect();
    if !ruby.is_empty() && !has_program("openstudio") {
        let what = format!(
            "measures in Ruby need the program `openstudio`, which is not installed: {}\nHint: install OpenStudio, or take measures in Python, which run by its SDK",
            ruby.join(", ")
        );
        return Err(failed(what));
    }
    for (step, argument) in arguments {
        if !workflow.steps.iter().any(|other| other.is_called(step)) {
            let known: Vec<&str> = workflow.steps.iter().map(Step::folder).collect();
            return Err(failed(format!("`{step}/{argument}`: it has no such step\nHint: {}", suggest(step, &known))));
        }
    }
    Ok(())
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}
