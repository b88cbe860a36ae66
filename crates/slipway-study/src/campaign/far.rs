//! A worker's machine, where that is not the coordinator's: a node for the worker, and its calls to the coordinator.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Instant;

use rustix::process::Signal as ToSend;
use slipway_coordinator::Folder;
use slipway_coordinator::far::{self, End, Invitation, Joined};
use slipway_document::text::printable;
use slipway_engine::exec::{Child, Entry, Exit, Launcher, Program, Stdio};
use slipway_engine::lab::{self, Passing, Running, UpError};
use slipway_engine::state::StateError;
use slipway_lab::id::NodeId;
use slipway_lab::model;
use slipway_sys::signals::{ENDING, Taken};
use tempfile::TempDir;

use super::layout::{self, AGENT, CALL, OUT};
use super::{CampaignError, LOOK_AGAIN, PATIENCE, Study, engine};
use crate::{Events, Machine, Source, StudyError};

/// Most bytes of a worker's last words.
const WORDS: u64 = 4096;

/// Runs one worker of a campaign on this machine, in a node, until it has nothing more to do. `start`: which of the worker's
/// starts this is. The coordinator hears of an error, too.
///
/// # Errors
/// Where there is no such campaign, no node can be made, or the coordinator cannot be reached.
pub fn join(
    machine: &Machine,
    folder: &Path,
    worker: u32,
    start: u64,
    events: &mut Events<'_>,
) -> Result<(), CampaignError> {
    let invitation = invitation(folder)?;
    let mut place = match Place::up(machine, folder, worker, events) {
        Ok(place) => place,
        Err(error) => {
            say(&invitation, worker, start, &error.to_string());
            return Err(error);
        }
    };
    // Until all is down: batch systems ask more than once.
    let signals = Taken::new(&ENDING);
    let outcome = signals.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()));
    let outcome = outcome.map_err(|error| StudyError::io("take signals")(error).into());
    let outcome = outcome.and_then(|signals| place.work(&invitation, worker, start, signals));
    let down = place.passing.down().map_err(StudyError::from);
    // One that is not taken would end this process, when its account is still to be given.
    while signals.as_ref().is_ok_and(|signals| matches!(signals.take(), Ok(Some(_)))) {}
    outcome.and(Ok(down?))
}

/// Tells the coordinator why there is no worker on this machine.
///
/// # Errors
/// Where there is no such campaign.
pub fn decline(folder: &Path, worker: u32, start: u64, why: &str) -> Result<(), CampaignError> {
    say(&invitation(folder)?, worker, start, why);
    Ok(())
}

fn invitation(folder: &Path) -> Result<Invitation, CampaignError> {
    Ok(Invitation::read(&Folder::open(folder)?.invitation())?)
}

/// Best effort: the error is this process's, too.
fn say(invitation: &Invitation, worker: u32, start: u64, why: &str) {
    match far::join(invitation, worker, start) {
        Ok(joined) => leave(joined, &format!("failed to {why}")),
        Err(error) => tracing::warn!("tell the coordinator: {error}"),
    }
}

