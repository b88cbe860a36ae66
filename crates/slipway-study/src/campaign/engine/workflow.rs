//! Files of an OpenStudio workflow, found as OpenStudio finds them.

use std::fs;
use std::path::{Path, PathBuf};

use slipway_document::{FileError, suggest};
use slipway_energyplus::idf::Idf;
use slipway_energyplus::weather;
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
        let file = place_of(&workflow, folder, name);
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

/// The place of a file that the workflow names.
fn place_of(workflow: &Workflow, folder: &Path, name: &str) -> Option<PathBuf> {
    let places = workflow.file_paths.iter().map(String::as_str).chain(FILES);
    places.map(|place| folder.join(place).join(name)).find(|place| place.is_file())
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

/// Looks for a seed or weather file that OpenStudio could not read, for steps that cannot run here, and for arguments of
/// steps that there are not.
pub(super) fn check(path: &Path, arguments: &[(String, String)]) -> Result<(), EngineError> {
    let workflow = read(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let failed = |what: String| EngineError::Workflow { path: path.to_owned(), what };
    let Some(weather) = &workflow.weather_file else {
        return Err(failed("it names no `weather_file`".to_owned()));
    };
    if let Some(file) = workflow.seed_file.as_ref().and_then(|name| place_of(&workflow, folder, name)) {
        let text = fs::read(&file).map_err(FileError::of("read", &file))?;
        let model = Idf::parse(String::from_utf8_lossy(&text).into_owned());
        super::is_openstudio(&model.map_err(|source| EngineError::Model { path: file.clone(), source })?, &file)?;
    }
    // The workflow's run period may be shorter than the year.
    if let Some(file) = place_of(&workflow, folder, weather) {
        let text = fs::read(&file).map_err(FileError::of("read", &file))?;
        weather::check(&String::from_utf8_lossy(&text), false)
            .map_err(|source| EngineError::Weather { path: file, source })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    const WEATHER: &str = "LOCATION,Here,-,-,-,0,52,13,1,50\nDATA PERIODS,1,1,Data,Sunday,1/1,1/1\n";

    /// A workflow with a seed and a weather file, and a measure in Python.
    fn workflow(seed: &str, weather: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.osw");
        let text = r#"{"seed_file": "a.osm", "weather_file": "a.epw", "steps": [{"measure_dir_name": "m"}]}"#;
        fs::create_dir_all(folder.path().join("measures/m")).unwrap();
        for (name, text) in [("in.osw", text), ("a.osm", seed), ("a.epw", weather), ("measures/m/measure.py", "")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        (folder, path)
    }

    #[test]
    fn a_workflow_is_refused_for_what_openstudio_could_not_read() {
        let good = "OS:Version,\n  {1},\n  3.11.0;\n";
        let words = |seed: &str, weather: &str| {
            let (_folder, path) = workflow(seed, weather);
            check(&path, &[]).map_or_else(|error| error.to_string(), |()| "good".to_owned())
        };
        assert_eq!(words(good, WEATHER), "good");
        assert!(words("OS:Version,\n  {1}", WEATHER).contains("a.osm"), "an object without its end");
        assert!(words("", WEATHER).contains("no OpenStudio model"));
        assert!(words("Version,25.2;", WEATHER).contains("no OpenStudio model"));
        assert!(words(good, "year,month\n").contains("a.epw"));
    }

    #[test]
    fn a_workflow_is_refused_without_its_files_and_measures() {
        let (folder, path) = workflow("OS:Version,\n  {1},\n  3.11.0;\n", WEATHER);
        assert_eq!(files(&path).unwrap().len(), 4);
        for (name, what) in
            [("measures/m/measure.py", "its measure m"), ("a.epw", "its file a.epw"), ("a.osm", "its file a.osm")]
        {
            fs::remove_file(folder.path().join(name)).unwrap();
            let words = files(&path).unwrap_err().to_string();
            assert!(words.contains(what), "{words}");
        }
    }
}
