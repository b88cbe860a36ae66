//! Campaigns: one program, run at many points, by workers that are nodes of a lab.

mod crew;
mod engine;
pub mod far;
mod inputs;
mod layout;
pub mod ledger;
mod list;
mod nodes;
pub mod priority;
pub mod report;
pub mod results;
pub mod search;
mod slurm;
mod standing;
pub mod storage;
pub mod tables;
mod trial;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use slipway_campaign::design::{Plan, PlanError};
use slipway_campaign::model::{Campaign, Design, Place};
use slipway_coordinator::far::{GateError, InvitationError, JoinError};
use slipway_coordinator::protocol::{Setup, SetupError};
use slipway_coordinator::store::{Sqlite, Store as _, StoreError};
use slipway_coordinator::worker::{self, CallError};
use slipway_coordinator::{Folder, FolderError, Lock, Run, RunError, Size, Summary};
use slipway_document::errors::DocumentErrors;
use slipway_engine::lab;
use slipway_python::EnvironmentError;
use slipway_results::objects::ObjectError;

use crate::{Events, Machine, StudyError};
use crew::Crew;
use tables::TablesError;

pub use engine::EngineError;
pub use inputs::InputError;
pub use list::ListError;
pub use standing::{Baseline, Standing};

/// The folder of campaigns whose file names no storage, beside the file.
pub const FOLDER: &str = "slipway-campaigns";
/// Longest wait for the end of what a dead coordinator left.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The file in it with all that workers learn of a campaign.
const SETUP: &str = "setup.json";
/// Share of the memory that is free at the start which workers may take together.
const MEMORY: f64 = 0.9;

