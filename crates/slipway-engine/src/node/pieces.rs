//! This machine's root as a node's, in a user namespace.
//!
//! There `/` cannot be a layer of an overlay: the mounts below it came with the namespace and are locked onto it
//! (`mount_namespaces(7)`), and overlayfs refuses a layer with locked mounts (`EINVAL`). The folders in it can. So the
//! node's root is a folder of its own, with the machine's links, an overlay for each of the machine's folders (for one
//! with mounts below it again piece by piece), and the few files beside them read-only.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::MountFlags;
use slipway_sys::mount::{attach, detached, mount_overlay, set_flags};

use super::error::{RootfsError, file};

/// Where every node has its own.
const NOT_SHARED: [&str; 6] = ["/dev", "/proc", "/run", "/sys", "/tmp", "/lost+found"];

/// Mounts it at `root`. What the node writes is in `upper` as it would be with one overlay.
pub(super) fn mount(upper: &Path, work: &Path, root: &Path) -> Result<(), RootfsError> {
    attach(detached(upper, false)?.as_fd(), root)?;
    let table = Path::new("/proc/self/mountinfo");
    let table = fs::read_to_string(table).map_err(file("read", table))?;
    let mounts: Vec<&Path> = table.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new).collect();
    Pieces { mounts: &mounts }.lay(Path::new("/"), upper, work, root)
}

/// Where anything is mounted.
struct Pieces<'a> {
    mounts: &'a [&'a Path],
}

impl Pieces<'_> {
    fn are_below(&self, folder: &Path) -> bool {
        self.mounts.iter().any(|mount| *mount != folder && mount.starts_with(folder))
    }

    fn lay(&self, lower: &Path, upper: &Path, work: &Path, target: &Path) -> Result<(), RootfsError> {
        let entries = match fs::read_dir(lower) {
            // Somebody else's, and so it would be in the node.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
            entries => entries.map_err(file("list", lower))?,
        };
        for entry in entries {
            let entry = entry.map_err(file("list", lower))?;
            let kind = entry.file_type().map_err(file("look at", &entry.path()))?;
            let [lower, upper, work, target] = [lower, upper, work, target].map(|at| at.join(entry.file_name()));
            if NOT_SHARED.iter().any(|folder| lower == Path::new(folder)) {
                continue;
            }
            if kind.is_symlink() {
                let to = fs::read_link(&lower).map_err(file("read link", &lower))?;
                unless_there(symlink(to, &target)).map_err(file("link", &target))?;
            } else if kind.is_dir() {
                unless_there(fs::create_dir(&target)).map_err(file("make", &target))?;
                fs::create_dir_all(&work).map_err(file("make", &work))?;
                match mount_overlay(std::slice::from_ref(&lower), &upper, &work, &target) {
                    // Only what came with the namespace is locked: the lab's own mounts below a folder do no harm.
                    Err(error) if error.source.kind() == ErrorKind::InvalidInput && self.are_below(&lower) => {
                        self.lay(&lower, &upper, &work, &target)?;
                    }
                    mounted => mounted?,
                }
            } else if kind.is_file() {
                fs::write(&target, "").map_err(file("make", &target))?;
                attach(detached(&lower, false)?.as_fd(), &target)?;
                set_flags(&target, MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV)?;
            }
        }
        Ok(())
    }
}

/// A node that is started again has it from before.
fn unless_there(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
