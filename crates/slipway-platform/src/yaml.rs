//! YAML as people write it: a key a line, and what is short on one line.

use std::fmt::Write as _;

/// Longest line, in characters, where something shorter will do.
const WIDTH: usize = 110;

/// A value to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Yaml {
    /// A text, quoted where that is needed.
    Text(String),
    /// As it is: a number, a quantity, `true`.
    Bare(String),
    List(Vec<Yaml>),
    Map(Map),
}

/// Keys in the order in which they are written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Map(Vec<(String, Yaml)>);

impl Map {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn put(&mut self, key: impl Into<String>, value: Yaml) {
        self.0.push((key.into(), value));
    }

    pub(crate) fn text(&mut self, key: &str, value: impl Into<String>) {
        self.put(key, Yaml::Text(value.into()));
    }

    /// A value that prints as it is read: a number, a quantity.
    #[expect(clippy::needless_pass_by_value, reason = "numbers and quantities are no larger than a reference to them")]
    pub(crate) fn bare(&mut self, key: &str, value: impl ToString) {
        self.put(key, Yaml::Bare(value.to_string()));
    }

    /// Unless there is nothing in it.
    pub(crate) fn map(&mut self, key: &str, value: Map) {
        if !value.is_empty() {
            self.put(key, Yaml::Map(value));
        }
    }

    /// `key: true`, where it is.
    pub(crate) fn flag(&mut self, key: &str, is: bool) {
        if is {
            self.bare(key, true);
        }
    }

    /// All of another's keys.
    pub(crate) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The whole file. A map at the top is never on its key's line, unless it is short and has no map.
    pub(crate) fn document(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.0 {
            let is_simple = match value {
                Yaml::Map(_) => false,
                Yaml::List(items) => !items.iter().any(|item| matches!(item, Yaml::Map(_))),
                Yaml::Text(_) | Yaml::Bare(_) => true,
            };
            entry(key, value, "", is_simple, &mut text);
        }
        text
    }
}

impl Yaml {
    pub(crate) fn texts<S: Into<String>>(texts: impl IntoIterator<Item = S>) -> Self {
        Self::List(texts.into_iter().map(|text| Self::Text(text.into())).collect())
    }

    /// On one line.
    fn flow(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Bare(text) => text.clone(),
            Self::List(items) => format!("[{}]", joined(items.iter().map(Self::flow))),
            Self::Map(Map(entries)) => {
                format!(
                    "{{{}}}",
                    joined(entries.iter().map(|(key, value)| format!("{}: {}", quoted(key), value.flow())))
                )
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) | Self::Bare(_) => true,
            Self::List(items) => items.is_empty(),
            Self::Map(map) => map.is_empty(),
        }
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// `key: value`, below each other where one line is too short.
fn entry(key: &str, value: &Yaml, indent: &str, may_flow: bool, text: &mut String) {
    let key = quoted(key);
    let line = format!("{indent}{key}: {}", value.flow());
    if value.is_empty() || may_flow && line.chars().count() <= WIDTH {
        let _ = writeln!(text, "{line}");
        return;
    }
    let _ = writeln!(text, "{indent}{key}:");
    below(value, &format!("{indent}  "), text);
}

/// A list's items or a map's entries, a line each.
fn below(value: &Yaml, indent: &str, text: &mut String) {
    match value {
        Yaml::Map(Map(entries)) => {
            for (key, value) in entries {
                entry(key, value, indent, true, text);
            }
        }
        Yaml::List(items) => {
            for item in items {
                let line = format!("{indent}- {}", item.flow());
                if item.is_empty() || line.chars().count() <= WIDTH {
                    let _ = writeln!(text, "{line}");
                    continue;
                }
                let mut inner = String::new();
                below(item, &format!("{indent}  "), &mut inner);
                // The dash takes the place of the first line's last two spaces.
                let _ = write!(text, "{indent}- {}", inner.trim_start());
            }
        }
        Yaml::Text(_) | Yaml::Bare(_) => {}
    }
}

/// As it is where YAML and every reader of it take it for a text, else in quotes.
fn quoted(text: &str) -> String {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_'));
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '+' | '=' | '%' | '@' | '*' | ' ');
    let is_word = !matches!(
        text.to_ascii_lowercase().as_str(),
        "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
    ) || text == "n"
        || text == "y";
    // Quantities and addresses begin with a digit and have something else in them that no number has.
    let is_quantity = text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_alphabetic() || c == '%')
        && !text.contains(['_', 'x', 'o', 'e', 'E']);
    let dots = text.matches('.').count();
    let is_address = (dots == 3 || text.contains('/'))
        && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'/'));
    if (begins && is_word || is_quantity || is_address) && text.chars().all(plain) && !text.ends_with(' ') {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(quoted, "\\{c}"),
            '\n' => write!(quoted, "\\n"),
            '\t' => write!(quoted, "\\t"),
            ' '..='~' => write!(quoted, "{c}"),
            _ if c.is_alphanumeric() => write!(quoted, "{c}"),
            '\0'..='\u{ffff}' => write!(quoted, "\\u{:04X}", u32::from(c)),
            _ => write!(quoted, "\\U{:08X}", u32::from(c)),
        };
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_plain_and_all_else_is_quoted() {
        for plain in ["n1", "20ms", "50%", "10.64.0.0/16", "10.64.0.1", "/srv/data", "a b", "lan", "n"] {
            assert_eq!(quoted(plain), plain);
        }
        for text in ["", "null", "True", "12", "1.5", "0x7f", "1e9", "a: b", "n1:eth0", "#", "*", "-x", " a", "a ", "{"]
        {
            assert!(quoted(text).starts_with('"'), "{text}");
        }
    }

    #[test]
    fn what_is_short_is_on_one_line() {
        let mut map = Map::default();
        let mut inner = Map::default();
        inner.bare("delay", "20ms");
        map.put("links", Yaml::List(vec![Yaml::Map(inner.clone())]));
        map.put("hosts", Yaml::texts(["a", "b"]));
        let mut node = Map::default();
        node.map("conditions", inner);
        node.put("command", Yaml::texts((0..30).map(|i| format!("word{i}"))));
        let mut nodes = Map::default();
        nodes.map("n", node);
        nodes.put("web", Yaml::Map(Map::default()));
        map.map("nodes", nodes);
        let text = map.document();
        assert!(text.starts_with("links:\n  - {delay: 20ms}\nhosts: [a, b]\nnodes:\n  n:\n    conditions: {delay: 20ms}\n    command:\n      - word0\n"));
        assert!(text.ends_with("  web: {}\n"));
    }

    proptest! {
        #[test]
        fn any_text_reads_back(value in "(?s)[^\0]{0,40}", key in "(?s)[^\0=]{1,20}") {
            let mut env = Map::default();
            env.text(&key, value.clone());
            let mut node = Map::default();
            node.map("env", env);
            let mut nodes = Map::default();
            nodes.map("n", node);
            let mut file = Map::default();
            file.map("nodes", nodes);
            let lab = slipway_lab::parse("t.yaml", &file.document(), std::path::Path::new("/")).map_err(|errors| errors.plain());
            prop_assert_eq!(&lab.as_ref().map(|lab| &lab.nodes[slipway_lab::id::NodeId(0)].env[&key]), &Ok(&value), "{}", file.document());
        }
    }
}