/// The reason why a campaign does not run. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The file cannot be read.
    #[error("read campaign file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The file is wrong.
    #[error("understand the campaign file: {0}")]
    File(Box<DocumentErrors>),
    /// There is no such design.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The list of points.
    #[error(transparent)]
    List(#[from] ListError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An input.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The campaign's folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The queue.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Stored results.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// Tables of results.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// The optimiser's library.
    #[error(transparent)]
    Python(#[from] EnvironmentError),
    /// The run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The way to the coordinator, on a worker's machine.
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    /// The coordinator, from a worker's machine.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The workers' lab.
    #[error(transparent)]
    Study(#[from] StudyError),
}

/// A campaign file as it was read, with the points of its design.
#[derive(Debug)]
pub struct Study {
    /// The campaign.
    pub campaign: Campaign,
    /// Its points.
    pub plan: Plan,
    setup: Setup,
    path: PathBuf,
}

impl Study {
    /// Reads a campaign file, and the list of points that its design may name.
    ///
    /// # Errors
    /// With all that is wrong with the file.
    pub fn read(path: &Path) -> Result<Self, CampaignError> {
        let unreadable = |source| CampaignError::Unreadable { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let place = std::path::absolute(path).map_err(unreadable)?;
        let folder = place.parent().unwrap_or(Path::new("/")).to_owned();
        Self::new(path.display().to_string(), text, folder)
    }

    /// A text as a campaign file. `shown` names it in errors; its relative paths begin in `folder`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn new(shown: String, text: String, folder: PathBuf) -> Result<Self, CampaignError> {
        let campaign =
            slipway_campaign::parse(&shown, &text, &folder).map_err(|errors| CampaignError::File(errors.into()))?;
        let rows = match &campaign.design {
            Design::List { source } => Some(list::read(source, &campaign.variables)?),
            _ => None,
        };
        let plan = Plan::new(&campaign, rows.clone())?;
        let path = campaign.storage.folder.clone().unwrap_or_else(|| folder.join(FOLDER).join(&campaign.name));
        let setup = Setup { file: shown, text, folder, rows, extended: Vec::new() };
        Self { campaign, plan, setup, path }.like_before()
    }

    /// The campaign that a folder has the state and results of, as it was when it began.
    ///
    /// # Errors
    /// Where there is none.
    pub fn open(path: &Path) -> Result<Self, CampaignError> {
        let folder = Folder::open(path)?;
        let unreadable = |source| CampaignError::Unreadable { path: setup_file(&folder), source };
        let text = std::fs::read(setup_file(&folder)).map_err(unreadable)?;
        let setup: Setup = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
        let (campaign, plan) = setup.read()?;
        Ok(Self { campaign, plan, setup, path: path.to_owned() })
    }

    /// Makes a campaign's folder at `path`, with all that a run needs besides inputs: `slipway campaign run PATH` begins it.
    ///
    /// # Errors
    /// Where another campaign has the folder, or it cannot be made.
    pub fn place(self, path: PathBuf) -> Result<Self, CampaignError> {
        let folder = Folder::create(&path, &self.setup.text)?;
        keep(&self.setup, &setup_file(&folder))?;
        Sqlite::create(&folder.store(), self.plan.len())?;
        Ok(Self { path, ..self })
    }

    /// The campaign with the extensions that the folder has of the same file.
    fn like_before(mut self) -> Result<Self, CampaignError> {
        let kept = std::fs::read(self.path.join(SETUP)).ok();
        let kept = kept.and_then(|kept| serde_json::from_slice::<Setup>(&kept).ok());
        if let Some(kept) = kept.filter(|kept| kept.text == self.setup.text && !kept.extended.is_empty()) {
            self.setup.extended = kept.extended;
            (self.campaign, self.plan) = self.setup.read()?;
        }
        Ok(self)
    }

    /// Makes the design larger, in its own unit. Points that there are stay as they are.
    ///
    /// # Errors
    /// Where the design has no extension, the size is smaller than before, or the campaign runs.
    pub fn extended(mut self, size: u64) -> Result<Self, CampaignError> {
        let folder = Folder::open(&self.path)?;
        let _lock = folder.lock()?;
        self.setup.extended.push(size);
        (self.campaign, self.plan) = self.setup.read()?;
        keep(&self.setup, &setup_file(&folder))?;
        results::store(&self)?.extend(self.plan.len())?;
        Ok(self)
    }

    /// The folder of the campaign's state and results.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.path
    }

    /// Looks for what would stop the campaign before its first point.
    ///
    /// # Errors
    /// As [`run`], where nothing was made yet.
    pub fn check(&self) -> Result<(), CampaignError> {
        let environment = engine::found_environment(&self.campaign)?;
        inputs::find(&self.campaign, &self.plan, environment.as_ref())?;
        storage::check(self)
    }
}

/// Runs a campaign to its end, or goes on with one that was interrupted. `most` workers at once, instead of the file's number.
///
/// # Errors
/// Where the campaign cannot begin or go on. Results that are recorded stay.
pub fn run(
    machine: &Machine,
    study: &Study,
    most: Option<u32>,
    events: &mut Events<'_>,
) -> Result<Summary, CampaignError> {
    let Study { campaign, plan, setup, path } = study;
    let environment = engine::environment(campaign, events)?;
    let (found, ends) = inputs::find(campaign, plan, environment.as_ref())?;
    engine::compare_places(&ends, inputs::source(&found, engine::WEATHER), events);
    let folder = Folder::create(path, &setup.text)?;
    let _lock = lock(machine, campaign, &folder)?;
    drop(storage::begin(study)?);
    inputs::bring(&folder, &found)?;
    if environment.is_some() {
        engine::write_scripts(&folder)?;
    }
    keep(setup, &setup_file(&folder))?;
    let size = size(campaign, most, plan.len());
    let (service, python) = (storage::service(study)?, search::python(campaign, events)?);
    let run =
        Run { folder: &folder, campaign, setup: setup.clone(), points: plan.len(), size, gate: None, service, python };
    let crew = Crew { machine, campaign, folder: &folder, environment: environment.as_ref(), points: plan.len() };
    let outcome = match &campaign.workers.place {
        Place::Here => crew.here(run, ends, events),
        Place::Slurm(settings) => crew.on_slurm(settings, run, ends, events),
    };
    if matches!(outcome, Err(CampaignError::Engine(EngineError::Refused { .. }))) && !folder.store().exists() {
        // It holds nothing yet, and would refuse the campaign file that is mended.
        std::fs::remove_dir_all(path).map_err(StudyError::io(format!("remove {}", path.display())))?;
    }
    outcome
}

/// Takes the campaign's folder. Where its last coordinator was killed, its lab may hold it still: that goes down first.
fn lock(machine: &Machine, campaign: &Campaign, folder: &Folder) -> Result<Lock, CampaignError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match folder.lock() {
            Err(FolderError::Taken { .. }) if !folder.is_running()? && Instant::now() < deadline => {
                // Its guard may be at it already. If neither can, the lock stays taken, and its error says so.
                if let Err(error) = lab::down(&machine.labs, &layout::lab_name(campaign, folder.path()), PATIENCE) {
                    tracing::info!("take a dead coordinator's lab down: {error}");
                }
                std::thread::sleep(LOOK_AGAIN);
            }
            other => return Ok(other?),
        }
    }
}

