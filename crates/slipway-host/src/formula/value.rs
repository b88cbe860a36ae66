//! Values of formulas.

use std::fmt;

/// A value of a formula, or the reason why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number: bytes, seconds, bits per second or a count. It is finite.
    Number(f64),
    /// A text, such as the name of a scheduler.
    Text(String),
    /// Yes or no.
    Truth(bool),
    /// The reason why there is no value.
    Unknown(String),
}

impl Value {
    /// No value, for this reason.
    #[must_use]
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown(reason.into())
    }

    /// A number where it is finite.
    #[must_use]
    pub fn of(number: f64) -> Self {
        if number.is_finite() {
            Self::Number(number)
        } else {
            Self::unknown("a division by zero, or too large a number")
        }
    }

    /// The number that a text from the kernel is, else the text.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let plain = !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if plain => Self::Number(number),
            _ => Self::Text(text),
        }
    }

    pub(super) fn number(&self) -> Result<f64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Unknown(reason) => Err(reason.clone()),
            other => Err(format!("`{other}` is no number")),
        }
    }

    /// Yes or no, or the reason why neither.
    ///
    /// # Errors
    /// The reason why there is no value, or that it is neither yes nor no.
    pub fn truth(&self) -> Result<bool, String> {
        match self {
            Self::Truth(truth) => Ok(*truth),
            Self::Unknown(reason) => Err(reason.clone()),
            other => Err(format!("`{other}` is neither yes nor no")),
        }
    }

    /// The value as the kernel would have it.
    ///
    /// # Errors
    /// The reason why there is no value.
    pub fn text(&self) -> Result<String, String> {
        match self {
            Self::Unknown(reason) => Err(reason.clone()),
            other => Ok(other.to_string()),
        }
    }

    pub(super) fn equals(&self, other: &Self) -> Result<bool, String> {
        match (self, other) {
            (Self::Unknown(reason), _) | (_, Self::Unknown(reason)) => Err(reason.clone()),
            // Both are what the kernel gave or wants, so 5 and "5" are the same.
            _ => Ok(self.to_string() == other.to_string()),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::Truth(true) => f.write_str("on"),
            Self::Truth(false) => f.write_str("off"),
            Self::Unknown(reason) => write!(f, "unknown: {reason}"),
        }
    }
}
