//! Why a value cannot be read, in words for the file's author.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use crate::suggest::suggest;
use crate::tree::NodeId;

/// Why a value cannot be read, and the node that is to blame.
#[derive(Debug)]
pub(super) struct Error {
    pub(super) node: Option<NodeId>,
    pub(super) message: String,
    /// `None`: what the kind of file says of a value that does not fit.
    pub(super) help: Option<String>,
}

impl Error {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { node: None, message: message.into(), help: Some(help.into()) }
    }

    /// The innermost reader that had the error is to blame.
    pub(super) fn at(mut self, id: NodeId) -> Self {
        self.node.get_or_insert(id);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.help {
            Some(help) => write!(f, "{}; {help}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    /// Errors of written values end in `; write …`: that is their help.
    fn custom<T: fmt::Display>(message: T) -> Self {
        let text = message.to_string();
        match text.split_once("; write ") {
            Some((message, help)) => Self::new(message, format!("write {help}")),
            None => Self { node: None, message: text, help: None },
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Unit => "nothing".to_owned(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "a map".to_owned(),
            Unexpected::Str(text) => format!("`{}`", excerpt(text)),
            Unexpected::Unsigned(number) => format!("`{number}`"),
            Unexpected::Signed(number) => format!("`{number}`"),
            Unexpected::Bool(value) => format!("`{value}`"),
            other => other.to_string(),
        };
        Self::new(format!("{found} does not fit here"), format!("write {expected}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("there is no `{}` here", excerpt(variant)), suggest(variant, expected))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("there is no key `{}` here", excerpt(field)), suggest(field, expected))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is missing"), format!("add `{field}: …` here"))
    }
}

/// Enough of a text to recognise it by.
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
