//! A file as a tree of texts, lists and maps, each with its place. The reader accepts the plain part of YAML: no
//! anchors, aliases, tags or second documents. So a file is all that it shows, and cannot unfold into more than its
//! size.

use std::cell::Cell;
use std::collections::HashSet;

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

use crate::errors::{Report, Span};

/// A kind of file: its bounds, and the help for faults that other kinds have other remedies for.
#[derive(Debug, Clone, Copy)]
pub struct FileKind {
    /// Longest file, in bytes.
    pub max_bytes: usize,
    /// Deepest nesting of lists and maps.
    pub max_depth: usize,
    /// Help for a file that is longer.
    pub too_long: &'static str,
    /// Help for a file that nests deeper.
    pub too_deep: &'static str,
    /// Help for an empty file.
    pub empty: &'static str,
    /// Help for an anchor or an alias.
    pub repeated: &'static str,
    /// Help for a second document in the file.
    pub second: &'static str,
    /// Help for a value that does not fit, where its type has none.
    pub unfit: &'static str,
}

/// A file's values.
#[derive(Debug)]
pub struct Tree {
    kind: FileKind,
    nodes: Vec<Node>,
}

/// Index of a node in its tree. The root is 0: parents come before their children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeId(usize);

/// A value with its place.
#[derive(Debug)]
pub struct Node {
    /// The value.
    pub kind: Kind,
    /// The place of an error: a text itself, or the key of a map or list that stands below its key.
    pub at: Span,
    /// Where the node's last byte was.
    pub(crate) end: usize,
    pub(crate) parent: Option<NodeId>,
    /// How the node is to be read, once something was found wrong with it.
    pub(crate) state: Cell<State>,
}

/// A value of a file.
#[derive(Debug)]
pub enum Kind {
    /// A scalar.
    Text {
        /// Without its quotes.
        text: String,
        /// Whether it stands without quotes.
        plain: bool,
    },
    /// In the order of the file.
    List(Vec<NodeId>),
    /// In the order of the file; each key once.
    Map(Vec<(Key, NodeId)>),
}

/// A key of a map.
#[derive(Debug, Clone)]
pub struct Key {
    /// Without its quotes.
    pub text: String,
    /// The key's own place.
    pub at: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Good,
    /// Wrong and reported: reads as if nothing were written there.
    Void,
    /// An unknown key's value: not read at all.
    Unknown,
}

impl Tree {
    /// The whole file.
    pub const ROOT: NodeId = NodeId(0);

    /// The value at `id`, which must be of this tree.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// The kind of file that it was read as.
    pub(crate) fn kind(&self) -> &FileKind {
        &self.kind
    }

    /// Reads `text`, or reports the one error that ends the reading. JSON is YAML too.
    pub fn parse(kind: FileKind, text: &str, report: &mut Report) -> Option<Self> {
        if text.len() > kind.max_bytes {
            let message =
                format!("the file has {} bytes, more than such a file can have ({})", text.len(), kind.max_bytes);
            report.add(Span::default(), message, kind.too_long);
            return None;
        }
        let mut builder = Builder { kind, nodes: Vec::new(), open: Vec::new(), documents: 0 };
        let options = granit_parser::options! {
            emit_comments: false,
            disallow_directives: true,
            strict_indentation: true,
            emit_anchor_events: true,
            emit_unresolved_aliases: true,
        };
        for event in Parser::new_from_str_with_options(text, options) {
            let step = match event {
                Ok((event, span)) => match span.tag_span() {
                    Some(tag) => refuse(
                        span_of(tag.start, tag.end),
                        "a YAML tag",
                        "leave the tag out; each key knows what its value is",
                    ),
                    None => builder.event(event, span_of(span.start, span.end)),
                },
                Err(error) => Err(unreadable(text, &error)),
            };
            if let Err(Refusal { at, message, help }) = step {
                report.add(at, message, help);
                return None;
            }
        }
        if builder.nodes.is_empty() {
            report.add(Span::default(), "the file is empty", kind.empty);
            return None;
        }
        Some(Self { kind, nodes: builder.nodes })
    }
}

fn span_of(start: Marker, end: Marker) -> Span {
    let byte = |mark: Marker| mark.byte_offset().unwrap_or_default();
    Span { start: byte(start), end: byte(end).max(byte(start)) }
}

