//! One attempt: the program of a point, and what became of it.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use slipway_campaign::design::Plan;
use slipway_campaign::model::{Campaign, Keep};
use slipway_campaign::value::Value;
use slipway_results::extract::{ExtractError, Extractor};
use slipway_results::objects::{Limits, Out, PackError, keeps, pack};
use slipway_results::{Digest, series};
use slipway_sys::{process, usage};

use super::scene::{POINT_FILE, Scene, SceneError};
use crate::store::{FailureKind, Lease, Outcome, Record, Usage};

/// Bytes of the program's last words in a failure's message.
const WORDS: u64 = 2048;
/// Lines of them.
const LINES: usize = 8;
/// Longest wait for a program, where the campaign sets no limit: the greatest that `poll(2)` takes everywhere.
const FOREVER: Duration = Duration::from_secs(1 << 31);

/// A worker: it runs points of one campaign, one after the other, in one folder.
#[derive(Debug)]
pub struct Worker {
    campaign: Campaign,
    plan: Plan,
    scene: Scene,
    extractor: Extractor,
    work: PathBuf,
    out: PathBuf,
}

/// An attempt that has ended, with the objects that wait in the worker's folder for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// The end.
    pub outcome: Outcome,
    /// Resources that it took.
    pub usage: Usage,
    /// Objects of its results.
    pub objects: Vec<Digest>,
}

