//! The way into a node of a running lab.

use super::{LabError, Running};
use crate::exec::Entry;

impl Entry {
    /// The entry to a node of a running lab, by index.
    ///
    /// # Errors
    /// When the node does not run.
    pub fn to(lab: &Running, node: usize) -> Result<Self, LabError> {
        Ok(Self::of(lab.dir(), &lab.lab, &lab.state.routers, node, lab.init(node)?, lab.group(node)?))
    }
}
