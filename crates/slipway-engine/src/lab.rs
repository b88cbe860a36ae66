//! The lab from outside: bring it up, look at it, change a node, take it down.

mod check;
mod down;
mod end;
mod enter;
pub(crate) mod freeze;
mod give;
mod limits;
mod links;
mod log;
mod programs;
mod refused;
mod scratch;
mod tune;
mod up;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_sys::cgroup::{Group, Hierarchy, Usage};
use slipway_sys::process::ProcessId;

pub use crate::remains::{DownError, Remains};
pub use check::check;
pub use down::{Removed, down, leftovers};
pub use give::{Changing, Given};
pub use limits::{Resources, undo};
pub use log::NodeLog;
pub use programs::OwnProgram;
pub use refused::UpError;
pub use tune::{TuningError, tunings};
pub use up::{Passing, Progress, up, up_in_passing};

use crate::bypasses;
use crate::hierarchy::of_lab;
use crate::protocol::{self, CallError, Descriptor, Operation, Request, State};
use crate::state::{LabDir, NodeStatus, StateError, StateRoot};

/// Something asked of a running lab that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
    /// Control groups.
    #[error(transparent)]
    Cgroup(#[from] slipway_sys::cgroup::CgroupError),
    /// A node's disk.
    #[error(transparent)]
    Disk(#[from] crate::disk::DiskError),
    /// The anchor cannot be reached.
    #[error(
        "ask the anchor of lab `{lab}`: {source}\nHint: its process is gone or stuck; `slipway down {lab}` removes what is left"
    )]
    Anchor {
        /// The lab.
        lab: String,
        /// Why.
        source: io::Error,
    },
    /// It cannot be done.
    #[error("{0}")]
    Refused(String),
    /// The anchor answered that it could not.
    #[error(transparent)]
    Answered(#[from] protocol::Error),
    /// Connections or sockets of the fast path could not be looked at.
    #[error(transparent)]
    Fast(#[from] crate::fast::FastError),
    /// The machine gave the lab no control groups.
    #[error(
        "freeze, thaw or limit node `{0}`: it has no control group, since none may be made here\nHint: run as root outside of a user namespace, or have a control group delegated"
    )]
    NoGroup(String),
    /// There is nothing that would print.
    #[error(
        "show the log of node `{0}`: it has no program of its own\nHint: `command` in the lab file gives it one; what `exec` and `run` start prints where they were called"
    )]
    NoProgram(String),
    /// The node has no processes now.
    #[error("reach node `{node}`: it is {status}\nHint: `slipway start {lab} {node}` starts it")]
    NotRunning {
        /// The lab.
        lab: String,
        /// The node.
        node: String,
        /// `stopped` or `dead`.
        status: String,
    },
}

/// A lab that runs, opened by name.
#[derive(Debug)]
pub struct Running {
    dir: LabDir,
    /// The resolved lab.
    pub lab: Lab,
    /// As it was when the lab was opened.
    pub state: State,
    cgroups: Option<Hierarchy>,
}

/// A node's row in `ps`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    /// The node.
    pub name: String,
    /// `running`, `frozen`, `stopped` or `dead`.
    pub status: String,
    /// Its virtual host.
    pub host: String,
    /// The image's name.
    pub image: String,
    /// PID 1 of the node, seen from the machine.
    pub pid: Option<i32>,
    /// Address on each network, in order.
    pub addresses: Vec<String>,
    /// What its processes use now. `None` where it has none.
    pub usage: Option<Usage>,
    /// Its own program (`command`). `None` where it has none.
    pub program: Option<OwnProgram>,
}

impl Running {
    /// Opens a lab by name.
    ///
    /// # Errors
    /// When there is no such lab, or it is not (or no longer) wholly up.
    pub fn open(root: &StateRoot, name: &str) -> Result<Self, LabError> {
        let dir = root.lab(name);
        let (lab, state) = (dir.read_lab()?, dir.read_state()?);
        if !state.ready || !state.anchor.is_alive() {
            return Err(StateError::NotRunning(name.to_owned()).into());
        }
        let cgroups = of_lab(&dir).ok();
        Ok(Self { dir, lab, state, cgroups })
    }

