//! Faults that a machine finds in a lab, told with the lines of the file that ask for them.

use std::collections::HashSet;

use serde::Serialize;
use slipway_document::errors::{DocumentErrors, Report, Span};
use slipway_document::tree::{Kind, NodeId, Tree};

use crate::kind::LAB_FILE;

/// One thing that a machine cannot make of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// Keys from the top of the file; of lists, indices. A node is named by its own name, also where `count` makes it.
    pub place: Vec<String>,
    /// The fault.
    pub message: String,
    /// The remedy.
    pub help: String,
}

/// Puts remarks to their lines in the text that the lab was read from. A remark whose place has no line goes
/// to the nearest key above it.
#[must_use]
pub fn locate(file: &str, text: &str, remarks: &[Remark]) -> DocumentErrors {
    let tree = Tree::parse(LAB_FILE, text, &mut Report::default());
    let mut report = Report::default();
    let mut told = HashSet::new();
    for remark in remarks {
        let at = tree.as_ref().map(|tree| find(tree, &remark.place)).unwrap_or_default();
        // The nodes of a group have a line in common.
        if !told.insert((at.start, &remark.message)) {
            continue;
        }
        report.add(at, remark.message.clone(), remark.help.clone());
    }
    report.finish(file, text)
}

/// Whether the file has this place itself.
pub(crate) fn has(tree: &Tree, place: &[String]) -> bool {
    let mut here = Some(Tree::ROOT);
    for (depth, key) in place.iter().enumerate() {
        here = here.and_then(|here| child(tree, here, key, depth == 1 && place[0] == "nodes"));
    }
    here.is_some()
}

fn find(tree: &Tree, place: &[String]) -> Span {
    let mut here = Tree::ROOT;
    // The whole file is no place: its first line says nothing of what is meant.
    let mut at = Span::default();
    for (depth, key) in place.iter().enumerate() {
        let is_node = depth == 1 && place[0] == "nodes";
        let Some(next) = child(tree, here, key, is_node) else { break };
        here = next;
        at = tree.node(here).at;
    }
    at
}

fn child(tree: &Tree, parent: NodeId, key: &str, is_node: bool) -> Option<NodeId> {
    let entries = match &tree.node(parent).kind {
        Kind::Map(entries) => entries,
        Kind::List(items) => return items.get(key.parse::<usize>().ok()?).copied(),
        Kind::Text { .. } => return None,
    };
    let found = entries.iter().find(|(name, _)| name.text == key);
    let found = found.or_else(|| entries.iter().find(|(name, value)| is_node && makes(tree, *value, &name.text, key)));
    found.map(|(_, value)| *value)
}

/// Whether a group makes a node of this name.
fn makes(tree: &Tree, group: NodeId, group_name: &str, node: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().ok();
    let Some(n) = node.strip_prefix(group_name).and_then(number) else { return false };
    let count = child(tree, group, "count", false).map(|count| &tree.node(count).kind);
    matches!(count, Some(Kind::Text { text, .. }) if number(text).is_some_and(|count| (1..=count).contains(&n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_keys() {
        let text = "images:\n  old: ./old.tar\nnodes:\n  n: {count: 3}\n  n1:\n    count: 2\n    mounts:\n      - ./a:/a\n      - source: ./b\n        target: /b\n";
        let line = |place: &[&str]| {
            let place = place.iter().map(|key| (*key).to_owned()).collect();
            let remark = Remark { place, message: "wrong".to_owned(), help: "mend it".to_owned() };
            locate("lab.yaml", text, &[remark]).errors()[0].line
        };
        assert_eq!(line(&["images", "old", "path"]), 2);
        assert_eq!(line(&["nodes", "n3"]), 4);
        assert_eq!(line(&["nodes", "n12", "mounts", "0", "source"]), 8);
        assert_eq!(line(&["nodes", "n12", "mounts", "1", "source"]), 9);
        assert_eq!(line(&["nodes", "n11", "cpuset"]), 5);
        assert_eq!(line(&["hosts", "h1"]), 1);
    }
}
