//! Taking a lab down, whatever state it is in. Errors are collected: one thing that stays must not keep the rest.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Serialize;
use slipway_sys::cgroup::{CgroupError, Hierarchy};

use crate::hierarchy::of_lab;
use crate::network::NetworkError;
use crate::state::{LabDir, StateError, StateRoot};
use crate::{disk, network};

/// Parts of a lab that could not be removed: at least one.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct DownError(Vec<Remains>);

/// A part of a lab that could not be removed. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum Remains {
    /// The state folder, or the lab's lock.
    #[error(transparent)]
    State(#[from] StateError),
    /// Control groups, or limits of devices.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// Devices on this machine's own network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The kernel refused something about the anchor.
    #[error("end the lab's anchor: {0}")]
    Anchor(io::Error),
    /// The anchor of this number was killed and is still there.
    #[error("end the lab's anchor, process {0}: it does not die")]
    Undead(i32),
    /// Loop devices on files in this folder.
    #[error("free loop devices of {}: {source}", scratch.display())]
    Loops {
        /// The folder with the `/scratch` of the lab's nodes.
        scratch: PathBuf,
        /// The error of the action.
        source: io::Error,
    },
    /// A folder.
    #[error("remove {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the action.
        source: io::Error,
    },
}

impl From<Remains> for DownError {
    fn from(one: Remains) -> Self {
        Self(vec![one])
    }
}

impl From<StateError> for DownError {
    fn from(error: StateError) -> Self {
        Remains::from(error).into()
    }
}

impl From<CgroupError> for DownError {
    fn from(error: CgroupError) -> Self {
        Remains::from(error).into()
    }
}

/// What `down` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The lab.
    pub lab: String,
    /// True where it was running, false where a crash had left it.
    pub was_running: bool,
}

/// How long the anchor may take to end, once asked and once killed.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at a lock: nothing announces its release without taking it.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Takes the lab `name` down. `None` where there was nothing of that name. Waits for another holder of the lab, for as
/// long as `patience` says.
#[tracing::instrument(level = "info", skip_all, fields(lab = name), err(level = "debug"))]
pub fn down(root: &StateRoot, name: &str, patience: Duration) -> Result<Option<Removed>, DownError> {
    if !leftovers(root)?.iter().any(|known| known == name) {
        return Ok(None);
    }
    let dir = root.lab(name);
    // Best effort here: what is left on a disk is written before its anchor ends, at whatever rate it may.
    let _ = disk::lift(&dir, &dir.scratch());
    let mut was_running = false;
    let deadline = Instant::now() + patience;
    // Held by the anchor until it is dead, by an `up` until it has failed, by another `down` until it is done. An `up` at
    // work may have an anchor when one looks again, and that would hold the lock for as long as the lab runs.
    let lock = loop {
        was_running |= end_anchor(&dir)?;
        match root.try_lock(name) {
            Err(StateError::Taken(_)) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
            Err(StateError::Taken(_)) => return Err(root.held(name, patience).into()),
            other => break other?,
        }
    };
    clean(&dir)?;
    lock.remove()?;
    Ok(Some(Removed { lab: name.to_owned(), was_running }))
}

/// Names of all labs of which there is anything: a folder, a lock, control groups, loop devices.
pub fn leftovers(root: &StateRoot) -> Result<Vec<String>, DownError> {
    let mut names = root.labs()?;
    if let Ok(cgroups) = Hierarchy::detect() {
        names.extend(cgroups.find_all()?.iter().filter_map(|name| root.own(name)).map(str::to_owned));
    }
    let scratch = root.scratch();
    for (_, file) in slipway_sys::block::attached(&scratch).unwrap_or_default() {
        let lab = file.strip_prefix(&scratch).ok().and_then(|file| file.iter().next()?.to_str());
        names.extend(lab.and_then(|name| root.own(name)).map(str::to_owned));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

#[tracing::instrument(level = "debug", skip_all, err(level = "debug"))]
fn end_anchor(dir: &LabDir) -> Result<bool, DownError> {
    let Ok(state) = dir.read_state() else { return Ok(false) };
    let Some(pidfd) = state.anchor.open().map_err(Remains::Anchor)? else { return Ok(false) };
    // Asked, it ends its nodes and collects them. Stopped, stuck or still building, it is killed, and the kernel ends
    // its children with it.
    for signal in [Signal::TERM, Signal::KILL] {
        rustix::process::pidfd_send_signal(&pidfd, signal).map_err(|error| Remains::Anchor(error.into()))?;
        if slipway_sys::process::wait_for_end(&pidfd, PATIENCE).map_err(Remains::Anchor)? {
            return Ok(true);
        }
    }
    Err(Remains::Undead(state.anchor.pid).into())
}

/// Removes everything of a lab that outlives its anchor. The caller holds the lab's lock.
pub(super) fn clean(dir: &LabDir) -> Result<(), DownError> {
    let mut errors = Vec::new();
    let mut note = |result: Result<(), Remains>| errors.extend(result.err());
    let scratch = dir.scratch();
    note(disk::lift(dir, &scratch).map_err(Remains::from));
    note(remove_groups(dir).map_err(Remains::from));
    note(remove_devices(dir).map_err(Remains::from));
    note(disk::detach(&scratch).map_err(|source| Remains::Loops { scratch: scratch.clone(), source }));
    note(match fs::remove_dir_all(&scratch) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Remains::Folder { path: scratch.clone(), source })
        }
        _ => Ok(()),
    });
    // Last: while it is there, `down --all` finds the lab.
    note(dir.remove().map_err(Remains::from));
    if errors.is_empty() { Ok(()) } else { Err(DownError(errors)) }
}

/// Waits for devices on this machine's own network to go. Those of virtual hosts are in namespaces that nobody sees.
fn remove_devices(dir: &LabDir) -> Result<(), NetworkError> {
    let (Ok(lab), Ok(state)) = (dir.read_lab(), dir.read_state()) else { return Ok(()) };
    if lab.machine { network::wait_until_gone(state.anchor.pid.cast_unsigned(), PATIENCE) } else { Ok(()) }
}

/// Ends whatever still runs in the lab's control groups and removes them. A machine without any has nothing to remove.
fn remove_groups(dir: &LabDir) -> Result<(), CgroupError> {
    let Ok(cgroups) = of_lab(dir) else { return Ok(()) };
    let Some(group) = cgroups.open_lab(dir.shared_name())? else { return Ok(()) };
    group.kill()?;
    group.remove()?;
    cgroups.remove_top()
}
