//! The folders on disk that nodes have as `/scratch`.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// Makes the folder of a lab's scratch folders, closed to other users of the machine: nodes have set-user-ID files in them.
pub(super) fn make(path: &Path) -> io::Result<()> {
    let private = std::fs::Permissions::from_mode(0o700);
    if let Some(root) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        // Left by a crash, or put there by somebody who wants to look into it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = std::fs::symlink_metadata(path)?;
            if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
                return Err(io::Error::other(
                    "it is there, and somebody else's\nHint: remove it, or name another place with SLIPWAY_SCRATCH",
                ));
            }
            std::fs::set_permissions(path, private)
        }
        made => made,
    }
}
