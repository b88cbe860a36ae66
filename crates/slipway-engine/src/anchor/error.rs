//! Errors of an anchor.

use std::io;

use nix::errno::Errno;
use slipway_sys::cgroup::CgroupError;
use slipway_sys::mount::MountError;

use crate::bypass::BypassError;
use crate::condition::LinkError;
use crate::disk::DiskError;
use crate::exec::ExecError;
use crate::exec::ssh::SshError;
use crate::fast::FastError;
use crate::network::NetworkError;
use crate::node::error::RootfsError;
use crate::node::link::InitError;
use crate::protocol::Code;
use crate::state::StateError;

/// Work of an anchor that failed. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnchorError {
    /// A node did not come up.
    #[error("start node {node}: {source}")]
    Start { node: String, source: NodeError },
    /// A node on driver `host` was to end without a word to its peers.
    #[error(
        "kill node {0} silently: on driver host its links are its host's\nHint: kill it softly, or choose another driver"
    )]
    SharedLinks(String),
    /// A node cannot be on another host.
    #[error("move node {node}: {reason}")]
    Move { node: String, reason: String },
    /// A request came without the descriptor that it needs.
    #[error("have a program heard: no listener came along")]
    NoListener,
    /// The process that brings the lab up has ended.
    #[error("report to `slipway up`: it is gone")]
    NoCaller,
    /// The lab got no mount namespace.
    #[error("make the lab's mount namespace: {0}")]
    MountNamespace(Errno),
    /// A system call or a file.
    #[error("{doing}: {source}")]
    System { doing: String, source: io::Error },
    #[error(transparent)]
    Links(#[from] LinkError),
    #[error(transparent)]
    Bypass(#[from] BypassError),
    #[error(transparent)]
    Fast(#[from] FastError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error(transparent)]
    Ssh(#[from] SshError),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Root(#[from] RootfsError),
    #[error(transparent)]
    State(#[from] StateError),
}

/// The reason that a node did not come up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error("it does not run")]
    NotRunning,
    #[error("prepare its ssh server: its /etc/ssh cannot be written")]
    Ssh,
    #[error("{doing}: {source}")]
    System { doing: String, source: io::Error },
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Init(#[from] InitError),
}

impl AnchorError {
    pub(super) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { doing: doing.into(), source }
    }

    /// The code of this failure where no request gives it one.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Links(_) => Code::Links,
            Self::Bypass(_) | Self::Fast(_) => Code::FastPath,
            _ => Code::Nodes,
        }
    }
}

impl NodeError {
    pub(super) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { doing: doing.into(), source }
    }
}
