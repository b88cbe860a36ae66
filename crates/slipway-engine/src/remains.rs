//! Removal of everything that outlives a lab's anchor. Errors are collected: one thing that stays must not keep the rest.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use slipway_sys::cgroup::CgroupError;

use crate::hierarchy::of_lab;
use crate::network::NetworkError;
use crate::state::{LabDir, StateError};
use crate::{disk, network};

/// How long the anchor may take to end, once asked and once killed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

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

/// Removes everything of a lab that outlives its anchor. The caller holds the lab's lock.
pub(crate) fn clean(dir: &LabDir) -> Result<(), DownError> {
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
