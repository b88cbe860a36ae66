//! Where a lab keeps what is played on it: `scenario/` in the lab's folder.
//!
//! ```text
//! scenario/lock            locked (flock(2)) for as long as a player plays
//!          whole.json      with several machines, on the coordinator's: all parts together, as slipway_machines keeps it
//!          part.json       what is played: the schedule, how it ends, and how nodes were limited before
//!          events.jsonl    the log, as in slipway_measure::play
//!          programs/N      the process beside the player that runs the programs of event N
//!          door            the player's socket
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use slipway_lab::id::{List, NodeId};
use slipway_lab::model::Limits;
use slipway_lab::scenario::Schedule;
use slipway_measure::play::{Line, PlayError, Played};
use slipway_sys::process::ProcessId;

use super::player::Ends;
use crate::lab::LabError;
use crate::protocol::{self, CallError, Operation, PlayerRequest};
use crate::state::LabDir;

/// What went wrong between a scenario and its lab.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A file or socket of the scenario's.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// The answer.
        source: io::Error,
    },
    /// A file of the scenario's is not what this version writes.
    #[error("read {}: {source}\nHint: it was written by another version; `slipway restore` puts the lab back", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] PlayError),
    /// Somebody plays already.
    #[error(
        "play on lab `{0}`: a scenario is being played on it\nHint: Ctrl-C ends that one; `slipway pause {0}` holds it"
    )]
    Taken(String),
    /// Nobody plays.
    #[error(
        "find a scenario that is played on lab `{0}`: there is none\nHint: `slipway play {0} SCENARIO.yaml` plays one"
    )]
    NotPlaying(String),
    /// There is nothing to go on with.
    #[error("go on with a scenario on lab `{lab}`: {why}\nHint: `slipway play {lab} SCENARIO.yaml` begins one")]
    NothingLeft {
        /// The lab.
        lab: String,
        /// Why not.
        why: &'static str,
    },
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl ScenarioError {
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// What is played, as it is kept for a player that goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The schedule.
    pub schedule: Schedule,
    /// When it is over.
    pub ends: Ends,
    /// Whether changes stay when it is over.
    pub keep: bool,
    /// What nodes might use before.
    pub limits: List<NodeId, Limits>,
    /// Where the log and output of programs are kept too.
    pub folder: PathBuf,
    /// The beginning on this machine's monotonic clock, nanoseconds, where a coordinator said it.
    #[serde(default)]
    pub origin: Option<u64>,
}

/// The scenario's folder of a lab.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    lab: String,
}

/// How it is with the scenario of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// It plays.
    Playing,
    /// It plays, and its clock stands still.
    Paused,
    /// Its player was killed.
    Interrupted,
    /// It is over.
    Over,
}

/// How far the scenario of a lab is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// How it is.
    pub standing: Standing,
    /// The file that it is from.
    pub scenario: String,
    /// The last event that it had come to.
    pub event: Option<usize>,
    /// How many it has.
    pub events: usize,
}

/// The right to play on a lab.
#[derive(Debug)]
pub struct Claim {
    _lock: File,
}

