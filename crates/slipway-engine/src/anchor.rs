//! The anchor: the one process that a running lab hangs on.
//!
//! `up` forks it; it makes the lab, says how far it is, and then waits: for nodes that die, for requests to start or
//! halt a node, for the signal to end. It is single-threaded (it clones inits from itself) and quick to answer: whatever
//! needs patience, such as a node's grace time, is waited for by the command that wants it.
//!
//! Why a process and not files: namespaces bound into the file system, interfaces in the machine's own namespace and
//! pid files outlive a crash. What only descriptors and parents hold does not.

mod birth;
mod build;
mod error;
mod logs;
mod orphan;
mod pulse;
pub(crate) mod room;
mod serve;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use serde::{Deserialize, Serialize};
use slipway_lab::model::Lab;
use slipway_sys::clone::{Cloned, SingleThread, clone};
use slipway_sys::process::{close_inherited, detach};

use self::error::AnchorError;
use self::orphan::Watch;
use crate::condition::Links;
use crate::protocol::{self, Server, State};
use crate::state::{LabDir, LabLock};
use crate::tuning::Tunings;
use slipway_image::Rootfs;

/// All that an anchor works from.
#[derive(Debug)]
pub(crate) struct Blueprint {
    /// With the settings that profiles give its hosts and nodes.
    pub(crate) lab: Lab,
    pub(crate) tunings: Tunings,
    pub(crate) dir: LabDir,
    /// Indexed as the lab's images.
    pub(crate) images: Vec<Rootfs>,
    /// The program's file that nodes find at `/run/slipway/agent`.
    pub(crate) agent: PathBuf,
    /// The folder on disk that holds every node's `/scratch`.
    pub(crate) scratch: PathBuf,
    /// As the lab file asks for them, and found possible; nothing is made of them yet.
    pub(crate) links: Links,
    /// Held for as long as the anchor lives.
    pub(crate) lock: LabLock,
}

/// What an anchor tells the `up` that forked it, a JSON line each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// So many of the nodes are ready.
    Nodes(usize),
    /// The lab is up.
    Up,
    /// It is not, and what there was of it is gone.
    Failed(protocol::Error),
}

/// Where reports go. Silence on the other side means that `up` was killed, and a lab nobody asked for must not stay.
#[derive(Debug)]
pub(crate) struct Reporter(io::PipeWriter);

impl Reporter {
    pub(crate) fn say(&mut self, report: &Report) -> Result<(), AnchorError> {
        let mut line = serde_json::to_vec(report).expect("a report is plain data");
        line.push(b'\n');
        self.0.write_all(&line).map_err(|_| AnchorError::NoCaller)
    }
}

/// Forks the anchor. Returns, to the caller only, the anchor's descriptor and the pipe of its reports.
///
/// # Errors
/// When this process has more than one thread, or the kernel refuses.
pub(crate) fn fork(blueprint: &mut Blueprint) -> io::Result<(OwnedFd, io::PipeReader)> {
    let alone = SingleThread::check()?;
    let (reader, writer) = io::pipe()?;
    match clone(alone, nix::sched::CloneFlags::empty())? {
        Cloned::Child => {
            drop(reader);
            live(alone, blueprint, Reporter(writer))
        }
        Cloned::Parent { pidfd, .. } => Ok((pidfd, reader)),
    }
}

fn live(alone: SingleThread, blueprint: &mut Blueprint, mut reporter: Reporter) -> ! {
    let span = tracing::info_span!("anchor", lab = %blueprint.lab.name).entered();
    let outcome = settle(&blueprint.dir).map_err(AnchorError::system("settle the lab's anchor")).and_then(|()| {
        let mut watch = Watch::prepare(&blueprint.lab)?;
        let mut running = build::build(alone, blueprint, &mut watch, &mut reporter)?;
        let mut server =
            Server::open(&blueprint.dir.control()).map_err(AnchorError::system("open the control socket"))?;
        reporter.say(&Report::Up)?;
        serve::serve(alone, blueprint, &mut running, &mut server, &mut watch).map_err(AnchorError::system("wait"))
    });
    drop(span);
    match outcome {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            tracing::error!("{error}");
            let failed = protocol::Error::new(error.code(), error.to_string());
            // A pipe that is gone is one reason to be here.
            let _ = reporter.say(&Report::Failed(failed));
            std::process::exit(1)
        }
    }
}

/// Leaves the caller's session, terminal, working directory, descriptors and signals behind, and lets nobody trace it. The lab's log becomes
/// standard error, for the anchor and for those of its helpers that have no log of their own.
fn settle(dir: &LabDir) -> io::Result<()> {
    detach()?;
    close_inherited();
    // Its children inherit this, and have it from their first instruction on: some are in nodes.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let log = File::options().create(true).append(true).mode(0o600).open(dir.join("anchor.log"))?;
    rustix::stdio::dup2_stderr(&log)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::thread::set_name(c"slipway-anchor")?;
    // Daemons that drivers start, and anything orphaned outside nodes, are reaped here.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut waited_for = SigSet::empty();
    waited_for.add(Signal::SIGCHLD);
    waited_for.add(Signal::SIGTERM);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&waited_for), None)?;
    Ok(())
}

impl Blueprint {
    fn write(&self, state: &State) -> Result<(), AnchorError> {
        Ok(self.dir.write_state(state)?)
    }
}
