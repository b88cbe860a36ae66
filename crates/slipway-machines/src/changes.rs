//! Conditions and limits of a whole lab, which hold for as long as something is done under them.

use serde::{Deserialize, Serialize};
use slipway_engine::condition::Place;
use slipway_engine::lab::{LabError, Running, undo};
use slipway_lab::change::{LinkChange, NodeChange};
use slipway_lab::model::{DriverKind, Lab};
use slipway_lab::scenario::{Direction, LinkAction};

/// The number under which changes of links are laid over the lab's own. Scenarios count from 0.
const OVERLAY: usize = usize::MAX;

/// Changes of all links and all nodes of a lab.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// Conditions of links.
    pub link: LinkChange,
    /// Limits of nodes.
    pub node: NodeChange,
}

impl Changes {
    /// Whether they leave the lab as its file says.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.link.is_empty() && self.node.is_empty()
    }

    /// Puts this machine's part of a lab under these changes for as long as `action` takes.
    pub(crate) fn hold_here<T>(&self, running: &Running, action: impl FnOnce() -> T) -> Result<T, LabError> {
        if self.node.is_empty() {
            return self.hold_links(running, action);
        }
        let (before, nodes) = (running.all_limits()?, running.lab.nodes_here());
        running.set_node(&nodes, &self.node)?;
        let outcome = self.hold_links(running, action);
        for node in nodes {
            running.set_node(&[node], &undo(&self.node, &before[node]))?;
        }
        outcome
    }

    fn hold_links<T>(&self, running: &Running, action: impl FnOnce() -> T) -> Result<T, LabError> {
        if self.link.is_empty() {
            return Ok(action());
        }
        let laid = running.lay_over(OVERLAY, self.action(&running.lab));
        let outcome = laid.map(|()| action());
        running.lift(OVERLAY)?;
        outcome
    }

    /// A machine makes it at its own interfaces.
    fn action(&self, lab: &Lab) -> LinkAction {
        let own =
            |&(node, slot): &Place| lab.networks[lab.nodes[node].interfaces[slot].network].driver != DriverKind::Host;
        let all = lab.nodes.enumerate().flat_map(|(node, of)| (0..of.interfaces.len()).map(move |slot| (node, slot)));
        LinkAction::Link {
            interfaces: all.filter(own).collect(),
            direction: Direction::Egress,
            change: self.link.clone(),
        }
    }
}
