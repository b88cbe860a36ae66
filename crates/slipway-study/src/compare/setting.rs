//! Settings of a whole lab for one measurement: conditions of every link, limits of every node.

use std::str::FromStr;

use slipway_engine::lab::Running;
use slipway_lab::change::{LinkChange, NodeChange, WordError, is_of_nodes};
use slipway_machines::MachineError;
use slipway_machines::changes::Changes;
use slipway_machines::hold::hold;

/// Conditions and limits, and what a report calls them.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// The name in reports.
    pub name: String,
    changes: Changes,
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
        let changes = Changes { link: LinkChange::parse(&link)?, node: NodeChange::parse(&node)? };
        Ok(Self { name: name.to_owned(), changes })
    }
}

impl Setting {
    /// Whether it takes links, which driver host has not.
    #[must_use]
    pub fn is_of_links(&self) -> bool {
        !self.changes.link.is_empty()
    }

    /// Puts a lab under this setting for as long as `action` takes.
    pub(super) fn hold<T>(&self, running: &Running, action: impl FnOnce() -> T) -> Result<T, MachineError> {
        hold(running, &self.changes, action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_words_with_or_without_a_name() {
        let setting: Setting = "slow: delay=10ms loss=gemodel 1% 10% cpu=2 cores rate=1mbit".parse().expect("words");
        assert_eq!((setting.name.as_str(), setting.is_of_links()), ("slow", true));
        assert_eq!(setting.changes.node.to_string(), "cpu=2 cores");
        assert!(setting.changes.link.to_string().contains("loss=gemodel"), "{:?}", setting.changes);
        let setting: Setting = "cpu=50%".parse().expect("words");
        assert_eq!((setting.name.as_str(), setting.is_of_links()), ("cpu=50%", false));
        let setting: Setting = "as it is:".parse().expect("no words");
        assert!(!setting.is_of_links() && setting.changes.node.is_empty());
        assert!("delay".parse::<Setting>().is_err());
    }
}
