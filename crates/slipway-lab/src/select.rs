//! Choosing nodes by what people write: `n1,n2`, a group's name, `n*`.

use std::collections::HashSet;

use slipway_document::{closest, suggest};

use crate::id::NodeId;
use crate::model::{Lab, Node};

/// Why a selection chooses nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// No node and no group has this name.
    #[error("there is no node or group `{name}`")]
    Unknown {
        /// The name, as written.
        name: String,
        /// The name that was probably meant.
        suggestion: String,
    },
    /// The pattern fits no node.
    #[error("no node fits `{pattern}`")]
    NoMatch {
        /// The pattern, as written.
        pattern: String,
        /// The names that there are.
        suggestion: String,
    },
}

impl SelectError {
    /// The next step.
    #[must_use]
    pub fn help(&self) -> &str {
        match self {
            Self::Unknown { suggestion, .. } | Self::NoMatch { suggestion, .. } => suggestion,
        }
    }
}

impl Lab {
    /// The node with this name, and its id.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<(NodeId, &Node)> {
        self.nodes.enumerate().find(|(_, node)| node.name == name)
    }

    /// How people write an interface: `n1:eth0`. It is given as its node's id and its position among the node's.
    #[must_use]
    pub fn port_name(&self, (node, slot): (NodeId, usize)) -> String {
        let node = &self.nodes[node];
        format!("{}:{}", node.name, node.interfaces[slot].name)
    }

    /// The nodes that `words` choose, in the order chosen, each once. Every word is a comma-separated list
    /// of node names, group names, and patterns in which `*` stands for any letters and `?` for one. No words choose
    /// all nodes.
    pub fn select<S: AsRef<str>>(&self, words: &[S]) -> Result<Vec<NodeId>, SelectError> {
        if words.is_empty() {
            return Ok(self.nodes.ids().collect());
        }
        let mut seen = HashSet::new();
        let mut chosen = Vec::new();
        for word in words.iter().flat_map(|words| words.as_ref().split(',')) {
            chosen.extend(self.select_word(word.trim())?.into_iter().filter(|node| seen.insert(*node)));
        }
        Ok(chosen)
    }

    fn select_word(&self, word: &str) -> Result<Vec<NodeId>, SelectError> {
        let all = |fits: &dyn Fn(&Node) -> bool| {
            let fitting = self.nodes.enumerate().filter(|(_, node)| fits(node));
            fitting.map(|(index, _)| index).collect::<Vec<_>>()
        };
        let is_pattern = word.contains(['*', '?']);
        let found = if is_pattern {
            all(&|node| matches(word.as_bytes(), node.name.as_bytes()))
        } else {
            all(&|node| node.name == word || node.group == word)
        };
        if !found.is_empty() {
            return Ok(found);
        }
        let mut known: Vec<&str> = Vec::new();
        for node in &self.nodes {
            if known.last() != Some(&node.group.as_str()) {
                known.push(&node.group);
            }
        }
        let suggestion = match closest(word, self.nodes.iter().map(|node| node.name.as_str())) {
            Some(name) if !is_pattern => format!("did you mean `{name}`?"),
            _ => suggest(word, &known),
        };
        let word = word.to_owned();
        Err(if is_pattern {
            SelectError::NoMatch { pattern: word, suggestion }
        } else {
            SelectError::Unknown { name: word, suggestion }
        })
    }
}

/// Shell-like matching in linear space and at most length times length steps: on a mismatch, only the last `*` takes more.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(letter) if *letter == b'?' || *letter == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                n = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> Lab {
        let text = "nodes: {n: {count: 12}, web: , db: {count: 2}}";
        crate::parse("lab.yaml", text, std::path::Path::new("/")).unwrap()
    }

    #[test]
    fn by_name_group_list_and_pattern() {
        let lab = lab();
        let chosen =
            |words: &[&str]| lab.select(words).map(|nodes| nodes.iter().map(|node| node.index()).collect::<Vec<_>>());
        assert_eq!(chosen(&["web"]), Ok(vec![12]));
        assert_eq!(chosen(&["db,n2", "db1"]), Ok(vec![13, 14, 1]));
        assert_eq!(chosen(&["n1?"]), Ok(vec![9, 10, 11]));
        assert_eq!(chosen(&["*b*"]), Ok(vec![12, 13, 14]));
        assert_eq!(lab.select::<&str>(&[]).unwrap().len(), 15);
        assert_eq!(lab.node("db2").map(|(node, _)| node), Some(NodeId(14)));
    }

    #[test]
    fn says_what_was_probably_meant() {
        let error = lab().select(&["wbe"]).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.help()),
            ("there is no node or group `wbe`", "did you mean `web`?")
        );
        let error = lab().select(&["x*"]).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.help()), ("no node fits `x*`", "there are: n, web, db"));
        assert!(lab().select(&["web,"]).is_err());
    }

    #[test]
    fn patterns() {
        assert!(matches(b"*", b""));
        assert!(matches(b"a*b*c", b"aXbXbXc"));
        assert!(!matches(b"a*b", b"aXbX"));
        assert!(!matches(b"?", b""));
        assert!(matches(b"**?", b"x"));
    }
}
