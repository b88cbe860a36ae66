//! Records of a campaign's runs: the time of workers, now and in the end.
//!
//! The coordinator writes a file for each run and replaces it at most once a second. Others read it, so that they need not ask
//! a process that may have ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use slipway_coordinator::{Folder, Progress, Summary, Time};

/// Shortest time between two writes.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest record that is read, in bytes.
const LONGEST: u64 = 64 << 10;

/// A run of a campaign. Times are seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its begin, since 1970.
    pub begin: f64,
    /// Its duration so far.
    pub elapsed: f64,
    /// Points that had ended before it.
    pub before: u64,
    /// Points that have ended now.
    pub ended: u64,
    /// Workers now.
    pub workers: u32,
    /// Time of its workers.
    pub time: Time,
    /// Whether it has come to an end of its own.
    pub closed: bool,
}

/// The record of the run that goes on.
#[derive(Debug)]
pub(super) struct Ledger {
    file: PathBuf,
    run: Run,
    written: Option<Instant>,
}

impl Ledger {
    pub(super) fn new(folder: &Folder) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Names sort as the runs began.
        let file = folder.runs().join(format!("{:016}.json", since.as_millis()));
        Self { file, run: Run { begin: since.as_secs_f64(), ..Run::default() }, written: None }
    }

    pub(super) fn note(&mut self, progress: &Progress) {
        let ended = progress.counts.done + progress.counts.failed;
        if self.written.is_none() {
            self.run.before = ended;
        }
        self.run = Run { elapsed: progress.elapsed, ended, workers: progress.workers, time: progress.time, ..self.run };
        if self.written.is_none_or(|at| at.elapsed() >= PAUSE) {
            self.write();
        }
    }

    pub(super) fn close(&mut self, summary: &Summary) {
        let ended = summary.counts.done + summary.counts.failed;
        let (elapsed, time) = (summary.elapsed, summary.workers);
        self.run = Run { elapsed, ended, workers: 0, time, closed: true, ..self.run };
        self.write();
    }

    /// A record that is missing costs figures, no result: a full disk does not end the campaign here.
    fn write(&mut self) {
        self.written = Some(Instant::now());
        let fresh = self.file.with_extension("new");
        let text = serde_json::to_vec(&self.run).map_err(io::Error::from);
        if let Err(error) = text.and_then(|text| fs::write(&fresh, text)).and_then(|()| fs::rename(&fresh, &self.file))
        {
            tracing::warn!("write {}: {error}", self.file.display());
        }
    }
}

/// All runs, in the order in which they began. A file that is none is left out.
///
/// # Errors
/// Where the folder cannot be read.
pub fn read(folder: &Folder) -> io::Result<Vec<Run>> {
    let entries = match fs::read_dir(folder.runs()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|kind| kind == "json"));
    files.sort();
    Ok(files.iter().filter_map(|file| run(file)).collect())
}

fn run(file: &Path) -> Option<Run> {
    fs::metadata(file).ok().filter(|kind| kind.is_file() && kind.len() <= LONGEST)?;
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// The sum of the workers' time over runs.
#[must_use]
pub fn sum(runs: &[Run]) -> Time {
    runs.iter().fold(Time::default(), |sum, Run { time, .. }| Time {
        used: sum.used + time.used,
        lost: sum.lost + time.lost,
        idle: sum.idle + time.idle,
        fixed: sum.fixed + time.fixed,
    })
}
