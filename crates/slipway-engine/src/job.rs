//! Jobs: a program on several nodes at once, or a parallel program over them.
//!
//! A **plain** job executes its command on every node it names. An **MPI** job executes the implementation's own launcher
//! on the first node; that launcher reaches the others through [`agent`], Slipway in the part of `ssh`, which hands the
//! command and its standard input and output over a socket to this process, which enters the node ([`service`]).
//!
//! A node on another machine has a [part] of the job there. The remote shell carries its programs' streams over one
//! [link], so nothing on the lab's network changes, and a machine's ssh server meets one connection a job.
//!
//! In each node a job has a control group of its own, so that its end is the end of everything that it started; where this
//! process is killed, by its [guard](crate::guard).

pub mod agent;
mod attend;
mod far;
mod link;
mod local;
mod mpi;
mod node_file;
mod nodes;
mod output;
mod part;
mod parts;
mod protocol;
pub mod rank;
mod service;

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use slipway_lab::id::NodeId;
use slipway_lab::model::{Job, Lab};
use slipway_sys::cgroup::CgroupError;

use crate::exec::{ExecError, Exit, Launcher, Program};
use crate::lab::{LabError, Running};
use crate::rsh::RshError;
use attend::{Attention, Task};
use local::Locals;
use node_file::{NodeFile, Written};
use nodes::{Nodes, Place};
use parts::Parts;
use service::Service;

pub use link::frame;
pub use output::{Line, Stream};
pub use part::serve;

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
    /// A part on another machine did not do as asked.
    #[error("{reason}")]
    Elsewhere {
        /// The exit code, as a shell's.
        code: u8,
        /// The reason, with its hint.
        reason: String,
    },
    /// The way to other machines.
    #[error(transparent)]
    Rsh(#[from] RshError),
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

    fn nobody_here(lab: &Running, job: &Job) -> Self {
        let machines = job.nodes.iter().map(|&node| &lab.lab.machines[lab.lab.machine_of(node)].name);
        let machine = machines.map(String::as_str).next().unwrap_or_default();
        Self::Impossible(format!(
            "none of its nodes is on this machine, and an MPI launcher starts in one that is\nHint: run it on machine {machine}, or add a node of this machine to --on"
        ))
    }

    /// The exit code that fits: a shell's for programs that did not start, 125 otherwise.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Exec(error) => error.code(),
            Self::Elsewhere { code, .. } => *code,
            _ => 125,
        }
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
    let mut locals = Locals::default();
    let mut places = Vec::new();
    for &node in &job.nodes {
        places.push(Place::open(lab, node, &name, &mut locals)?);
    }
    let in_nodes = lab.dir().join("node");
    let shared = in_nodes.join(&name);
    let node_file = NodeFile::of(&lab.lab, job);
    let written = node_file.as_ref().map(|file| file.write(&in_nodes)).transpose();
    let written = written.map_err(JobError::io("write the node file"))?;
    locals.post(|| {
        let _ = fs::remove_dir_all(&shared);
        written.iter().for_each(Written::remove);
    })?;
    let parts = Parts::open(lab, &job.nodes, node_file.as_ref())?;
    let before: Vec<u64> = locals.all.iter().map(local::Local::sent).collect();
    let started = Instant::now();
    let program = Program {
        argv: job.command.iter().map(Into::into).collect(),
        env: job.env.clone().into_iter().chain(node_file.iter().map(NodeFile::variable)).collect(),
        workdir: job.workdir.clone(),
        user: None,
    };
    let (tasks, service) = match job.mpi {
        None => ((0..places.len()).map(|place| Task { place, variants: vec![program.clone()] }).collect(), None),
        Some(mpi) => {
            let first = places.iter().position(Place::is_here).ok_or_else(|| JobError::nobody_here(lab, job))?;
            let service = Service::open(&shared, &program.env)?;
            let launch =
                mpi::launch(&lab.lab, job, mpi, &service.seen_from_nodes(), || lab.joins_by_verbs(&job.nodes))?;
            service.write("hosts", &launch.hosts)?;
            let mut of_launcher = program;
            of_launcher.env.extend(launch.env.into_iter().chain([service.variable()]));
            let variants = launch.commands.into_iter().map(|argv| Program { argv, ..of_launcher.clone() }).collect();
            (vec![Task { place: first, variants }], Some(service))
        }
    };
    let timeout = job.timeout.map(|seconds| Duration::from_secs_f64(seconds.0.max(0.0)));
    let deadline = timeout.map(|after| started + after);
    let nodes = Nodes { launcher: &launcher, places: &places, locals: &locals.all, parts };
    let mut attention = Attention::new(nodes, folder, service, deadline)?;
    let (ended, exits) = attention.run(&tasks, line)?;
    let seconds = started.elapsed().as_secs_f64();
    let sent: Vec<u64> = places.iter().map(|place| attention.sent(place, &before)).collect();
    drop(attention);
    locals.end()?;
    Ok(Outcome {
        code: code(ended, &exits),
        ended,
        seconds,
        programs: ran(&places, &tasks, &exits),
        notes: notes(&lab.lab, job, &sent),
        sent,
    })
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
    let one = |(task, exit): (usize, Exit)| Ran { node: places[tasks[task].place].name.clone(), code: exit.code() };
    exits.into_iter().map(one).collect()
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
}
