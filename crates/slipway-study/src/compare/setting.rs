//! Settings of a whole lab for one measurement: conditions of every link, limits of every node.

use std::str::FromStr;

use slipway_engine::condition::Place;
use slipway_engine::lab::{LabError, Running, undo};
use slipway_lab::change::{LinkChange, NodeChange, WordError, is_of_nodes};
use slipway_lab::id::NodeId;
use slipway_lab::model::{DriverKind, Lab};
use slipway_lab::scenario::{Direction, LinkAction};

/// The number under which changes of links are laid over the lab's own. Scenarios count from 0.
const OVERLAY: usize = usize::MAX;

/// Conditions and limits, and what a report calls them.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// The name in reports.
    pub name: String,
    link: LinkChange,
    node: NodeChange,
}

impl FromStr for Setting {
    type Err = WordError;

    /// `NAME: KEY=VALUE …`, or `KEY=VALUE …` alone, which then is the name too.
    fn from_str(text: &str) -> Result<Self, WordError> {
        let (name, words) = match text.split_once(':') {
            Some((name, words)) if !name.contains('=') => (name.trim(), words),
            _ => (text.trim(), text),
        };
        // A word without `=` belongs to the one before it.
        let mut of_nodes = false;
        let (node, link): (Vec<&str>, Vec<&str>) = words.split_whitespace().partition(|word| {
            of_nodes = if word.contains('=') { is_of_nodes(word) } else { of_nodes };
            of_nodes
        });
        Ok(Self { name: name.to_owned(), link: LinkChange::parse(&link)?, node: NodeChange::parse(&node)? })
    }
}

impl Setting {
    /// Whether it takes links, which driver host has not.
    #[must_use]
    pub fn is_of_links(&self) -> bool {
        !self.link.is_empty()
    }

    /// Whether it leaves the lab as its file says.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.link.is_empty() && self.node.is_empty()
    }

    /// Puts a lab under this setting for as long as `action` takes.
    pub(super) fn hold<T>(&self, running: &Running, action: impl FnOnce() -> T) -> Result<T, LabError> {
        if self.node.is_empty() {
            return self.hold_links(running, action);
        }
        let before = running.all_limits()?;
        let nodes: Vec<NodeId> = before.ids().collect();
        running.set_node(&nodes, &self.node)?;
        let outcome = self.hold_links(running, action);
        for (node, before) in before.enumerate() {
            running.set_node(&[node], &undo(&self.node, before))?;
        }
        outcome
    }

    fn hold_links<T>(&self, running: &Running, action: impl FnOnce() -> T) -> Result<T, LabError> {
        if !self.is_of_links() {
            return Ok(action());
        }
        let laid = running.lay_over(OVERLAY, self.action(&running.lab));
        let outcome = laid.map(|()| action());
        running.lift(OVERLAY)?;
        outcome
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_words_with_or_without_a_name() {
        let setting: Setting = "slow: delay=10ms loss=gemodel 1% 10% cpu=2 cores rate=1mbit".parse().expect("words");
        assert_eq!((setting.name.as_str(), setting.is_of_links()), ("slow", true));
        assert_eq!(setting.node.to_string(), "cpu=2 cores");
        assert!(setting.link.to_string().contains("loss=gemodel"), "{}", setting.link);
        let setting: Setting = "cpu=50%".parse().expect("words");
        assert_eq!((setting.name.as_str(), setting.is_of_links()), ("cpu=50%", false));
        let setting: Setting = "as it is:".parse().expect("no words");
        assert!(!setting.is_of_links() && setting.node.is_empty());
        assert!("delay".parse::<Setting>().is_err());
    }
}
