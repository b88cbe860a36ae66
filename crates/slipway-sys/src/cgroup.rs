//! Control groups on version 1, version 2 and machines that mix both: members of a node, their limits, and how to stop
//! them (`cgroups(7)`; kernel `Documentation/admin-guide/cgroup-v1/` and `cgroup-v2.rst`).
//!
//! Everything is made below one folder, [`TOP`], as `slipway/<lab>/<node>`, in as few hierarchies as possible:
//! - One hierarchy holds every node: the **membership record**. It is version 2 wherever that is mounted, even with no
//!   controller in it. Freezing, killing and counting processor time need no controller there, freezing reports when it
//!   is done, and a clone can start directly in a group. Otherwise it is version 1's freezer.
//! - A version 1 controller gets a folder only for a node with a limit that needs it.
//!
//! Cloning into a group ([`Group::clone_target`]) matters. Moving a process waits for an RCU grace period (about 6 ms
//! where this was measured; moves that follow closely are free). Birth in the group waits for nothing.

mod control;
mod controller;
mod enforce;
mod group;
mod hierarchy;
mod in_force;
mod limits;
mod settings;
mod usage;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use controller::Controller;
pub use group::Group;
pub use hierarchy::{Hierarchy, Mode};
pub use in_force::{InForce, Throttled};
pub use limits::{DiskLimits, Limits};
pub use usage::Usage;

/// The folder, in every hierarchy, below which everything here happens.
pub const TOP: &str = "slipway";

/// Why a control group could not be had.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// Neither version is mounted.
    #[error("find a control group hierarchy: none is mounted. Hint: mount -t cgroup2 none /sys/fs/cgroup")]
    NoHierarchy,
    /// A version 1 machine without the controller that records who is in a node.
    #[error(
        "record who is in a node: control groups are version 1 here, and the freezer controller is not mounted. Hint: mkdir /sys/fs/cgroup/freezer && mount -t cgroup -o freezer none /sys/fs/cgroup/freezer"
    )]
    NoFreezer,
    /// A limit was asked for that nothing here can enforce.
    #[error("limit {limit}: {reason}")]
    NoController {
        /// The limit that was asked for.
        limit: &'static str,
        /// The missing part, and how to get it.
        reason: String,
    },
    /// A limit that the kernel would refuse.
    #[error("limit {limit}: {reason}")]
    BadLimit {
        /// The limit that was asked for.
        limit: &'static str,
        /// Why it cannot be, and what can.
        reason: String,
    },
    /// A name that would lead out of the folder.
    #[error("name a control group {0:?}: names are one path component")]
    BadName(String),
    /// The kernel refused.
    #[error("{action} {path}: {source}{hint}", path = path.display(), hint = hint(source))]
    Io {
        /// The failed action.
        action: &'static str,
        /// The path that it was about.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Freezing, thawing or ending took too long: a process hangs in the kernel.
    #[error("{action} {path}: not done after {seconds} s; processes left: {left:?}. Hint: one of them hangs in the kernel (state D in ps); look at /proc/PID/stack", path = path.display())]
    Stuck {
        /// The failed action.
        action: &'static str,
        /// The path that it was about.
        path: PathBuf,
        /// The length of the wait, in seconds.
        seconds: u64,
        /// The processes that are left, at most ten.
        left: Vec<i32>,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ". Hint: control groups belong to root; run as root, or have a part delegated"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            ". Hint: inside a container, have /sys/fs/cgroup mounted writable (podman run --security-opt unmask=/sys/fs/cgroup)"
        }
        _ => "",
    }
}

/// Names what failed.
fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    let path = path.to_owned();
    move |source| CgroupError::Io { action, path, source }
}
