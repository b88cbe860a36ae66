//! Taking a lab down, whatever state it is in. Errors are collected: one thing that stays must not keep the rest.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Serialize;
use slipway_sys::cgroup::Hierarchy;

use crate::disk;
use crate::remains::{DownError, PATIENCE, Remains, clean};
use crate::state::{LabDir, StateError, StateRoot};

/// What `down` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The lab.
    pub lab: String,
    /// True where it was running, false where a crash had left it.
    pub was_running: bool,
}

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
