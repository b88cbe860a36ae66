//! Sets of processors, in the form that the kernel has for them (cpuset(7), "List format").

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

/// Reads ascending numbers and ranges. No text is the empty set. An error says nothing more: there are few ways to go wrong.
impl FromStr for Cpus {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut cpus = BTreeSet::new();
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self(cpus));
        }
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|cpu| digits && *cpu < MOST_PROCESSORS)
        };
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
                _ => return Err(()),
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_the_kernel_does() {
        for (text, shown) in [("0-3,8", "0-3,8"), ("3,2,1", "1-3"), ("", ""), ("7\n", "7")] {
            assert_eq!(text.parse::<Cpus>().expect(text).to_string(), shown);
        }
        for wrong in ["a", "3-1", "0-8192", "1-", "-1", "+1", "1,,2", "1,", ",", "0-4294967295"] {
            assert!(wrong.parse::<Cpus>().is_err(), "{wrong}");
        }
    }
}
