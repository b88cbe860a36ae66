//! Engines of campaigns: the Python environment, the scripts, and all that can be found wrong before the first point.

mod examples;
mod workflow;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use slipway_campaign::design::Plan;
use slipway_campaign::edit::Edit;
use slipway_campaign::model::{Campaign, Content, Engine, EngineKind, Model, Source};
use slipway_campaign::value::Value;
use slipway_coordinator::Folder;
use slipway_document::FileError;
use slipway_document::text::printable;
use slipway_energyplus::idf::{Idf, IdfError};
use slipway_energyplus::place::Place;
use slipway_energyplus::weather::{self, WeatherError};
use slipway_energyplus::{Report, VERSION};
use slipway_openstudio::osw::OswError;
use slipway_python::{Environment, EnvironmentError};

use crate::{Event, Events};

/// Scripts that run engines, by name.
/// The weather file's name in a point's folder.
pub(super) const WEATHER: &str = "in.epw";
/// Weather from so far away in km is of the same place: an airport's serves a town.
const NEAR: f64 = 100.0;
const SCRIPTS: [(&str, &str); 3] = [
    ("python.py", include_str!("engine/python.py")),
    ("energyplus.py", include_str!("engine/energyplus.py")),
    ("openstudio.py", include_str!("engine/openstudio.py")),
];

/// The reason why an engine cannot run a campaign. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The Python environment.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no such example.
    #[error("find the example `{name}`: {what}")]
    Example {
        /// The beginning of its name.
        name: String,
        /// The fault and the next step.
        what: String,
    },
    /// The model.
    #[error("use the model {}: {source}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: IdfError,
    },
    /// The model is for another EnergyPlus.
    #[error(
        "use the model {}: it is for EnergyPlus {version}, and EnergyPlus here is {VERSION}\nHint: bring it to {VERSION} with the IDFVersionUpdater of EnergyPlus", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
    /// The model is none of OpenStudio's.
    #[error("use the model {}: it has no `OS:Version`, so it is no OpenStudio model\nHint: save it with OpenStudio; a model of EnergyPlus' own (IDF) runs by `energyplus:`", .0.display())]
    Foreign(PathBuf),
    /// The weather file.
    #[error("use the weather file {}: {source}", path.display())]
    Weather {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: WeatherError,
    },
    /// The Python function.
    #[error("use {}: {what}", path.display())]
    Function {
        /// The file.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// EnergyPlus does not take the model.
    #[error(
        "use the model {model}: EnergyPlus refuses it at the least and greatest values of its variables:\n{words}\nHint: mend the model, or the bounds of `variables`; no point has run"
    )]
    Refused {
        /// The model, as the campaign file names it.
        model: String,
        /// EnergyPlus' own words.
        words: String,
    },
    /// The workflow's text.
    #[error("use the workflow {}: {source}", path.display())]
    Osw {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: OswError,
    },
    /// A part of the workflow that is not there, or cannot run here.
    #[error("use the workflow {}: {what}", path.display())]
    Workflow {
        /// The file.
        path: PathBuf,
        /// The fault and the next step.
        what: String,
    },
}

/// The environment of a campaign's engine, if it has one. It is made where it is not there.
pub(super) fn environment(campaign: &Campaign, events: &mut Events<'_>) -> Result<Option<Environment>, EngineError> {
    let Some(engine) = &campaign.run.engine else { return Ok(None) };
    Ok(Some(made(&packages(engine), events)?))
}

/// The environment with these packages, made where it is not there.
pub(super) fn made(packages: &[&str], events: &mut Events<'_>) -> Result<Environment, EnvironmentError> {
    Environment::make(&slipway_python::cache(), packages, &mut |step| events(Event::Python(step)))
}

/// The environment, if it is there already.
pub(super) fn found_environment(campaign: &Campaign) -> Result<Option<Environment>, EngineError> {
    let Some(engine) = &campaign.run.engine else { return Ok(None) };
    Ok(Environment::find(&slipway_python::cache(), &packages(engine))?)
}

fn packages(engine: &Engine) -> Vec<&str> {
    engine.packages.iter().map(String::as_str).collect()
}

/// The files of an input: where each is, and its name below the input's. Without an environment, examples are left out.
pub(super) fn files(
    source: &Source,
    environment: Option<&Environment>,
) -> Result<Vec<(Option<PathBuf>, PathBuf)>, EngineError> {
    match source {
        Source::Path(path) => Ok(vec![(None, path.clone())]),
        Source::ExampleModel(name) => examples::find(environment, "model", name),
        Source::ExampleWeather(name) => examples::find(environment, "weather", name),
        Source::Workflow(path) => {
            let files = workflow::files(path)?;
            Ok(files.into_iter().map(|(name, path)| (Some(name), path)).collect())
        }
    }
}

