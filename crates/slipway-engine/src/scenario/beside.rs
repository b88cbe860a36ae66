//! Processes beside the player, for what takes its time: a grace time, programs in nodes, the job.
//!
//! Processes and not threads, because whoever starts programs in nodes must be single-threaded (see [`crate::exec`]).

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sched::CloneFlags;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use slipway_sys::clone::{Cloned, SingleThread, clone};
use slipway_sys::process;

use super::error::Account;
use crate::job::JobError;
use crate::lab::{LabError, Running};

/// A process that does something for the player and tells how it goes.
#[derive(Debug)]
pub(super) struct Beside {
    pid: Pid,
    pidfd: OwnedFd,
    pipe: PipeReader,
    unread: Vec<u8>,
}

/// What such a process tells, a JSON line each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum News {
    /// What the event asked for has taken effect, or could not be done.
    Finished(Result<(), Account>),
    /// Its programs have ended, each in a node, with a code.
    Ended(Vec<(String, u8)>),
    /// The job has ended, and came to this.
    Job(Result<Value, JobFailure>),
}

/// Why a job did not run, over a pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFailure {
    /// As [`crate::job::JobError`] says it.
    pub account: String,
    /// As [`crate::job::JobError::code`] says it.
    pub code: u8,
}

impl From<JobError> for JobFailure {
    fn from(error: JobError) -> Self {
        Self { account: error.to_string(), code: error.code() }
    }
}

/// Where such a process tells it. A player that is gone hears nothing, and that is all.
#[derive(Debug)]
pub(super) struct Teller(PipeWriter);

impl Teller {
    pub(super) fn tell(&mut self, news: &News) {
        let mut line = serde_json::to_vec(news).expect("news are plain data");
        line.push(b'\n');
        let _ = self.0.write_all(&line);
    }
}

/// Does a job on the lab that this process opened for itself, and tells the outcome.
pub(super) fn do_job<T: Serialize>(
    running: Result<Running, LabError>,
    job: impl FnOnce(&Running) -> Result<T, JobFailure>,
    teller: &mut Teller,
) {
    let failure = |account: String| JobFailure { account, code: 125 };
    let outcome = running.map_err(|error| failure(error.to_string())).and_then(|running| job(&running));
    let outcome = outcome.and_then(|outcome| {
        serde_json::to_value(outcome).map_err(|error| failure(format!("tell what the job came to: {error}")))
    });
    teller.tell(&News::Job(outcome));
}

/// The outcome that such a process told.
pub(super) fn read_outcome<T: DeserializeOwned>(told: Result<Value, JobFailure>) -> Result<T, JobFailure> {
    serde_json::from_value(told?)
        .map_err(|error| JobFailure { account: format!("read what the job came to: {error}"), code: 125 })
}

/// The outcome of a job whose process told none.
pub(super) fn killed() -> Result<Value, JobFailure> {
    Err(JobFailure { account: "run the job: its process was killed".to_owned(), code: 125 })
}

/// Whether a process ends with the player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bond {
    /// It does, however the player ends.
    Tied,
    /// It goes on.
    Free,
}

impl Beside {
    /// Has `work` done in a process of its own, which first has to let go of what only the player may hold.
    pub(super) fn start(alone: SingleThread, bond: Bond, work: impl FnOnce(&mut Teller)) -> io::Result<Self> {
        let (pipe, writer) = io::pipe()?;
        let player = pidfd_open(getpid(), PidfdFlags::empty())?;
        match clone(alone, CloneFlags::empty())? {
            Cloned::Parent { pid, pidfd } => Ok(Self { pid, pidfd, pipe, unread: Vec::new() }),
            Cloned::Child => {
                drop(pipe);
                // A session of its own: Ctrl-C is the player's, who knows what is to end and what is to be awaited.
                let _ = rustix::process::setsid();
                if bond == Bond::Tied && process::end_with(player).is_err() {
                    std::process::exit(1);
                }
                work(&mut Teller(writer));
                std::process::exit(0)
            }
        }
    }

    /// Its number.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends it a signal; that it has ended is fine.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// What it has told by now. `true`: there will be no more, and it has been collected.
    pub(super) fn hear(&mut self) -> io::Result<(Vec<News>, bool)> {
        let mut chunk = [0; 4096];
        let count = self.pipe.read(&mut chunk)?;
        self.unread.extend_from_slice(&chunk[..count]);
        let mut news = Vec::new();
        while let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            news.push(serde_json::from_slice(&line)?);
        }
        if count == 0 {
            process::reap(&self.pidfd)?;
        }
        Ok((news, count == 0))
    }
}

impl AsFd for Beside {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