impl Folder {
    /// The folder, whether or not it is there.
    #[must_use]
    pub fn of(lab: &LabDir) -> Self {
        Self { path: lab.join("scenario"), lab: lab.name().to_owned() }
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Takes the right to play, at once or not at all.
    ///
    /// # Errors
    /// [`ScenarioError::Taken`] where somebody has it.
    pub fn claim(&self) -> Result<Claim, ScenarioError> {
        self.take(FlockOperation::NonBlockingLockExclusive)
    }

    /// Takes the right to play as soon as nobody has it.
    ///
    /// # Errors
    /// When the lock cannot be made.
    pub fn claim_when_free(&self) -> Result<Claim, ScenarioError> {
        self.take(FlockOperation::LockExclusive)
    }

    fn take(&self, how: FlockOperation) -> Result<Claim, ScenarioError> {
        let path = self.join("lock");
        let make = || {
            fs::create_dir_all(self.join("programs"))?;
            OpenOptions::new().create(true).truncate(false).write(true).open(&path)
        };
        let lock = make().map_err(ScenarioError::io(format!("make {}", path.display())))?;
        match flock(&lock, how) {
            Ok(()) => Ok(Claim { _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(ScenarioError::Taken(self.lab.clone())),
            Err(error) => Err(ScenarioError::io(format!("lock {}", path.display()))(error.into())),
        }
    }

    /// Whether somebody plays.
    fn is_claimed(&self) -> bool {
        let Ok(lock) = File::open(self.join("lock")) else { return false };
        matches!(flock(&lock, FlockOperation::NonBlockingLockShared), Err(rustix::io::Errno::WOULDBLOCK))
    }

    /// Begins a log with its first line, and keeps what is played.
    pub(super) fn begin(&self, kept: &Kept) -> Result<(), ScenarioError> {
        let path = self.join("part.json");
        let text = serde_json::to_vec(kept).map_err(|source| ScenarioError::Format { path: path.clone(), source })?;
        fs::write(&path, text).map_err(ScenarioError::io(format!("write {}", path.display())))
    }

    /// What was begun and has not ended, and its log.
    ///
    /// # Errors
    /// When there is none.
    pub fn interrupted(&self) -> Result<(Kept, Played), ScenarioError> {
        let nothing = |why| ScenarioError::NothingLeft { lab: self.lab.clone(), why };
        let played = self.log()?.ok_or_else(|| nothing("none was ever played"))?;
        if played.end().is_some() {
            return Err(nothing("the last one has ended"));
        }
        let path = self.join("part.json");
        let text = fs::read(&path).map_err(ScenarioError::io(format!("read {}", path.display())))?;
        let kept = serde_json::from_slice(&text).map_err(|source| ScenarioError::Format { path, source })?;
        Ok((kept, played))
    }

    /// The log; `None` where nothing was ever played.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn log(&self) -> Result<Option<Played>, ScenarioError> {
        match fs::read_to_string(self.join("events.jsonl")) {
            Ok(text) if text.is_empty() => Ok(None),
            Ok(text) => Ok(Some(Played::read(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ScenarioError::io("read the scenario's log")(error)),
        }
    }

    /// The schedule that was begun last, of this machine's part. `None` where nothing was.
    #[must_use]
    pub fn schedule(&self) -> Option<Schedule> {
        let kept: Kept = serde_json::from_slice(&fs::read(self.join("part.json")).ok()?).ok()?;
        Some(kept.schedule)
    }

    /// How far the lab's scenario is; `None` where nothing was ever played.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn status(&self) -> Result<Option<Status>, ScenarioError> {
        let Some(played) = self.log()? else { return Ok(None) };
        let clock =
            played.lines.iter().rev().find_map(|line| if let Line::Clock(clock) = line { Some(clock) } else { None });
        let standing = match (self.is_claimed(), played.end()) {
            (_, Some(_)) => Standing::Over,
            (true, None) if clock.is_some_and(|clock| !clock.goes) => Standing::Paused,
            (true, None) => Standing::Playing,
            (false, None) => Standing::Interrupted,
        };
        let event = played.lines.iter().rev().find_map(|line| match line {
            Line::Event(event) => Some(event.number),
            Line::Begun(begun) => Some(begun.number),
            _ => None,
        });
        Ok(Some(Status { standing, scenario: played.begin.scenario, event, events: played.begin.events }))
    }

    /// Asks the player for something, and waits until it has heard.
    ///
    /// # Errors
    /// [`ScenarioError::NotPlaying`] where nobody plays.
    pub fn ask<O: Operation<Service = PlayerRequest>>(&self, operation: O) -> Result<O::Reply, ScenarioError> {
        self.need_player()?;
        protocol::ask(&self.join("door"), operation).map_err(|error| match error {
            CallError::Refused(error) => LabError::from(error).into(),
            CallError::Unreachable(error) => ScenarioError::io("ask the scenario's player")(error),
        })
    }

    /// Refuses where there is no player to ask.
    ///
    /// # Errors
    /// [`ScenarioError::NotPlaying`] where nobody plays.
    pub fn need_player(&self) -> Result<(), ScenarioError> {
        if self.is_claimed() { Ok(()) } else { Err(ScenarioError::NotPlaying(self.lab.clone())) }
    }

    pub(super) fn note_program(&self, event: usize, process: ProcessId) -> io::Result<()> {
        fs::write(self.join("programs").join(event.to_string()), serde_json::to_vec(&process)?)
    }

    /// The process beside that runs the programs of an event, if it was ever started.
    pub(super) fn program(&self, event: usize) -> Option<ProcessId> {
        serde_json::from_slice(&fs::read(self.join("programs").join(event.to_string())).ok()?).ok()
    }

    /// Events of which programs were started.
    pub(super) fn programs(&self) -> Vec<usize> {
        let entries = fs::read_dir(self.join("programs")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }
}

/// A log in two places: the lab's folder and the run's.
#[derive(Debug)]
pub(super) struct Log([File; 2]);

impl Log {
    /// Begins one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn begin(lab: &Folder, run: &std::path::Path, first: &Line) -> Result<Self, ScenarioError> {
        let failed = || ScenarioError::io("write the scenario's log");
        let mut log = Self([
            File::create(lab.join("events.jsonl")).map_err(failed())?,
            File::create(run.join("events.jsonl")).map_err(failed())?,
        ]);
        log.write(first).map_err(failed())?;
        Ok(log)
    }

    /// Goes on with one. A line that a kill had cut is cut off.
    pub(super) fn go_on(lab: &Folder, run: &std::path::Path) -> Result<Self, ScenarioError> {
        let open = |path: PathBuf| -> io::Result<File> {
            let text = fs::read(&path)?;
            let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
            let mut file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(whole as u64)?;
            io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
            Ok(file)
        };
        let failed = || ScenarioError::io("go on with the scenario's log");
        Ok(Self([open(lab.join("events.jsonl")).map_err(failed())?, open(run.join("events.jsonl")).map_err(failed())?]))
    }

    /// Adds a line, in one piece.
    pub(super) fn write(&mut self, line: &Line) -> io::Result<()> {
        self.0.iter().try_for_each(|file| line.write(file))
    }
}
