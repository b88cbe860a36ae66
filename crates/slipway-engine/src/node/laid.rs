//! Additions of bypasses to a node's kernel file systems: folders laid over those of sysfs, and devices that do nothing by themselves.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, unmount};
use slipway_sys::mount::{attach, detached, mount_fs, set_flags};

use super::error::{RootfsError, file};
use crate::bypass::{LaidOver, Needs};

/// Where a folder is while the overlay on it is made. A node's `/run` is empty before its first program.
const PLACE: &str = "/run/.laid";

const HARMLESS: MountFlags =
    MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC).union(MountFlags::RDONLY);

/// Folders of this machine that wait for their places.
pub(super) struct Laid(Vec<(OwnedFd, LaidOver)>);

impl Laid {
    /// Takes every folder, while its path still means this machine's.
    pub(super) fn take(needs: &Needs) -> Result<Self, RootfsError> {
        let take = |laid: &LaidOver| Ok((detached(&laid.source, false)?, laid.clone()));
        needs.laid_over.iter().map(take).collect::<Result<_, RootfsError>>().map(Self)
    }

    /// Lays each over its place. The node's kernel file systems are mounted.
    pub(super) fn put(&self) -> Result<(), RootfsError> {
        let place = Path::new(PLACE);
        for (folder, LaidOver { target, hiding, .. }) in &self.0 {
            ensure_dir(place)?;
            attach(folder.as_fd(), place)?;
            mount_fs("overlay", target, HARMLESS, &format!("lowerdir={PLACE}:{}", target.display()))?;
            for folder in hiding {
                // The overlay would join both folders. A mark that it must not takes privileges on the machine.
                let hiding = target.join(folder);
                attach(detached(&place.join(folder), false)?.as_fd(), &hiding)?;
                set_flags(&hiding, HARMLESS)?;
            }
            // The overlay holds mounts of its own.
            unmount(place, UnmountFlags::DETACH).map_err(|error| file("unmount", place)(error.into()))?;
            fs::remove_dir(place).map_err(file("remove", place))?;
        }
        Ok(())
    }
}

/// Makes device files that swallow what is written. The node's own devices are there.
pub(super) fn make_devices(devices: &[PathBuf]) -> Result<(), RootfsError> {
    for path in devices {
        ensure_dir(path.parent().unwrap_or(Path::new("/dev")))?;
        fs::write(path, "").map_err(file("make", path))?;
        attach(detached(Path::new("/dev/null"), false)?.as_fd(), path)?;
    }
    Ok(())
}

/// Makes a folder, and those above it.
pub(super) fn ensure_dir(path: &Path) -> Result<(), RootfsError> {
    match fs::DirBuilder::new().recursive(true).mode(0o755).create(path) {
        Ok(()) => Ok(()),
        Err(source) => Err(file("make", path)(source)),
    }
}
