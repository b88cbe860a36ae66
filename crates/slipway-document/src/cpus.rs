//! Sets of processors.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Processors that a list may name (`NR_CPUS` of the largest kernels).
const MOST_PROCESSORS: u32 = 8192;

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
