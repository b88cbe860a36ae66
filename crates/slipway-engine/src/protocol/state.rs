//! How a lab stands: what its anchor reports, and writes down for commands that come when it is stuck or gone.

use serde::{Deserialize, Serialize};
use slipway_lab::id::{List, NetworkId, NodeId};
use slipway_sys::process::ProcessId;

use crate::fast::RouterState;
use crate::network::Mechanism;
use crate::state::{LabDir, NodeState, StateError};
use crate::tuning::Tunings;

const FILE: &str = "state.json";

/// A lab's processes, and what was chosen for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The process that all others of the lab descend from.
    pub anchor: ProcessId,
    /// False until every node is ready.
    pub ready: bool,
    /// When the lab was brought up, seconds since 1970 UTC.
    pub since: u64,
    /// Its nodes.
    pub nodes: List<NodeId, NodeState>,
    /// How each network was made on this machine, indexed as the lab's networks.
    pub networks: List<NetworkId, Mechanism>,
    /// The kernel settings that profiles gave hosts on this machine, indexed as the lab's hosts.
    #[serde(default)]
    pub tunings: Tunings,
    /// Routers of the fast path, one for each host with nodes on fast networks.
    #[serde(default)]
    pub routers: Vec<RouterState>,
}

impl LabDir {
    /// Reads the state.
    ///
    /// # Errors
    /// When there is none, or another version wrote it.
    pub fn read_state(&self) -> Result<State, StateError> {
        self.read(FILE)
    }

    /// Replaces the state.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_state(&self, state: &State) -> Result<(), StateError> {
        self.write(FILE, state)
    }
}
