//! Jobs: a program on several nodes at once, or a parallel program over them.
//!
//! A **plain** job executes its command on every node it names. An **MPI** job executes the implementation's own launcher
//! on the first node; that launcher reaches the others through [`agent`], Slipway in the part of `ssh`, which hands the
//! command and its standard input and output over a socket to this process, which enters the node ([`service`]).
//!
//! In each node a job has a control group of its own, so that its end is the end of everything that it started; where this
//! process is killed, by its [guard](crate::guard).

pub mod agent;
mod attend;
mod mpi;
mod output;
mod protocol;
mod service;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use slipway_lab::id::NodeId;
use slipway_lab::model::{Job, Lab};
use slipway_sys::cgroup::{CgroupError, Group};

use crate::exec::{Entry, ExecError, Exit, Launcher, Program};
use crate::guard::Guard;
use crate::lab::{LabError, Running};
use attend::{Attention, Task};
use service::Service;

pub use output::{Line, Stream};

/// Why a job did not run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The lab or one of the nodes does not run.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A program did not start. Those that had were ended.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// Control groups.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// The job cannot be, whatever the machine.
    #[error("run the job: {0}")]
    Impossible(String),
    /// A file or a system call.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// The answer.
        source: io::Error,
    },
}

impl JobError {
    fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// The exit code that fits: a shell's for programs that did not start, 125 otherwise.
    #[must_use]
    pub fn code(&self) -> u8 {
        if let Self::Exec(error) = self { error.code() } else { 125 }
    }
}

/// What ended a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// Its programs did.
    Itself,
    /// Its time was over.
    Timeout,
    /// A signal to this process, by number.
    Signal(u8),
}

/// A job that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The job's exit code: that of the first program to fail, 124 after a timeout, 128 and the signal's number after one.
    pub code: u8,
    /// What ended it.
    pub ended: Ended,
    /// From the first program's start to the last one's end, seconds.
    pub seconds: f64,
    /// Programs that this process started by itself, in order; for MPI the launcher.
    pub programs: Vec<Ran>,
    /// What each node sent over its networks meanwhile, bytes, in the job's order. On driver `host`, what its host sent.
    pub sent: Vec<u64>,
    /// What to know before trusting the result.
    pub notes: Vec<String>,
}

/// A program that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Where.
    pub node: String,
    /// With what exit code.
    pub code: u8,
}

/// A node of the job.
#[derive(Debug)]
struct Place {
    entry: Entry,
    /// The job's own group in the node.
    group: Option<Group>,
    addresses: Vec<std::net::IpAddr>,
    /// The node's PID namespace, by inode.
    namespace: u64,
}