/// The reason why the reading ends.
struct Refusal {
    at: Span,
    message: String,
    help: String,
}

fn refuse<T>(at: Span, message: impl Into<String>, help: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { at, message: message.into(), help: help.into() })
}

fn unreadable(text: &str, error: &ScanError) -> Refusal {
    let mark = *error.marker();
    let start = text.floor_char_boundary(mark.byte_offset().unwrap_or_default());
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let indentation = text[line_start..].len() - text[line_start..].trim_start_matches([' ', '\t']).len();
    if let Some(tab) = text[line_start..line_start + indentation].find('\t') {
        let at = Span { start: line_start + tab, end: line_start + tab + 1 };
        return Refusal {
            at,
            message: "a tab in the indentation".into(),
            help: "indent with spaces; YAML allows nothing else".into(),
        };
    }
    Refusal {
        at: Span { start, end: start },
        message: format!("not YAML: {}", error.info()),
        help: "check the indentation, quotes and brackets at this place and on the line above".into(),
    }
}

struct Builder {
    kind: FileKind,
    nodes: Vec<Node>,
    /// Lists and maps that are not finished.
    open: Vec<Open>,
    documents: usize,
}

struct Open {
    node: NodeId,
    /// In a map, the key whose value comes next.
    key: Option<Key>,
    /// In a map, the keys so far.
    seen: HashSet<String>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, at: Span) -> Result<(), Refusal> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return refuse(at, "a second YAML document", self.kind.second);
                }
            }
            Event::Anchor(..) => return refuse(at, "a YAML anchor", self.kind.repeated),
            Event::Alias(_) | Event::UnresolvedAlias(_) => return refuse(at, "a YAML alias", self.kind.repeated),
            Event::Scalar(text, style, ..) => return self.scalar(text.into_owned(), style, at),
            Event::SequenceStart(..) => self.begin(Kind::List(Vec::new()), at)?,
            Event::MappingStart(..) => self.begin(Kind::Map(Vec::new()), at)?,
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    self.nodes[open.node.0].end = at.start;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn scalar(&mut self, text: String, style: ScalarStyle, at: Span) -> Result<(), Refusal> {
        let awaits_key = self.open.last().is_some_and(|open| open.key.is_none() && self.is_map(open.node));
        if !awaits_key {
            let plain = style == ScalarStyle::Plain;
            // A value that is not written has no place of its own: errors about it point at its key.
            let shown = if at.start == at.end { self.key_at().unwrap_or(at) } else { at };
            self.add(Kind::Text { text, plain }, shown, at.end);
            return Ok(());
        }
        let Some(open) = self.open.last_mut() else {
            return Ok(());
        };
        if !open.seen.insert(text.clone()) {
            return refuse(at, format!("`{text}` is here twice"), "keep one of the two; names and keys are unique");
        }
        open.key = Some(Key { text, at });
        Ok(())
    }

    fn begin(&mut self, kind: Kind, at: Span) -> Result<(), Refusal> {
        let awaits_key = self.open.last().is_some_and(|open| open.key.is_none() && self.is_map(open.node));
        if awaits_key {
            return refuse(at, "a list or map where a key belongs", "write a plain word as the key");
        }
        if self.open.len() >= self.kind.max_depth {
            return refuse(at, "nested too deep", self.kind.too_deep);
        }
        let shown = self.key_at().unwrap_or(Span { start: at.start, end: at.end.max(at.start + 1) });
        let node = self.add(kind, shown, at.end);
        self.open.push(Open { node, key: None, seen: HashSet::new() });
        Ok(())
    }

    fn add(&mut self, kind: Kind, at: Span, end: usize) -> NodeId {
        let id = NodeId(self.nodes.len());
        let mut parent = None;
        if let Some(open) = self.open.last_mut() {
            parent = Some(open.node);
            match (&mut self.nodes[open.node.0].kind, open.key.take()) {
                (Kind::List(items), _) => items.push(id),
                (Kind::Map(entries), Some(key)) => entries.push((key, id)),
                _ => {}
            }
        }
        self.nodes.push(Node { kind, at, end, parent, state: Cell::new(State::Good) });
        id
    }

    fn is_map(&self, id: NodeId) -> bool {
        matches!(self.nodes[id.0].kind, Kind::Map(_))
    }

    fn key_at(&self) -> Option<Span> {
        self.open.last()?.key.as_ref().map(|key| key.at)
    }
}