/// The reason why a worker cannot run any point.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Inputs.
    #[error(transparent)]
    Scene(#[from] SceneError),
    /// Outputs.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// The worker's own folder.
    #[error("make {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// A failed attempt, before its files are packed.
struct Failure {
    kind: FailureKind,
    message: String,
}

impl Failure {
    fn storage(error: impl Into<Box<dyn Error>>) -> Self {
        Self { kind: FailureKind::Storage, message: error.into().to_string() }
    }
}

impl Worker {
    /// Prepares a worker that finds inputs in one folder and runs points in another. Objects of results go to `out`.
    ///
    /// # Errors
    /// Where inputs or outputs of the campaign cannot be used.
    pub fn new(campaign: Campaign, plan: Plan, inputs: &Path, work: &Path, out: &Path) -> Result<Self, WorkerError> {
        let scene = Scene::new(&campaign, inputs)?;
        let extractor = Extractor::new(&campaign.outputs)?;
        for folder in [work, out] {
            fs::create_dir_all(folder).map_err(|source| WorkerError::Folder { path: folder.to_owned(), source })?;
        }
        Ok(Self { campaign, plan, scene, extractor, work: work.to_owned(), out: out.to_owned() })
    }

    /// Runs a point, with these values or, without, those of the design. `limit` ends a program that takes longer, with all
    /// of its process group.
    ///
    /// # Panics
    /// Where the design lacks the point.
    #[must_use]
    pub fn attempt(&self, lease: Lease, values: Option<Vec<Value>>, limit: Option<Duration>) -> Ended {
        let mut usage = Usage::default();
        let mut out = Out::new(&self.out);
        let outcome = self.run(lease, values, limit, &mut usage).and_then(|()| self.results(&mut out));
        let outcome = match outcome {
            Ok(record) => Outcome::Done(record),
            Err(Failure { kind, message }) => {
                let manifest = self.pack(&mut out, true).unwrap_or_default();
                Outcome::Failed { kind, message, manifest }
            }
        };
        Ended { outcome, usage, objects: out.objects().keys().copied().collect() }
    }

    /// The program's working folder.
    fn point(&self) -> PathBuf {
        self.work.join("point")
    }

    /// Standard output, beside the folder so that the program's files are its own.
    fn stdout(&self) -> PathBuf {
        self.work.join("stdout")
    }

    fn stderr(&self) -> PathBuf {
        self.work.join("stderr")
    }

    /// Runs the program to its end.
    fn run(
        &self,
        lease: Lease,
        values: Option<Vec<Value>>,
        limit: Option<Duration>,
        usage: &mut Usage,
    ) -> Result<(), Failure> {
        let values = values.unwrap_or_else(|| self.plan.point(lease.point));
        let seed = self.plan.seed(lease.point);
        self.scene.lay_out(&self.point(), lease, seed, &values).map_err(|error| match error {
            SceneError::Model { .. } => Failure { kind: FailureKind::Fatal, message: error.to_string() },
            error => Failure::storage(error),
        })?;
        let mut words = self.campaign.run.command.iter().map(|word| word.fill(&values));
        let program = words.next().unwrap_or_default();
        let mut command = Command::new(&program);
        command
            .args(words)
            .envs(self.campaign.run.env.iter().map(|(name, text)| (name, text.fill(&values))))
            .env("SLIPWAY_POINT", lease.point.to_string())
            .env("SLIPWAY_SEED", seed.to_string())
            .current_dir(self.point())
            .stdin(Stdio::null())
            .stdout(File::create(self.stdout()).map_err(Failure::storage)?)
            .stderr(File::create(self.stderr()).map_err(Failure::storage)?)
            .process_group(0);
        let status = wait(&mut command, limit, usage)
            .map_err(|error| Failure { kind: FailureKind::Fatal, message: format!("run {program}: {error}") })?;
        match (status, limit) {
            (None, limit) => Err(Failure {
                kind: FailureKind::Timeout,
                message: format!("the program took longer than {:?}", limit.unwrap_or_default()),
            }),
            (Some(status), _) if status.success() => Ok(()),
            (Some(status), _) => Err(Failure { kind: FailureKind::Fatal, message: self.last_words(status) }),
        }
    }

    /// The result of a program that ended well.
    fn results(&self, out: &mut Out) -> Result<Record, Failure> {
        let extracted = self.extractor.extract(&self.point(), &self.stdout());
        if !extracted.problems.is_empty() {
            return Err(Failure { kind: FailureKind::Output, message: extracted.problems.join("\n") });
        }
        let mut digests = Vec::with_capacity(extracted.series.len());
        for (output, values) in extracted.series {
            let content = series::encode(&values);
            let (digest, _) = out.add(content.as_slice(), u64::MAX).map_err(Failure::storage)?;
            digests.push((output, digest));
        }
        let manifest = self.pack(out, false)?;
        Ok(Record { values: extracted.values, series: digests, manifest })
    }

    /// Packs the point's files, with the program's output, where the campaign keeps them.
    fn pack(&self, out: &mut Out, failed: bool) -> Result<Option<Digest>, Failure> {
        if self.campaign.keep == Keep::Tables || !keeps(self.campaign.keep, failed) {
            return Ok(None);
        }
        for (path, name) in [(self.stdout(), "slipway.stdout"), (self.stderr(), "slipway.stderr")] {
            match fs::rename(path, self.point().join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Failure::storage(error)),
                _ => {}
            }
        }
        // The design gives its content again, and an object for each point would be waste.
        let _ = fs::remove_file(self.point().join(POINT_FILE));
        match pack(&self.point(), out, &Limits::default()) {
            Ok(packed) => Ok(Some(packed.manifest)),
            Err(error @ PackError::Io { .. }) => Err(Failure::storage(error)),
            // The program's doing, and no fault of storage.
            Err(error) => Err(Failure { kind: FailureKind::Output, message: error.to_string() }),
        }
    }

    /// The end of a program in words, and the last lines that it wrote.
    fn last_words(&self, status: ExitStatus) -> String {
        let end = match (status.code(), status.signal()) {
            (Some(code), _) => format!("the program ended with exit code {code}"),
            (None, signal) => format!("signal {} ended the program", signal.unwrap_or_default()),
        };
        let tail = [self.stderr(), self.stdout()].iter().map(|path| tail(path)).find(|text| !text.is_empty());
        match tail {
            // An engine's script says all that there is to say.
            Some(tail) if self.campaign.run.engine.is_some() && status.code() == Some(1) => tail,
            Some(tail) => format!("{end}:\n{tail}"),
            None => end,
        }
    }
}

/// Runs a program to its end; `None` where it took too long. Nothing of its process group remains.
fn wait(command: &mut Command, limit: Option<Duration>, usage: &mut Usage) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    let child = Pid::from_child(&command.spawn()?);
    let in_time = pidfd_open(child, PidfdFlags::empty())
        .map_err(io::Error::from)
        .and_then(|pidfd| process::wait_for_end(pidfd, limit.unwrap_or(FOREVER)));
    // The group exists as long as the child is not reaped, so its number is nobody else's.
    let _ = kill_process_group(child, Signal::KILL);
    let ended = usage::reap(child)?;
    *usage =
        Usage { seconds: start.elapsed().as_secs_f64(), cpu_seconds: ended.cpu_seconds, peak_bytes: ended.peak_bytes };
    Ok(in_time?.then_some(ended.status))
}

/// The last lines of a file, without control characters. A file that cannot be read has none.
fn tail(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(WORDS)))?;
        let mut bytes = Vec::new();
        file.take(WORDS).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
    last.chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}