/// The file with all that workers learn of a campaign.
fn setup_file(folder: &Folder) -> PathBuf {
    folder.path().join(SETUP)
}

fn keep(setup: &Setup, path: &Path) -> Result<(), CampaignError> {
    let fresh = path.with_extension("new");
    let text = serde_json::to_vec(setup).map_err(std::io::Error::from);
    let written = text.and_then(|text| std::fs::write(&fresh, text)).and_then(|()| std::fs::rename(&fresh, path));
    Ok(written.map_err(StudyError::io(format!("write {}", path.display())))?)
}

/// The worker's program, inside a node. `is_far`: on another machine than the coordinator. Returns its exit code.
#[must_use]
pub fn worker(is_far: bool) -> u8 {
    let work = Path::new(if is_far { layout::SCRATCH } else { layout::WORK });
    let out = if is_far { layout::OUT.into() } else { work.join("out") };
    match worker::work(&Path::new(layout::CALL).join("socket"), Path::new(layout::INPUTS), work, &out) {
        // Where the coordinator has ended, so do its workers.
        Ok(()) | Err(CallError::Call(_)) => 0,
        Err(error) => {
            // Where it cannot be written, the exit code remains.
            let _ = std::fs::write(work.join(layout::WORDS), error.to_string());
            if is_far {
                eprintln!("failed to {error}");
            }
            1
        }
    }
}

/// Limits of workers: those of the file, and of this machine where they run on it.
fn size(campaign: &Campaign, most: Option<u32>, points: u64) -> Size {
    let workers = &campaign.workers;
    let points = u32::try_from(points).unwrap_or(u32::MAX);
    if let Place::Slurm(_) = workers.place {
        // Slurm has the machines, and knows their processors and memory.
        return Size { most: most.or(workers.most).unwrap_or(1).min(points).max(1), memory: None };
    }
    let free = free_memory();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a saturating cast of a positive ratio"
    )]
    let fits = |total: f64, each: f64| (total / each).max(1.0) as u32;
    let here =
        fits(cpus as f64, workers.cpus.0).min(workers.memory.map_or(u32::MAX, |memory| fits(free, memory.0 as f64)));
    let most = most.or(workers.most).unwrap_or(here).min(points).max(1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of memory")]
    let memory = workers.memory.is_none().then_some(free as u64);
    Size { most, memory }
}

/// Bytes that workers may take together; infinity where the kernel does not tell.
fn free_memory() -> f64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kibibytes.map_or(f64::INFINITY, |number| number * 1024.0 * MEMORY)
}

impl From<GateError> for CampaignError {
    fn from(error: GateError) -> Self {
        Self::Run(error.into())
    }
}

impl From<SetupError> for CampaignError {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::File(errors) => Self::File(errors.into()),
            SetupError::Plan(error) => Self::Plan(error),
        }
    }
}