/// Leaves, with the machine's name before the words.
fn leave(joined: Joined, words: &str) {
    let host = host();
    joined.leave(&if words.is_empty() { String::new() } else { format!("on {host}: {words}") });
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A node for the worker.
struct Place {
    running: Running,
    passing: Passing,
    launcher: Launcher,
    socket: UnixListener,
    /// The folder of the socket.
    _folder: TempDir,
}

impl Place {
    fn up(machine: &Machine, path: &Path, worker: u32, events: &mut Events<'_>) -> Result<Self, CampaignError> {
        let study = Study::open(path)?;
        let (campaign, folder) = (&study.campaign, Folder::open(path)?);
        let environment = engine::environment(campaign, events)?;
        let call = tempfile::Builder::new().prefix("slipway-worker-").tempdir();
        let call = call.map_err(StudyError::io("make a folder for the worker's socket"))?;
        let socket = UnixListener::bind(call.path().join("socket"));
        let socket = socket.map_err(StudyError::io("make the worker's socket"))?;
        let name = layout::far_lab_name(campaign, path, worker);
        let mut mounts = layout::shared(&folder, environment.as_ref());
        mounts.push(layout::mount(call.path(), &format!("{CALL}:ro")));
        mounts.push(layout::mount(&folder.work(worker).join("out"), OUT));
        let file = layout::lab(&name, campaign, std::iter::once(("worker".to_owned(), mounts)));
        let source = in_job(Source::new(&name, file.to_string(), "/"));
        let lab = source.lab()?;
        let (running, passing) = up(machine, &lab).map_err(|error| source.refused(error))?;
        let launcher = Launcher::new().map_err(StudyError::io("prepare to start the worker"))?;
        Ok(Self { running, passing, launcher, socket, _folder: call })
    }

    /// Has the worker work until it ends, the coordinator does, or somebody asks this process to.
    fn work(&mut self, invitation: &Invitation, worker: u32, start: u64, signals: &Taken) -> Result<(), CampaignError> {
        let mut joined = far::join(invitation, worker, start)?;
        let outcome = self.carry(&mut joined, signals);
        match &outcome {
            Ok(words) => leave(joined, words),
            Err(error) => leave(joined, &format!("failed to {error}")),
        }
        outcome.map(drop)
    }

    /// Carries the worker's calls. Returns its last words; empty where it ended well.
    fn carry(&mut self, joined: &mut Joined, signals: &Taken) -> Result<String, CampaignError> {
        let (mut reader, writer) = io::pipe().map_err(StudyError::io("make a pipe"))?;
        let child = self.launch(writer.as_fd()).map_err(StudyError::io("start the worker"))?;
        // The pipe ends with the worker.
        drop(writer);
        let end = joined.carry(&self.socket, child.as_fd(), signals);
        if !matches!(end, Ok(End::Worker)) {
            // It may have ended just now.
            let _ = child.signal(ToSend::KILL);
        }
        let exit = child.wait().map_err(StudyError::io("await the worker"))?;
        if end? != End::Worker || exit == Exit::Code(0) {
            return Ok(String::new());
        }
        let mut words = Vec::new();
        reader.by_ref().take(WORDS).read_to_end(&mut words).map_err(StudyError::io("read the worker's words"))?;
        let words = printable(String::from_utf8_lossy(&words).trim());
        Ok(if words.is_empty() { "the worker ended, and said nothing".to_owned() } else { words })
    }

    /// Starts the worker's program in its node.
    fn launch(&self, errors: BorrowedFd<'_>) -> io::Result<Child> {
        let entry = Entry::to(&self.running, NodeId::from(0)).map_err(io::Error::other)?;
        let argv = [AGENT, "worker", "far"].map(Into::into).to_vec();
        let program = Program { argv, ..Program::default() };
        let null: OwnedFd = File::options().read(true).write(true).open("/dev/null")?.into();
        let pipes = Stdio::Descriptors([null.as_fd(), null.as_fd(), errors]);
        self.launcher.spawn(&entry, &program, pipes, None).map_err(io::Error::other)
    }
}

/// Brings the lab up. The worker's last one may still go down here.
fn up(machine: &Machine, lab: &model::Lab) -> Result<(Running, Passing), UpError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match lab::up_in_passing(machine, lab, &mut |_| {}) {
            Err(UpError::State(StateError::Taken(_))) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
            other => return other,
        }
    }
}

/// Has the node's control groups lie below those of the Slurm job that this process is in.
fn in_job(source: Source) -> Source {
    let job = std::env::var("SLURM_JOB_ID").ok().and_then(|id| id.parse().ok());
    let address = slipway_sys::interfaces::own_ipv4().ok().flatten();
    match (job, address) {
        (Some(job), Some(address)) => {
            let machine = model::Machine {
                name: "here".to_owned(),
                address,
                ssh: host(),
                cores: None,
                memory: None,
                labels: Vec::new(),
                job: Some(job),
            };
            source.on(vec![machine])
        }
        _ => source,
    }
}
