//! Values of variables and results.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One value of a variable, or one extracted result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A finite number.
    Number(f64),
    /// A text.
    Text(String),
}

impl Value {
    /// The value as a number: whole numbers, numbers, and 0 or 1 for a `Bool`.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Bool(yes) => Some(f64::from(u8::from(*yes))),
            Self::Integer(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

impl fmt::Display for Value {
    /// The text that a command line or a template gets: it reads back as the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(yes) => write!(f, "{yes}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}
