//! A job beside a scenario over several machines: its process waits for the beginning that the coordinator says.

use std::io::{self, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::process::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use slipway_sys::clone::SingleThread;

use super::beside::{Beside as Process, Bond, JobFailure, News, do_job, killed, read_outcome};
use super::folder::ScenarioError;
use super::perform::Beside;
use crate::lab::Running;
use crate::protocol::now;
use crate::state::StateRoot;

/// A job in a process of its own. Dropped, it ends.
#[derive(Debug)]
pub struct Awaiting {
    process: Option<Process>,
    begin: Option<PipeWriter>,
    outcome: Option<Result<Value, JobFailure>>,
}

impl Awaiting {
    /// Has a process wait for the job's beginning. The caller must have one thread.
    ///
    /// # Errors
    /// When there can be no more processes.
    pub fn prepare<T: Serialize>(root: &StateRoot, lab: &str, job: Beside<'_, T>) -> Result<Self, ScenarioError> {
        let prepare = || {
            let alone = SingleThread::check()?;
            let (mut said, begin) = io::pipe()?;
            let mut begin = Some(begin);
            let process = Process::start(alone, Bond::Tied, |teller| {
                // This process's copy: else it would wait for itself.
                begin = None;
                let mut at = [0; 8];
                // A coordinator that ends first never says it.
                if said.read_exact(&mut at).is_ok() {
                    std::thread::sleep(Duration::from_nanos(u64::from_ne_bytes(at).saturating_sub(now())));
                    do_job(Running::open(root, lab), job, teller);
                }
            })?;
            Ok::<_, io::Error>(Self { process: Some(process), begin, outcome: None })
        };
        prepare().map_err(ScenarioError::io("start the job"))
    }

    /// Has the job begin at a time of the monotonic clock, nanoseconds.
    ///
    /// # Errors
    /// When its process was killed.
    pub fn begin_at(&mut self, at: u64) -> io::Result<()> {
        self.begin.take().map_or(Ok(()), |mut begin| begin.write_all(&at.to_ne_bytes()))
    }

    /// Readable when there is something to [`hear`](Self::hear). `None`: the job is over.
    #[must_use]
    pub fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(Process::as_fd)
    }

    /// Hears how the job goes. `true`: it is over.
    ///
    /// # Errors
    /// When its process cannot be understood.
    pub fn hear(&mut self) -> io::Result<bool> {
        let Some(process) = &mut self.process else { return Ok(true) };
        let (news, ended) = process.hear()?;
        for news in news {
            if let News::Job(outcome) = news {
                self.outcome = Some(outcome);
            }
        }
        if ended {
            self.process = None;
        }
        Ok(ended)
    }

    /// Ends the job if it still runs, and gives its outcome.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn end<T: DeserializeOwned>(mut self) -> Result<Result<T, JobFailure>, ScenarioError> {
        self.finish().map_err(ScenarioError::io("wait for the job"))?;
        Ok(read_outcome(self.outcome.take().unwrap_or_else(killed)))
    }

    fn finish(&mut self) -> io::Result<()> {
        self.begin = None;
        if let Some(process) = &self.process {
            process.signal(Signal::TERM);
        }
        while !self.hear()? {}
        Ok(())
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        // Reached with a job left only by an error, which is what gets reported.
        let _ = self.finish();
    }
}
