//! JSON with places: texts, lists and maps, and what nobody asked for.

use crate::imported::Lost;
use slipway_document::errors::{Report, Span};
use slipway_document::tree::{Kind, NodeId, Tree};
use slipway_document::units::shortened;

/// A value of the file.
#[derive(Clone, Copy)]
pub(super) struct Json<'t> {
    tree: &'t Tree,
    id: NodeId,
}

/// Where what is wrong and what is lost is collected.
pub(super) struct Notes<'r> {
    pub(super) report: &'r mut Report,
    pub(super) lost: Lost,
    lines: Vec<usize>,
}

impl<'r> Notes<'r> {
    pub(super) fn new(text: &str, report: &'r mut Report) -> Self {
        let lines = text.match_indices('\n').map(|(at, _)| at).collect();
        Self { report, lost: Lost::default(), lines }
    }

    pub(super) fn lose(&mut self, what: impl Into<String>, at: Span) {
        self.lost.add(what, self.lines.partition_point(|newline| *newline < at.start) + 1);
    }
}

impl<'t> Json<'t> {
    pub(super) fn root(tree: &'t Tree) -> Self {
        Self { tree, id: Tree::ROOT }
    }

    pub(super) fn at(self) -> Span {
        self.tree.node(self.id).at
    }

    /// The value below a key, unless it is null.
    pub(super) fn get(self, key: &str) -> Option<Self> {
        let Kind::Map(entries) = &self.tree.node(self.id).kind else { return None };
        let (_, id) = entries.iter().find(|(name, _)| name.text == key)?;
        Some(Self { id: *id, ..self }).filter(|value| !value.is_null())
    }

    fn is_null(self) -> bool {
        matches!(&self.tree.node(self.id).kind, Kind::Text { text, plain: true } if matches!(text.as_str(), "" | "null" | "~"))
    }

    pub(super) fn text(self) -> Option<&'t str> {
        match &self.tree.node(self.id).kind {
            Kind::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The text below a key that is not empty.
    pub(super) fn word(self, key: &str) -> Option<&'t str> {
        self.get(key)?.text().filter(|text| !text.is_empty())
    }

    /// The items of a list below a key. Something else there is reported.
    pub(super) fn list(self, key: &str, notes: &mut Notes) -> Vec<Self> {
        let Some(value) = self.get(key) else { return Vec::new() };
        if let Kind::List(items) = &self.tree.node(value.id).kind {
            return items.iter().map(|id| Self { id: *id, ..self }).collect();
        }
        notes.report.add(value.at(), format!("`{key}` is no list"), "write `[…]`");
        Vec::new()
    }

    /// A text below a key that must be there.
    pub(super) fn need(self, key: &str, notes: &mut Notes) -> &'t str {
        self.word(key).unwrap_or_else(|| {
            notes.report.add(self.at(), format!("`{key}` is missing here"), format!("add `\"{key}\": \"…\"`"));
            ""
        })
    }

    /// Counts the keys that are not among these as lost.
    pub(super) fn lose_others(self, of: &str, known: &[&str], notes: &mut Notes) {
        let Kind::Map(entries) = &self.tree.node(self.id).kind else { return };
        for (key, id) in entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str())) {
            if !(Self { id: *id, ..self }).is_null() {
                notes.lose(format!("{} of a {of}", shortened(&key.text)), key.at);
            }
        }
    }
}
