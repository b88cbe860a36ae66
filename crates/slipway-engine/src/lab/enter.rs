//! The way into a node of a running lab.

use super::{LabError, Running};
use crate::exec::{Entry, Fast};

impl Entry {
    /// The entry to a node of a running lab, by index.
    ///
    /// # Errors
    /// When the node does not run.
    pub fn to(lab: &Running, node: usize) -> Result<Self, LabError> {
        let model = &lab.lab.nodes[node];
        let fast = Fast::of(lab.dir(), &lab.lab, &lab.state.routers, node);
        Ok(Self {
            node: model.name.clone(),
            init: lab.init(node)?,
            group: lab.group(node)?,
            env: model.env.clone(),
            capabilities: model.capabilities.clone(),
            fast,
        })
    }
}
