//! Errors of the fast path, as the anchor and its clients meet them.

use std::io;

use slipway_lab::id::NodeId;
use slipway_sys::bpf::LoadError;
use slipway_sys::cgroup::CgroupError;

/// An action on the fast path that failed. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum FastError {
    /// The lab has no node of this number.
    #[error("find node number {0}: the lab has none")]
    UnknownNode(NodeId),
    /// This node's host has no router.
    #[error("have a router hear programs of {0}: it is on no fast network")]
    NoRouter(String),
    /// The lab has no fast path.
    #[error("look at sockets of the fast path: no network of the lab is fast")]
    NoNetwork,
    /// The router of this host is being replaced.
    #[error("look for connections of the fast path: the router of {0} is being replaced\nHint: try again")]
    Replaced(String),
    /// The process is in no node of the lab.
    #[error(
        "look at process {pid}: it is in no node of lab {lab}\nHint: `slipway inspect {lab} NODE --json` lists a node's"
    )]
    NoNode {
        /// The process.
        pid: i32,
        /// The lab.
        lab: String,
    },
    /// A system call.
    #[error("{doing}: {source}")]
    System {
        /// The failed action.
        doing: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The guard of a router's sockets was not loaded.
    #[error("guard sockets of the fast path: {0}")]
    Guard(#[from] LoadError),
    /// A router's control group.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// Names the action that a system call failed in.
pub(super) fn says(doing: impl Into<String>) -> impl FnOnce(io::Error) -> FastError {
    move |source| FastError::System { doing: doing.into(), source }
}
