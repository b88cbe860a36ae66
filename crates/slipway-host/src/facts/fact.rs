//! A fact: known, or unknown for a reason.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Processors that a list may name (`NR_CPUS` of the largest kernels).
const MOST_PROCESSORS: u32 = 8192;

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

/// A set of processors. Its text is a list such as `0-3,8`, as the kernel writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Cpus(pub BTreeSet<u32>);

impl Cpus {
    /// Whether every processor of this set is in the other.
    #[must_use]
    pub fn within(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromStr for Cpus {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().map_err(drop)?, last.parse().map_err(drop)?);
            if first > last || last >= MOST_PROCESSORS {
                return Err(());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut rest = self.0.iter().copied().peekable();
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| *next == last + 1) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl From<Cpus> for String {
    fn from(cpus: Cpus) -> Self {
        cpus.to_string()
    }
}
