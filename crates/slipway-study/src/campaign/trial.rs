//! EnergyPlus' own look at a model before the first point: fields out of their range, objects that are not there, results
//! that the model does not report. It takes place in a worker's node, since models come from elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use slipway_campaign::model::{Campaign, Content, EngineKind, Input, Source};
use slipway_coordinator::Folder;
use slipway_document::FileError;
use slipway_energyplus::idf::Idf;
use slipway_engine::exec::Program;

use super::CampaignError;
use super::engine::{EngineError, WEATHER};
use super::layout;
use super::nodes::Nodes;
use crate::StudyError;

/// The file in a campaign's folder that says for how many points of the design this was done.
const TRIED: &str = "tried";
/// The folder in the first worker's own.
const ROOM: &str = "try";

/// Has EnergyPlus look at the models at the `ends` of a design with so many points, once.
pub(super) fn run(
    nodes: &Nodes<'_>,
    campaign: &Campaign,
    ends: Vec<Idf>,
    points: u64,
    folder: &Folder,
) -> Result<(), CampaignError> {
    let Some(input) = wanted(campaign, points, folder) else { return Ok(()) };
    let (tried, points) = (folder.path().join(TRIED), points.to_string());
    let room = folder.work(1).join(ROOM);
    let names = lay_out(&room, ends)?;
    // The command of an engine is the same at each point.
    let words = campaign.run.command.iter().map(|word| word.fill(&[]));
    let program = Program {
        argv: words.chain(["--try".to_owned()]).chain(names).map(Into::into).collect(),
        workdir: Some(Path::new(layout::WORK).join(ROOM)),
        ..Program::default()
    };
    let (is_good, words) = nodes.run(&program).map_err(StudyError::io("try the model in a worker's node"))?;
    // Best effort: the next trial empties it.
    let _ = fs::remove_dir_all(&room);
    if !is_good {
        let model = match &input.source {
            Source::ExampleModel(name) => format!("example:{name}"),
            other => other.path().unwrap_or(&input.name).display().to_string(),
        };
        return Err(EngineError::Refused { model, words: words.trim_end().to_owned() }.into());
    }
    Ok(fs::write(&tried, points).map_err(FileError::of("write", &tried)).map_err(EngineError::from)?)
}

/// Whether this look is still to be taken.
pub(super) fn is_wanted(campaign: &Campaign, points: u64, folder: &Folder) -> bool {
    wanted(campaign, points, folder).is_some()
}

/// The model to look at; `None` without one, and where it was looked at.
fn wanted<'a>(campaign: &'a Campaign, points: u64, folder: &Folder) -> Option<&'a Input> {
    let engine = campaign.run.engine.as_ref()?;
    let input = campaign.inputs.iter().find(|input| matches!(input.content, Content::Model(_)))?;
    let was_tried = || fs::read_to_string(folder.path().join(TRIED)).is_ok_and(|before| before == points.to_string());
    (matches!(engine.kind, EngineKind::EnergyPlus { .. }) && !was_tried()).then_some(input)
}

/// Writes the models and links the weather file. Returns the models' names.
fn lay_out(room: &Path, models: Vec<Idf>) -> Result<Vec<String>, EngineError> {
    // One that was interrupted may have left something.
    let _ = fs::remove_dir_all(room);
    fs::create_dir_all(room).map_err(FileError::of("make", room))?;
    let weather = room.join(WEATHER);
    symlink(Path::new(layout::INPUTS).join(WEATHER), &weather).map_err(FileError::of("make", &weather))?;
    let write = |(number, model): (usize, Idf)| {
        let name = format!("{number}.idf");
        let path = room.join(&name);
        fs::write(&path, model.text()).map_err(FileError::of("write", &path))?;
        Ok(name)
    };
    models.into_iter().enumerate().map(write).collect()
}
