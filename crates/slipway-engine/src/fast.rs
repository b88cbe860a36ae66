//! The fast path's side of a lab, the bypass for TCP: a router for each virtual host with nodes on fast networks.
//!
//! The router (`slipway_fast`) is a process of its own, forked by the anchor into the host's network namespace. What it needs
//! of nodes comes from the anchor: sockets in their namespaces, and the listeners by which it hears of programs' calls. The
//! anchor keeps a copy of each listener for as long as a program runs under it, so that calls wait, and fail not, while a
//! router that died is replaced; the new one gets them all.

mod error;
mod explain;
mod flows;
pub mod metrics;
mod probe;
mod process;
mod routers;
mod setup;

pub use error::FastError;
pub use explain::{Socket, SocketRoute};
pub use flows::Connection;
use serde::{Deserialize, Serialize};
pub use slipway_fast::counts::{Between, Tally};
pub use slipway_fast::metadata::Path;
pub use slipway_fast::reason::Reason;
pub use slipway_fast::status::{Peer, Status};
use slipway_lab::id::HostId;

use crate::verbs::BrokerStatus;

pub(crate) use explain::{explain, node_of};
pub(crate) use flows::flows;
pub(crate) use probe::{needs, probe};
pub(crate) use routers::Routers;
pub(crate) use setup::is_fast;

/// A router, as its anchor sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterState {
    /// Index of its host in the lab.
    pub host: HostId,
    /// Its process; `None` while there is none, and connections that are asked for wait.
    pub pid: Option<i32>,
    /// How many there were before it.
    pub restarts: u32,
    /// Why there was another before it, or why there is none now.
    pub trouble: Option<String>,
    /// Whether the kernel itself takes the options of TCP that programs set most; otherwise each is a call of the router's.
    #[serde(default)]
    pub free_options: bool,
    /// Whether a program that a signal keeps from hearing of a connection is told again.
    #[serde(default)]
    pub told_again: bool,
}

/// How a lab's fast path is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastReport {
    /// One for each host with nodes on fast networks.
    pub routers: Vec<RouterReport>,
    /// The brokers of RDMA, one for each host with such nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brokers: Vec<BrokerStatus>,
}

/// How a router is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterReport {
    /// As its anchor sees it.
    #[serde(flatten)]
    pub router: RouterState,
    /// Trees of programs whose calls it hears.
    pub listeners: usize,
    /// What it says of itself; `None` where it did not answer.
    pub status: Option<Status>,
    /// Memory that it has, bytes (`VmRSS`, `proc_pid_status(5)`).
    #[serde(default)]
    pub memory: Option<u64>,
}
