//! Workers as jobs of Slurm: tasks of job arrays, which are submitted as points need workers.
//!
//! Slurm's programs run beside the coordinator, which waits for none of them: a busy controller takes seconds to answer, and
//! workers call meanwhile.

mod call;
mod queue;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, PipeWriter, Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use slipway_campaign::model::{Campaign, Slurm as Settings};
use slipway_coordinator::{Fleet, Folder};
use slipway_document::text::printable;
use slipway_engine::rsh::quoted;

use self::call::Call;
use super::layout;

/// Time between two looks at Slurm's queue. Controllers of large clusters ask for no more.
const LOOK: Duration = Duration::from_secs(5);
/// Time that a worker which left has to take its node down before its job is cancelled.
const GRACE: Duration = Duration::from_secs(30);
/// Bytes of a job's last words.
const WORDS: u64 = 2048;

/// The jobs of a campaign's workers.
pub(super) struct Jobs<'a> {
    folder: &'a Folder,
    campaign: &'a Campaign,
    settings: &'a Settings,
    name: String,
    /// By worker.
    workers: BTreeMap<u32, Job>,
    submissions: Vec<Submission>,
    /// Jobs whose workers left, with the moment at which they are cancelled if they are there still.
    leaving: BTreeMap<queue::Task, Instant>,
    /// The look at the queue that is under way, and the start of the last one.
    look: Option<Call>,
    looked: Option<Instant>,
    /// Cancellations under way.
    cancellations: Vec<Call>,
}

/// A worker's job.
struct Job {
    start: u64,
    /// `None` until Slurm has taken it.
    task: Option<(queue::Task, Instant)>,
    /// Its state, as Slurm last told it.
    state: Option<queue::State>,
    /// Dropped when the job has ended: the coordinator watches the other end.
    alive: Option<PipeWriter>,
    words: String,
}

/// An array of jobs on its way to Slurm.
struct Submission {
    start: u64,
    workers: Vec<u32>,
    call: Call,
}

impl<'a> Jobs<'a> {
    /// Cancels jobs that an earlier coordinator left.
    pub(super) fn new(folder: &'a Folder, campaign: &'a Campaign, settings: &'a Settings) -> io::Result<Self> {
        fs::create_dir_all(folder.jobs())?;
        let name = layout::lab_name(campaign, folder.path());
        cancel_all(&name)?;
        Ok(Self {
            folder,
            campaign,
            settings,
            name,
            workers: BTreeMap::new(),
            submissions: Vec::new(),
            leaving: BTreeMap::new(),
            look: None,
            looked: None,
            cancellations: Vec::new(),
        })
    }

    /// The array of these workers' jobs (`sbatch(1)`). A preempted job is not queued again: its points wait for any worker.
    fn sbatch(&self, workers: &[u32]) -> Command {
        let Campaign { workers: limits, .. } = self.campaign;
        let numbers: Vec<String> = workers.iter().map(u32::to_string).collect();
        let mut command = Command::new("sbatch");
        command.args(["--parsable", "--no-requeue", "--nodes=1", "--ntasks=1", "--chdir=/"]);
        command.arg(format!("--array={}", numbers.join(",")));
        command.arg(format!("--job-name={}", self.name));
        command.arg(format!("--output={}", self.folder.jobs().join("%A_%a.log").display()));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a saturating cast of cores")]
        let cores = limits.cpus.0.ceil().max(1.0) as u32;
        command.arg(format!("--cpus-per-task={cores}"));
        if let Some(memory) = limits.memory {
            command.arg(format!("--mem={}M", memory.0.div_ceil(1 << 20)));
        }
        if let Some(partition) = &self.settings.partition {
            command.arg(format!("--partition={partition}"));
        }
        if let Some(time) = self.settings.time {
            // Minutes, of which each that has begun counts.
            command.arg(format!("--time={}", time.duration().as_secs().div_ceil(60).max(1)));
        }
        command
    }

    /// The script of each job. It has no secret: the token is in a file that Slurm does not copy.
    fn script(&self, start: u64) -> String {
        let folder = quoted(&self.folder.path().display().to_string());
        format!(
            "#!/bin/sh\nexec slipway campaign worker --number \"$SLURM_ARRAY_TASK_ID\" --start {start} -- {folder}\n"
        )
    }

    /// Takes up the numbers of arrays that Slurm has taken.
    fn take_numbers(&mut self) {
        let mut under_way = Vec::new();
        for mut submission in std::mem::take(&mut self.submissions) {
            match submission.call.ended() {
                Ok(None) => under_way.push(submission),
                Ok(Some(said)) => self.take_number(&submission, said),
                Err(error) => self.take_number(&submission, Err(error.to_string())),
            }
        }
        self.submissions = under_way;
    }

    fn take_number(&mut self, Submission { start, workers, .. }: &Submission, said: Result<String, String>) {
        let array = said.and_then(|text| queue::number(&text).ok_or(format!("sbatch gave no number: {text}")));
        for &worker in workers {
            let job = self.workers.get_mut(&worker).filter(|job| job.start == *start);
            match (&array, job) {
                (Ok(array), Some(job)) => job.task = Some(((*array, worker), Instant::now())),
                // Nobody wants it any more.
                (Ok(array), None) => {
                    self.leaving.insert((*array, worker), Instant::now());
                }
                (Err(why), Some(job)) => {
                    job.words = format!("submit the worker's job: {}", printable(why.trim()));
                    job.alive = None;
                }
                (Err(_), None) => {}
            }
        }
    }