    /// Whether it still is: another process may take it down at any time.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state.anchor.is_alive()
    }

    /// The lab's folder.
    #[must_use]
    pub fn dir(&self) -> &LabDir {
        &self.dir
    }

    /// The init of a node, for whoever wants to enter it.
    ///
    /// # Errors
    /// When the node has none.
    pub fn init(&self, node: NodeId) -> Result<ProcessId, LabError> {
        let state = &self.state.nodes[node];
        match state.init.filter(|init| init.is_alive()) {
            Some(init) => Ok(init),
            None => Err(LabError::NotRunning {
                lab: self.lab.name.clone(),
                node: self.lab.nodes[node].name.clone(),
                status: if state.status == NodeStatus::Stopped { "stopped" } else { "dead" }.to_owned(),
            }),
        }
    }

    /// The control group of a node; `None` where this machine lets us make none.
    ///
    /// # Errors
    /// When the kernel refuses to show it.
    pub fn group(&self, node: NodeId) -> Result<Option<Group>, LabError> {
        match &self.cgroups {
            Some(cgroups) => Ok(cgroups.open_node(self.dir.shared_name(), &self.lab.nodes[node].name)?),
            None => Ok(None),
        }
    }

    /// The control group of a node, for what cannot be done without.
    fn need_group(&self, node: NodeId) -> Result<Group, LabError> {
        self.group(node)?.ok_or_else(|| LabError::NoGroup(self.lab.nodes[node].name.clone()))
    }

    /// What a node has written to its root so far: the upper directory of its overlay, reached through the anchor, in
    /// whose mount namespace it lies.
    pub fn upper(&self, node: NodeId) -> Result<OwnedFd, LabError> {
        let (upper, _) = crate::node::rootfs::upper(&self.dir, &self.lab.nodes[node].name);
        let path = format!("/proc/{}/root{}", self.state.anchor.pid, upper.display());
        let opened = File::open(path).map_err(|source| self.anchor_error(source))?;
        // Looked at after the open: had the pid been recycled before it, the anchor would be gone now.
        if !self.state.anchor.is_alive() {
            return Err(StateError::NotRunning(self.lab.name.clone()).into());
        }
        Ok(opened.into())
    }

    /// What a node's root has from the lab, as paths in it: no change of the node's.
    #[must_use]
    pub fn furnished(&self, node: NodeId) -> BTreeSet<PathBuf> {
        let needs = bypasses::needs(&self.dir, &self.lab, &self.state.routers, node);
        crate::node::rootfs::furnished(&self.lab.nodes[node], &needs.mounts)
    }

    /// All nodes on this machine, as they are now, in order.
    pub fn rows(&self) -> Result<Vec<NodeRow>, LabError> {
        self.lab.nodes_here().into_iter().map(|index| self.row(index)).collect()
    }

    /// One node, as it is now.
    pub fn row(&self, index: NodeId) -> Result<NodeRow, LabError> {
        let (node, state) = (&self.lab.nodes[index], &self.state.nodes[index]);
        let alive = state.init.filter(|init| init.is_alive());
        let group = alive.map(|_| self.group(index)).transpose()?.flatten();
        let frozen = group.as_ref().map(Group::is_frozen).transpose()?.unwrap_or(false);
        let status = match (state.status, alive) {
            (NodeStatus::Stopped, _) => "stopped",
            (_, None) => "dead",
            (_, Some(_)) if frozen => "frozen",
            (_, Some(_)) => "running",
        };
        Ok(NodeRow {
            name: node.name.clone(),
            status: status.to_owned(),
            host: self.lab.hosts[node.host].name.clone(),
            image: self.lab.images[node.image].name.clone(),
            pid: alive.map(|init| init.pid),
            addresses: node.interfaces.iter().map(|interface| interface.ipv4.to_string()).collect(),
            usage: group.as_ref().map(Group::usage).transpose()?,
            program: self.own_program(index),
        })
    }

    /// Has the anchor do something, and waits for its answer.
    fn ask<O: Operation<Service = Request>>(&self, operation: O) -> Result<O::Reply, LabError> {
        protocol::ask(&self.dir.control(), operation).map_err(|error| self.call_error(error))
    }

    /// As [`ask`](Self::ask), for a descriptor.
    fn ask_for_descriptor<O>(&self, operation: O) -> Result<OwnedFd, LabError>
    where
        O: Operation<Service = Request, Reply = Descriptor>,
    {
        protocol::ask_for_descriptor(&self.dir.control(), operation).map_err(|error| self.call_error(error))
    }

    fn call_error(&self, error: CallError) -> LabError {
        match error {
            CallError::Refused(error) => error.into(),
            CallError::Unreachable(source) => self.anchor_error(source),
        }
    }

    fn anchor_error(&self, source: io::Error) -> LabError {
        LabError::Anchor { lab: self.lab.name.clone(), source }
    }
}
