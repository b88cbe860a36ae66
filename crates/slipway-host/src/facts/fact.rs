//! A fact: known, or unknown for a reason.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Something that Slipway knows of a machine, or the reason why it does not. In JSON it is the value, or `{"unknown": "reason"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Fact<T> {
    /// Not known.
    Unknown {
        /// The reason, such as `there is no /sys/class/net/eth0/speed`.
        unknown: String,
    },
    /// Known.
    Known(T),
}

impl<T> Fact<T> {
    /// A fact that is not known, for this reason.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown { unknown: reason.into() }
    }

    /// The value, where it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown { .. } => None,
        }
    }

    /// The value, or the reason why it is not known.
    ///
    /// # Errors
    /// The reason.
    pub fn as_result(&self) -> Result<&T, &str> {
        match self {
            Self::Known(value) => Ok(value),
            Self::Unknown { unknown } => Err(unknown),
        }
    }

    /// Makes another fact of it.
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Self::Known(value) => Fact::Known(of(value)),
            Self::Unknown { unknown } => Fact::Unknown { unknown },
        }
    }

    /// Makes another fact of it, which may be unknown.
    pub fn and_then<U>(self, of: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Self::Known(value) => of(value),
            Self::Unknown { unknown } => Fact::Unknown { unknown },
        }
    }
}

impl Fact<String> {
    /// The number, or whatever else the text is read as.
    #[must_use]
    pub fn parse<T: FromStr>(self) -> Fact<T> {
        self.and_then(|text| match text.trim().parse() {
            Ok(value) => Fact::Known(value),
            Err(_) => Fact::unknown(format!("`{}` makes no sense here", shown(&text))),
        })
    }
}

/// The beginning of a text from elsewhere.
pub(super) fn shown(text: &str) -> String {
    text.trim().chars().take(40).map(|char| if char.is_control() { '?' } else { char }).collect()
}
