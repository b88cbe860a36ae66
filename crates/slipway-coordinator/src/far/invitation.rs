//! The file in a campaign's folder that leads workers' machines to the coordinator.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slipway_document::FileError;

/// Most bytes of the file.
const LARGEST: u64 = 64 << 10;

/// The way to a coordinator.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    /// Addresses where it may be reached. They are tried in order.
    pub addresses: Vec<SocketAddr>,
    /// The token, in hexadecimal digits. `Debug` leaves it out.
    pub token: String,
}

/// The reason why an invitation is of no use. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum InvitationError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is none.
    #[error("understand {}: {why}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// Others read the file, and so the token.
    #[error("trust {}: other users can read the token in it\nHint: `chmod 600` it", .0.display())]
    Readable(PathBuf),
}

impl Invitation {
    /// Writes the file for its owner alone. A reader sees the old one, or all of the new one.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), InvitationError> {
        let fresh = path.with_extension("new");
        let failed = FileError::of("write", path);
        let write = || -> io::Result<()> {
            // A file of an earlier attempt may have other permissions.
            match fs::remove_file(&fresh) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&fresh, path)
        };
        Ok(write().map_err(failed)?)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// Where it is not there, is none, or other users may read it.
    pub fn read(path: &Path) -> Result<Self, InvitationError> {
        let file = File::open(path).map_err(FileError::of("open", path))?;
        if file.metadata().map_err(FileError::of("read", path))?.mode() & 0o077 != 0 {
            return Err(InvitationError::Readable(path.to_owned()));
        }
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text).map_err(FileError::of("read", path))?;
        let wrong = |error: serde_json::Error| InvitationError::Wrong { path: path.to_owned(), why: error.to_string() };
        serde_json::from_slice(&text).map_err(wrong)
    }
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invitation").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_invitation_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("join.json");
        let addresses = vec!["192.0.2.1:7".parse().unwrap(), "[2001:db8::1]:7".parse().unwrap()];
        let invitation = Invitation { addresses, token: "ab".repeat(32) };
        for _ in 0..2 {
            invitation.write(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            assert_eq!(Invitation::read(&path).unwrap(), invitation);
        }
        assert!(!format!("{invitation:?}").contains("abab"), "logs do not have it");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Invitation::read(&path), Err(InvitationError::Readable(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "{}").unwrap();
        assert!(matches!(Invitation::read(&path), Err(InvitationError::Wrong { .. })));
    }
}