/// Runs a job on a running lab and waits for it. Each line that a program prints goes to `line`, and into
/// `folder/NODE.stdout` and `NODE.stderr`. Programs read nothing.
///
/// The caller must have one thread. `SIGINT`, `SIGTERM` and `SIGHUP` end the job.
///
/// # Errors
/// When it cannot be started; then nothing of it runs.
#[tracing::instrument(level = "info", skip_all, fields(lab = %lab.lab.name), err(level = "debug"))]
pub fn run(lab: &Running, job: &Job, folder: &Path, line: &mut dyn FnMut(Line<'_>)) -> Result<Outcome, JobError> {
    if job.nodes.is_empty() {
        return Err(JobError::Impossible("it names no nodes\nHint: leave `nodes` out to run on all".to_owned()));
    }
    fs::create_dir_all(folder).map_err(JobError::io(format!("make {}", folder.display())))?;
    let launcher = Launcher::new().map_err(JobError::io("prepare to start programs"))?;
    let name = format!("job-{}", std::process::id());
    let mut places = Places::default();
    for &node in &job.nodes {
        places.all.push(place(lab, node, &name)?);
    }
    let shared = lab.dir().join("node").join(&name);
    let guard = Guard::post(|| {
        // Whom could it tell? What stays, `down` finds.
        let _ = places.end();
        let _ = fs::remove_dir_all(&shared);
    });
    places.guard = Some(guard.map_err(JobError::io("post the job's guard"))?);
    let before: Vec<u64> = places.all.iter().map(sent).collect();
    let started = Instant::now();
    let program = Program {
        argv: job.command.iter().map(Into::into).collect(),
        env: job.env.clone(),
        workdir: job.workdir.clone(),
        user: None,
    };
    let (tasks, service) = match job.mpi {
        None => ((0..places.all.len()).map(|place| Task { place, variants: vec![program.clone()] }).collect(), None),
        Some(mpi) => {
            let service = Service::open(&shared, &job.env)?;
            let launch =
                mpi::launch(&lab.lab, job, mpi, &service.seen_from_nodes(), || lab.joins_by_verbs(&job.nodes))?;
            service.write("hosts", &launch.hosts)?;
            let mut of_launcher = program;
            of_launcher.env.extend(launch.env.into_iter().chain([service.variable()]));
            let variants = launch.commands.into_iter().map(|argv| Program { argv, ..of_launcher.clone() }).collect();
            (vec![Task { place: 0, variants }], Some(service))
        }
    };
    let timeout = job.timeout.map(|seconds| Duration::from_secs_f64(seconds.0.max(0.0)));
    let attention = Attention::new(&launcher, &places.all, folder, service, timeout.map(|after| started + after))?;
    let (ended, exits) = attention.run(&tasks, line)?;
    let seconds = started.elapsed().as_secs_f64();
    let sent: Vec<u64> =
        places.all.iter().zip(before).map(|(place, before)| sent(place).saturating_sub(before)).collect();
    places.end()?;
    Ok(Outcome {
        code: code(ended, &exits),
        ended,
        seconds,
        programs: ran(&places.all, &tasks, &exits),
        notes: notes(&lab.lab, job, &sent),
        sent,
    })
}

fn place(lab: &Running, node: NodeId, job: &str) -> Result<Place, JobError> {
    let entry = Entry::to(lab, node)?;
    let group = entry.group.as_ref().map(|group| group.create_within(job)).transpose()?;
    let namespace =
        service::pid_namespace(entry.init.pid).map_err(JobError::io(format!("look at node {}", entry.node)))?;
    let interfaces = &lab.lab.nodes[node].interfaces;
    let v4 = interfaces.iter().map(|interface| interface.ipv4.into());
    let v6 = interfaces.iter().filter_map(|interface| interface.ipv6.map(Into::into));
    Ok(Place { entry, group, addresses: v4.chain(v6).collect(), namespace })
}

/// The job's places, emptied however the job ends.
#[derive(Debug, Default)]
struct Places {
    all: Vec<Place>,
    guard: Option<Guard>,
}

impl Places {
    fn end(&mut self) -> Result<(), JobError> {
        let groups: Vec<Group> = self.all.iter_mut().filter_map(|place| place.group.take()).collect();
        let results: Vec<_> = groups.into_iter().map(|group| group.kill().and_then(|()| group.remove())).collect();
        self.guard = None;
        Ok(results.into_iter().collect::<Result<(), _>>()?)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // Reached with groups left only by an error, which is what gets reported.
        let _ = self.end();
    }
}

/// When each program ended, in the order in which they did.
type Exits = Vec<(usize, Exit)>;

fn code(ended: Ended, exits: &Exits) -> u8 {
    match ended {
        Ended::Timeout => 124,
        Ended::Signal(number) => number.saturating_add(128),
        Ended::Itself => exits.iter().map(|(_, exit)| exit.code()).find(|&code| code != 0).unwrap_or(0),
    }
}

fn ran(places: &[Place], tasks: &[Task], exits: &Exits) -> Vec<Ran> {
    let mut exits = exits.clone();
    exits.sort_by_key(|(task, _)| *task);
    let one =
        |(task, exit): (usize, Exit)| Ran { node: places[tasks[task].place].entry.node.clone(), code: exit.code() };
    exits.into_iter().map(one).collect()
}

/// What the devices of a node's network namespace have sent, but for loopback (`proc_pid_net(5)`, `dev`), bytes.
fn sent(place: &Place) -> u64 {
    let path = PathBuf::from(format!("/proc/{}/net/dev", place.entry.init.pid));
    fs::read_to_string(path).map_or(0, |table| sum_sent(&table))
}

fn sum_sent(table: &str) -> u64 {
    let devices =
        table.lines().skip(2).filter_map(|line| line.trim().split_once(':')).filter(|(name, _)| *name != "lo");
    devices.filter_map(|(_, counts)| counts.split_whitespace().nth(8)?.parse::<u64>().ok()).sum()
}

/// A parallel program that talked past the network measured something else.
fn notes(lab: &Lab, job: &Job, sent: &[u64]) -> Vec<String> {
    let own = |node: &NodeId| {
        lab.nodes[*node]
            .interfaces
            .iter()
            .map(|interface| &lab.networks[interface.network])
            .all(|network| network.driver != slipway_lab::model::DriverKind::Host && network.bypasses.is_empty())
    };
    let silent =
        job.mpi.is_some() && sent.len() > 1 && job.nodes.iter().all(own) && sent.iter().all(|&bytes| bytes == 0);
    silent
        .then(|| {
            "no node sent anything over its network: the program ran on one node, or its ranks talked another way"
                .to_owned()
        })
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_the_jobs() {
        let exits = vec![(2, Exit::Code(0)), (0, Exit::Signal(9)), (1, Exit::Code(3))];
        assert_eq!(code(Ended::Itself, &exits), 137);
        assert_eq!(code(Ended::Itself, &vec![(0, Exit::Code(0))]), 0);
        assert_eq!(code(Ended::Timeout, &exits), 124);
        assert_eq!(code(Ended::Signal(2), &exits), 130);
    }

    #[test]
    fn loopback_is_not_the_network() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
                     lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n  eth0: 5 1 0 0 0 0 0 0 42 1 0 0 0 0 0 0\n  eth1:7 1 0 0 0 0 0 0 58 1 0 0 0 0 0 0\n";
        assert_eq!(sum_sent(table), 100);
    }
}