    /// Takes up what Slurm says of the jobs. `asked`: those that are younger may be missing.
    fn take_states(&mut self, states: &BTreeMap<queue::Task, queue::State>, asked: Instant) {
        for job in self.workers.values_mut() {
            let Some((task, _)) = job.task.filter(|(_, since)| *since < asked) else { continue };
            job.state = Some(states.get(&task).copied().unwrap_or(queue::State::Gone));
            match job.state {
                Some(queue::State::Failed(word)) => {
                    job.words = last_words(&log(self.folder, task));
                    if job.words.is_empty() {
                        job.words = format!("its job ended as {word}, and said nothing");
                    }
                    job.alive = None;
                }
                Some(queue::State::Cancelled | queue::State::Gone) => job.alive = None,
                _ => {}
            }
        }
        self.leaving.retain(|task, _| matches!(states.get(task), Some(queue::State::Waiting | queue::State::Running)));
    }

    /// Cancels jobs of workers that left and that are there for too long.
    fn cancel(&mut self) {
        let now = Instant::now();
        let due: Vec<queue::Task> = self.leaving.iter().filter(|(_, at)| **at <= now).map(|(task, _)| *task).collect();
        if due.is_empty() {
            return;
        }
        let mut command = Command::new("scancel");
        command.args(due.iter().map(|(array, index)| format!("{array}_{index}")));
        match Call::start(&mut command) {
            Ok(call) => self.cancellations.push(call),
            Err(error) => tracing::warn!("start scancel: {error}"),
        }
        for task in due {
            // Slurm kills what SIGTERM does not end.
            self.leaving.insert(task, now + GRACE);
        }
    }
}

/// The file with what a job writes.
fn log(folder: &Folder, (array, index): queue::Task) -> PathBuf {
    folder.jobs().join(format!("{array}_{index}.log"))
}

/// Cancels all jobs of this name.
fn cancel_all(name: &str) -> io::Result<()> {
    let hint = "Hint: run the campaign on a machine with Slurm's commands (Debian: slurm-client)";
    let call = Call::start(Command::new("scancel").arg(format!("--name={name}")));
    let call = call.map_err(|error| io::Error::new(error.kind(), format!("start scancel: {error}\n{hint}")))?;
    call.finish()?.map_err(|why| io::Error::other(format!("scancel: {}", printable(why.trim())))).map(drop)
}

/// The end of what a job wrote, without control characters. Empty where nothing can be read.
fn last_words(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(WORDS)))?;
        let mut bytes = Vec::new();
        file.take(WORDS).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    printable(String::from_utf8_lossy(&read().unwrap_or_default()).trim())
}

impl Fleet for Jobs<'_> {
    fn start(&mut self, workers: &[u32], start: u64) -> io::Result<Vec<OwnedFd>> {
        let call = Call::with_input(&mut self.sbatch(workers), &self.script(start)).map_err(|error| {
            io::Error::new(error.kind(), format!("start sbatch: {error}\nHint: run the campaign on a machine with Slurm's commands (Debian: slurm-client)"))
        })?;
        let mut watched = Vec::with_capacity(workers.len());
        for &worker in workers {
            let (reader, writer) = io::pipe()?;
            let job = Job { start, task: None, state: None, alive: Some(writer), words: String::new() };
            self.workers.insert(worker, job);
            watched.push(reader.into());
        }
        self.submissions.push(Submission { start, workers: workers.to_vec(), call });
        Ok(watched)
    }

    fn end(&mut self, worker: u32) -> String {
        let Some(Job { task, state, words, alive, .. }) = self.workers.remove(&worker) else { return String::new() };
        if let Some((task, _)) = task.filter(|_| words.is_empty()) {
            // It says nothing that anybody asked for. Best effort: the job may write a line yet.
            let _ = fs::remove_file(log(self.folder, task));
        }
        if let Some((task, _)) = task.filter(|_| alive.is_some()) {
            // One that runs takes its node down by itself: it has seen that the coordinator let it go.
            let pause = if state == Some(queue::State::Running) { GRACE } else { Duration::ZERO };
            self.leaving.insert(task, Instant::now() + pause);
        }
        words
    }

    fn look(&mut self) {
        self.take_numbers();
        self.cancellations.retain_mut(|call| matches!(call.ended(), Ok(None)));
        match self.look.as_mut().map(Call::ended) {
            None => {}
            Some(Ok(None)) => return,
            Some(ended) => {
                self.look = None;
                match ended {
                    Ok(Some(Ok(text))) => {
                        let asked = self.looked.unwrap_or_else(Instant::now);
                        self.take_states(&queue::states(&text), asked);
                    }
                    Ok(Some(Err(why))) => tracing::warn!("look at Slurm's queue: {why}"),
                    Err(error) => tracing::warn!("look at Slurm's queue: {error}"),
                    Ok(None) => {}
                }
            }
        }
        self.cancel();
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        if is_due && !(self.workers.is_empty() && self.leaving.is_empty()) {
            let mut command = Command::new("squeue");
            command.args(["--noheader", "--array", "--states=all", "--format=%F %K %T"]);
            command.arg(format!("--name={}", self.name));
            self.looked = Some(Instant::now());
            match Call::start(&mut command) {
                Ok(call) => self.look = Some(call),
                Err(error) => tracing::warn!("start squeue: {error}"),
            }
        }
    }
}

impl Drop for Jobs<'_> {
    fn drop(&mut self) {
        // Those on their way to Slurm are cancelled with the others, once they have arrived.
        for submission in self.submissions.drain(..) {
            let _ = submission.call.finish();
        }
        if let Err(error) = cancel_all(&self.name) {
            tracing::warn!("{error}");
        }
    }
}
