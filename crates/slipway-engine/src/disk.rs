//! The store of a node's `/scratch`: a folder on the machine's disk, or a block device of the node's own.
//!
//! A disk of its own is a sparse file beside the scratch folders, a loop device on it (`loop(4)`), and an ext4. The
//! anchor mounts that over the node's scratch folder in its private mount namespace, and the node's root takes it from
//! there like a folder. Nothing of it outlives the anchor: the mount goes with the namespace, and the loop device frees
//! itself with its last mount.
//!
//! It has no journal: it is thrown away with the lab, and what the limits count is then what programs do.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::mount::MountFlags;
use serde::{Deserialize, Serialize};
use slipway_document::units::Bytes;
use slipway_lab::id::{List, NodeId};
use slipway_lab::model::{Lab, Node};
use slipway_sys::block::{Device, LoopDevice, attached, free};
use slipway_sys::cgroup::{CgroupError, Controller, DiskLimits, Hierarchy, Limits};
use slipway_sys::mount::{MountError, mount_device};

use crate::hierarchy::of_lab;
use crate::state::{LabDir, StateError};

/// The store of a node's `/scratch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDisk {
    /// The block device.
    pub device: Device,
    /// True if no other node uses it.
    pub own: bool,
}

/// Why a node's disk cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file operation.
    #[error("{doing} {}: {source}", path.display())]
    File {
        /// Verb, as in "make".
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The error of the action.
        source: io::Error,
    },
    /// There is no block device to limit.
    #[error(
        "limit the disk of node `{node}`: {} is on no block device\nHint: give the node one of its own (`disk: {{size: 1GiB, …}}`), or name a folder on a disk with SLIPWAY_SCRATCH", path.display()
    )]
    NoDevice {
        /// The node.
        node: String,
        /// The node's scratch folder.
        path: PathBuf,
    },
    /// The disks would not fit.
    #[error(
        "make the nodes' disks: they are {asked} together, and {} has {free} left\nHint: ask for less, or name a larger place with SLIPWAY_SCRATCH", path.display()
    )]
    NoRoom {
        /// All sizes.
        asked: Bytes,
        /// The space that is left.
        free: Bytes,
        /// The path that it was about.
        path: PathBuf,
    },
    /// `mkfs.ext4` does not run.
    #[error("make a file system: mkfs.ext4: {0}\nHint: apt-get install e2fsprogs")]
    NoMkfs(io::Error),
    /// The program ran, and failed.
    #[error("make a file system on {}: {said}", path.display())]
    Mkfs {
        /// The disk's file.
        path: PathBuf,
        /// Its output.
        said: String,
    },
    /// The kernel gives no loop device.
    #[error(
        "attach a loop device to {}: {source}\nHint: a disk of a node's own takes the machine's root and loop devices (modprobe loop; in a container, /dev/loop-control and /dev/loop*)", path.display()
    )]
    NoLoop {
        /// The disk's file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file system cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The lab's state cannot record the disk.
    #[error(transparent)]
    State(#[from] StateError),
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.to_owned();
    move |source| DiskError::File { doing, path, source }
}

/// File systems made at once.
const AT_ONCE: usize = 8;

const FILE: &str = "disks.json";

impl LabDir {
    /// Reads which block device carries each node's `/scratch`, where nodes have one of their own.
    pub(crate) fn read_disks(&self) -> Result<List<NodeId, Option<NodeDisk>>, StateError> {
        self.read(FILE)
    }
}

/// Makes the disks of nodes that have their own, in the caller's mount namespace. Finds the device of nodes that have
/// limits without a disk. Indexed as the lab's nodes; `None` where no device has to be known.
pub(crate) fn prepare(lab: &Lab, dir: &LabDir, scratch: &Path) -> Result<List<NodeId, Option<NodeDisk>>, DiskError> {
    let own: Vec<(&Node, Bytes)> = lab
        .nodes_here()
        .into_iter()
        .map(|node| &lab.nodes[node])
        .filter_map(|node| Some((node, node.limits.disk.size?)))
        .collect();
    check_room(scratch, &own)?;
    for some in own.chunks(AT_ONCE) {
        let begun: Vec<(PathBuf, Child)> =
            some.iter().map(|(node, size)| begin(&file_of(scratch, node), *size)).collect::<Result<_, _>>()?;
        begun.into_iter().try_for_each(|(path, child)| finish(&path, child))?;
    }
    let disks: List<NodeId, Option<NodeDisk>> = lab
        .nodes
        .iter()
        .map(|node| if lab.is_here(node.host) { disk_of(node, scratch) } else { Ok(None) })
        .collect::<Result<_, _>>()?;
    if !own.is_empty() {
        dir.write(FILE, &disks)?;
    }
    Ok(disks)
}

fn disk_of(node: &Node, scratch: &Path) -> Result<Option<NodeDisk>, DiskError> {
    let disk = &node.limits.disk;
    if disk.size.is_some() {
        return attach(node, scratch).map(Some);
    }
    let limited = disk.read.is_some() || disk.write.is_some() || disk.read_iops.is_some() || disk.write_iops.is_some();
    if limited { shared(node, scratch).map(Some) } else { Ok(None) }
}

/// Applies limits to a node's own device. In version 1, control groups count data that the kernel writes back for the
/// machine instead of for the node, so the limits there hold for all users of the device. A quarter of a second of
/// writes may wait in the page cache. So a program feels the disk's pace as it writes, and data for a slow disk does
/// not fill the machine's page cache.
pub(crate) fn limit_own_device(limits: &DiskLimits, hierarchy: &Hierarchy) -> Result<(), CgroupError> {
    hierarchy.limit_device(limits)?;
    let rate = limits.write.or(limits.write_iops.map(|writes| u64::from(writes) * PAGE));
    // Where the kernel cannot (before Linux 6.2), `Running::resources` says so.
    let _ = limits.device.limit_waiting(rate.map(|rate| (rate / 4).max(LEAST_WAITING)));
    Ok(())
}

/// The least that the kernel writes, bytes.
const PAGE: u64 = 4096;
/// With less, the kernel's estimate of a device's pace is too coarse.
const LEAST_WAITING: u64 = 1 << 20;

/// The machine's disk beneath a node's scratch folder.
pub(crate) fn shared(node: &Node, scratch: &Path) -> Result<NodeDisk, DiskError> {
    let path = scratch.join(&node.name);
    let device = Device::of(&path).map_err(failed("look at", &path))?;
    device
        .map(|device| NodeDisk { device, own: false })
        .ok_or_else(|| DiskError::NoDevice { node: node.name.clone(), path })
}

fn file_of(scratch: &Path, node: &Node) -> PathBuf {
    // No node's name has a dot.
    scratch.join(format!("{}.disk", node.name))
}

/// A disk that grows where there is no room would give its node errors instead of "no space left".
fn check_room(scratch: &Path, own: &[(&Node, Bytes)]) -> Result<(), DiskError> {
    if own.is_empty() {
        return Ok(());
    }
    let found = rustix::fs::statvfs(scratch).map_err(|error| failed("look at", scratch)(error.into()))?;
    let free = Bytes(found.f_bavail.saturating_mul(found.f_frsize));
    let asked = Bytes(own.iter().fold(0, |sum, (_, size)| size.0.saturating_add(sum)));
    if asked > free {
        return Err(DiskError::NoRoom { asked, free, path: scratch.to_owned() });
    }
    Ok(())
}

fn begin(path: &Path, size: Bytes) -> Result<(PathBuf, Child), DiskError> {
    let file = File::options().create_new(true).write(true).open(path).map_err(failed("make", path))?;
    file.set_len(size.0).map_err(failed("make", path))?;
    let mut mkfs = Command::new("mkfs.ext4");
    // It lives where a user's PATH may not lead.
    mkfs.env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin");
    mkfs.args(["-q", "-F", "-b", "4096", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard"])
        .arg(path);
    mkfs.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok((path.to_owned(), mkfs.spawn().map_err(DiskError::NoMkfs)?))
}

fn finish(path: &Path, child: Child) -> Result<(), DiskError> {
    let output = child.wait_with_output().map_err(DiskError::NoMkfs)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(DiskError::Mkfs { path: path.to_owned(), said })
}

fn attach(node: &Node, scratch: &Path) -> Result<NodeDisk, DiskError> {
    let (path, target) = (file_of(scratch, node), scratch.join(&node.name));
    let file = File::options().read(true).write(true).open(&path).map_err(failed("open", &path))?;
    let disk = LoopDevice::attach(&file).map_err(|source| DiskError::NoLoop { path: path.clone(), source })?;
    // The file is all zeros where mkfs wrote nothing, so there is nothing to clear in the background.
    mount_device(&disk.path, "ext4", &target, MountFlags::NODEV | MountFlags::NOSUID, "noinit_itable")?;
    let lost = target.join("lost+found");
    fs::remove_dir(&lost).map_err(failed("remove", &lost))?;
    Ok(NodeDisk { device: disk.device, own: true })
}

/// Removes the limits of nodes' own disks. Then data that is still to be written does not hold up the end of the lab,
/// and no limit stays on a loop device that somebody else will use.
pub(crate) fn lift(dir: &LabDir, scratch: &Path) -> Result<(), CgroupError> {
    let Ok(disks) = dir.read_disks() else { return Ok(()) };
    let Ok(hierarchy) = of_lab(dir) else { return Ok(()) };
    let others: Vec<Device> = attached(Path::new("/"))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(device, file)| (!file.starts_with(scratch)).then_some(device))
        .collect();
    let own = disks.enumerate().filter_map(|(node, disk)| Some((node, disk.as_ref()?))).filter(|(_, disk)| disk.own);
    let lab = dir.read_lab().ok();
    // Freed by a crash, it may be somebody else's by now.
    for (node, disk) in own.filter(|(_, disk)| !others.contains(&disk.device)) {
        let unlimited = DiskLimits::none(disk.device);
        let node = lab.as_ref().and_then(|lab| lab.nodes.get(node));
        if let Some(node) = node.filter(|_| !hierarchy.limits_devices()) {
            let limits = Limits { disk: Some(unlimited), ..Limits::default() };
            hierarchy.set_limits(dir.shared_name(), &node.name, &limits, &[Controller::Io].into())?;
        }
        limit_own_device(&unlimited, &hierarchy)?;
    }
    Ok(())
}

/// Frees loop devices on files in `scratch`, which somebody who is not of the lab keeps.
pub(crate) fn detach(scratch: &Path) -> io::Result<()> {
    attached(scratch)?.into_iter().try_for_each(|(device, _)| free(device))
}