/// Looks for what would stop points. `find` gives the path of an input on this machine, by its name. Returns the models of
/// the campaign at the ends of the design.
pub(super) fn check(
    campaign: &Campaign,
    plan: &Plan,
    find: &dyn Fn(&Path) -> Option<PathBuf>,
) -> Result<Vec<Idf>, EngineError> {
    let Some(engine) = &campaign.run.engine else { return Ok(Vec::new()) };
    let (mut models, mut has_results) = (Vec::new(), false);
    for input in &campaign.inputs {
        if let (Content::Model(changes), Some(path)) = (&input.content, find(&input.name)) {
            models.extend(at_ends(changes, plan, &path)?);
            let reports = changes.reports.iter().flat_map(|reports| &reports.wanted);
            has_results |= reports.into_iter().any(|report| *report != Report::Tables);
        }
    }
    match &engine.kind {
        EngineKind::Python { file, function: name } => {
            find(file).map_or(Ok(()), |path| function(campaign, &path, name))?;
        }
        // The whole year needs no run period of the model's.
        EngineKind::EnergyPlus { annual: true } => weather(true, &[], has_results, find)?,
        EngineKind::EnergyPlus { annual: false } => weather(false, &models, has_results, find)?,
        // The SDK makes run periods of the model's own objects.
        EngineKind::OpenStudioModel { annual } => weather(*annual, &[], false, find)?,
        EngineKind::OpenStudioWorkflow { arguments } => {
            let workflow = campaign.inputs.iter().find_map(|input| match &input.source {
                Source::Workflow(path) => Some(path),
                _ => None,
            });
            workflow.map_or(Ok(()), |path| workflow::check(path, arguments))?;
        }
    }
    Ok(models)
}

/// Whether the model is one, for this version, with all fields that points set. Returns it with the values at the ends of
/// the design.
fn at_ends(changes: &Model, plan: &Plan, path: &Path) -> Result<Vec<Idf>, EngineError> {
    let failed = |source| EngineError::Model { path: path.to_owned(), source };
    let text = fs::read(path).map_err(FileError::of("read", path))?;
    let model = Idf::parse(String::from_utf8_lossy(&text).into_owned()).map_err(failed)?;
    // OpenStudio's own models name their version otherwise, and the SDK translates them.
    let version = changes.reports.as_ref().and_then(|_| model.version());
    if let Some(version) = version.filter(|version| !is_version(version)) {
        return Err(EngineError::Version { path: path.to_owned(), version: version.to_owned() });
    }
    if changes.reports.is_none() {
        is_openstudio(&model, path)?;
    }
    let edit = Edit::new(model, changes).map_err(failed)?;
    let at = |values: &Vec<Value>| Idf::parse(edit.text(values)?);
    plan.ends().iter().map(at).collect::<Result<_, _>>().map_err(failed)
}

/// Refuses a model that OpenStudio would not load: each of its own names the version that wrote it.
fn is_openstudio(model: &Idf, path: &Path) -> Result<(), EngineError> {
    let is_one = model.of_class("OS:Version").next().is_some();
    if is_one { Ok(()) } else { Err(EngineError::Foreign(path.to_owned())) }
}

/// Tells where the weather file is of another place than the models. A study may want that; nobody wants it unawares.
pub(super) fn compare_places(models: &[Idf], weather: Option<&Path>, events: &mut Events<'_>) {
    let text = weather.and_then(|path| fs::read(path).ok());
    let weather = text.and_then(|text| Place::of_weather(&String::from_utf8_lossy(&text)));
    let (Some(weather), Some(model)) = (weather, models.first().and_then(Place::of_model)) else { return };
    let km = model.km_to(&weather);
    if km > NEAR {
        events(Event::WeatherElsewhere { model: &model.name, weather: &weather.name, km });
    }
}

/// Whether the weather file is one. `models`: those whose own run periods it must have.
fn weather(
    annual: bool,
    models: &[Idf],
    has_results: bool,
    find: &dyn Fn(&Path) -> Option<PathBuf>,
) -> Result<(), EngineError> {
    let Some(path) = find(Path::new(WEATHER)) else { return Ok(()) };
    let text = fs::read(&path).map_err(FileError::of("read", &path))?;
    weather::check(&String::from_utf8_lossy(&text), annual)
        .and_then(|weather| models.iter().try_for_each(|model| weather.covers(model, has_results)))
        .map_err(|source| EngineError::Weather { path, source })
}

/// Whether a model's version (`25.2`, `25.2.0`) is EnergyPlus' own.
fn is_version(version: &str) -> bool {
    version == VERSION || version.strip_prefix(VERSION).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether a Python file has the function, with the campaign's variables as parameters. Nothing of the file runs.
fn function(campaign: &Campaign, path: &Path, name: &str) -> Result<(), EngineError> {
    let python = Path::new("python3");
    let failed = FileError::of("run", python);
    let variables = campaign.variables.iter().map(|variable| &variable.name);
    let child = Command::new(python)
        .args(["-IB", "-", "--check"])
        .arg(path)
        .arg(name)
        .args(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let output = child.and_then(|mut child| {
        let mut stdin = child.stdin.take().expect("a pipe");
        let written = stdin.write_all(SCRIPTS[0].1.as_bytes());
        // Python reads to the end of the script.
        drop(stdin);
        written.and_then(|()| child.wait_with_output())
    });
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let words = printable(&String::from_utf8_lossy(&output.stderr));
    let what = words.lines().last().unwrap_or("python3 cannot read it").to_owned();
    Err(EngineError::Function { path: path.to_owned(), what })
}

/// Writes the scripts that workers run.
pub(super) fn write_scripts(folder: &Folder) -> Result<(), EngineError> {
    let engine = folder.engine();
    fs::create_dir_all(&engine).map_err(FileError::of("make", &engine))?;
    for (name, text) in SCRIPTS {
        let path = engine.join(name);
        fs::write(&path, text).map_err(FileError::of("write", &path))?;
    }
    Ok(())
}
