//! Paths within a transfer: bytes from a peer, checked before they name anything.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde::{Deserialize, Serialize};

/// The folder of incomplete files, below the destination.
pub const PART: &str = ".slipway-part";
/// Bytes of a whole path (`PATH_MAX` in `limits.h`, with its zero).
const LONGEST: usize = 4095;
/// Bytes of a name (`NAME_MAX`).
const LONGEST_NAME: usize = 255;

/// A path below the destination: names with `/` between them; none is empty, `.` or `..`. It does not begin with [`PART`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Relative(Vec<u8>);

/// A path leads out of the destination, or is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a path is absolute, too long, names the part folder, or has an empty name, `.` or `..`")]
pub struct BadPath;

impl TryFrom<Vec<u8>> for Relative {
    type Error = BadPath;

    fn try_from(bytes: Vec<u8>) -> Result<Self, BadPath> {
        let good = |name: &[u8]| {
            !name.is_empty() && name != b"." && name != b".." && name.len() <= LONGEST_NAME && !name.contains(&0)
        };
        let mut names = bytes.split(|&byte| byte == b'/');
        let inside = names.clone().next() != Some(PART.as_bytes());
        if inside && bytes.len() <= LONGEST && names.all(good) { Ok(Self(bytes)) } else { Err(BadPath) }
    }
}

impl From<Relative> for Vec<u8> {
    fn from(path: Relative) -> Self {
        path.0
    }
}

impl Relative {
    /// The path as the system takes it.
    #[must_use]
    pub fn as_os(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The folder that holds it, empty for the destination itself, and its name.
    #[must_use]
    pub fn split(&self) -> (&OsStr, &OsStr) {
        let (folder, name) = match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&self.0[..0], &self.0[..]),
        };
        (OsStr::from_bytes(folder), OsStr::from_bytes(name))
    }

    /// The name of its incomplete file: 32 hexadecimal digits that follow from the path.
    #[must_use]
    pub fn part_name(&self) -> String {
        let hex = blake3::derive_key("slipway transfer 1: part name", &self.0);
        blake3::Hash::from_bytes(hex).to_hex()[..32].to_owned()
    }
}

impl std::fmt::Display for Relative {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_are_refused() {
        let read = |text: &str| Relative::try_from(text.as_bytes().to_vec());
        for wrong in ["", "/", "/etc", "a/", "a//b", ".", "..", "a/../b", "a/..", "./a", ".slipway-part/x", "a\0"] {
            assert_eq!(read(wrong), Err(BadPath), "{wrong}");
        }
        assert!(Relative::try_from(vec![b'a'; 256]).is_err());
        let path = read("a/b..c/.d").expect("a good one");
        assert_eq!(path.split(), (OsStr::new("a/b..c"), OsStr::new(".d")));
        assert_eq!(read("x").expect("one name").split(), (OsStr::new(""), OsStr::new("x")));
    }
}
