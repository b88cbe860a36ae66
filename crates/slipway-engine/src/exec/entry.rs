//! The ways into nodes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use slipway_lab::id::NodeId;
use slipway_lab::model::{Capability, Lab};
use slipway_sys::cgroup::Group;
use slipway_sys::process::ProcessId;

use crate::bypass::{Calls, Needs};
use crate::bypasses;
use crate::fast::RouterState;
use crate::state::LabDir;

/// The way into a node.
#[derive(Debug)]
pub struct Entry {
    /// The node's name.
    pub node: String,
    /// PID 1 of the node.
    pub init: ProcessId,
    /// The node's control group; `None` where this machine lets us make none.
    pub group: Option<Group>,
    /// Added to the environment of every program in the node.
    pub env: BTreeMap<String, String>,
    /// Capabilities beyond a default container's. A node with any has a user namespace of its own.
    pub capabilities: Vec<Capability>,
    /// For a node with bypasses.
    pub supervised: Option<Supervised>,
}

/// Calls of a node's programs that a supervisor answers, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervised {
    pub(super) calls: Calls,
    /// The lab's anchor, which takes listeners.
    pub(super) control: PathBuf,
    /// The node.
    pub(super) node: NodeId,
}

impl Entry {
    /// The entry to a node with this init and control group, and with what its bypasses need. `routers` are those of the lab.
    pub(crate) fn of(
        dir: &LabDir,
        lab: &Lab,
        routers: &[RouterState],
        node: NodeId,
        init: ProcessId,
        group: Option<Group>,
    ) -> Self {
        let model = &lab.nodes[node];
        let Needs { calls, mut env, .. } = bypasses::needs(dir, lab, routers, node);
        env.extend(model.env.clone());
        let supervised = calls.map(|calls| Supervised { calls, control: dir.control(), node });
        Self { node: model.name.clone(), init, group, env, capabilities: model.capabilities.clone(), supervised }
    }
}
