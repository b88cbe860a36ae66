//! The way into a node of a running lab.

use slipway_lab::id::NodeId;

use super::{LabError, Running};
use crate::exec::Entry;

impl Entry {
    /// The entry to a node of a running lab, by index.
    ///
    /// # Errors
    /// When the node does not run.
    pub fn to(lab: &Running, node: NodeId) -> Result<Self, LabError> {
        Ok(Self::of(lab.dir(), &lab.lab, &lab.state.routers, node, lab.init(node)?, lab.group(node)?))
    }
}
