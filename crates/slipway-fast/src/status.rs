//! The status of a router.

use serde::{Deserialize, Serialize};

use slipway_lab::id::HostId;

use crate::counts::Tally;

/// The status of a router.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Index of its host in the lab.
    pub host: HostId,
    /// Connections since it started.
    pub connections: Tally,
    /// Connections that wait to be accepted.
    pub waiting: usize,
    /// Connections that rules count without a watch on their end, because the machine has no more (`inotify(7)`). The
    /// router asks the kernel's list of sockets instead, four times a second at most.
    #[serde(default)]
    pub listed: usize,
    /// The state of the connections to routers of other hosts.
    pub peers: Vec<Peer>,
}

/// The state of the connections to another router.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Index of its host.
    pub host: u32,
    /// Connections that are ready.
    pub ready: usize,
    /// The reason why there are too few, where that is known.
    pub trouble: Option<String>,
}
