//! Versions of the kernel, and ranges of them.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// A kernel's version: `6.1.0-18-amd64` is 6.1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Version(pub u32, pub u32, pub u32);

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
        let mut parts = numbers.split('.').map(|part| part.parse::<u32>().map_err(drop));
        let (major, minor) = (parts.next().ok_or(())??, parts.next().ok_or(())??);
        Ok(Self(major, minor, parts.next().and_then(Result::ok).unwrap_or(0)))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)?;
        if self.2 > 0 { write!(f, ".{}", self.2) } else { Ok(()) }
    }
}

/// A range of versions, such as `>= 4.20, < 6.11`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Range {
    from: Option<Version>,
    below: Option<Version>,
}

impl Range {
    /// True where `version` is in the range.
    #[must_use]
    pub fn holds(&self, version: Version) -> bool {
        self.from.is_none_or(|from| version >= from) && self.below.is_none_or(|below| version < below)
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut range = Self::default();
        for part in text.split(',') {
            let part = part.trim();
            let (side, version) = match (part.strip_prefix(">="), part.strip_prefix('<')) {
                (Some(version), _) => (&mut range.from, version),
                (_, Some(version)) => (&mut range.below, version),
                _ => return Err(format!("`{part}` is no bound of versions")),
            };
            let version = version.trim().parse().map_err(|()| format!("`{}` is no version", version.trim()))?;
            if side.replace(version).is_some() {
                return Err(format!("`{part}` is a second bound of the same side"));
            }
        }
        Ok(range)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.below) {
            (None, None) => f.write_str("all"),
            (Some(from), None) => write!(f, ">= {from}"),
            (None, Some(below)) => write!(f, "< {below}"),
            (Some(from), Some(below)) => write!(f, ">= {from}, < {below}"),
        }
    }
}
