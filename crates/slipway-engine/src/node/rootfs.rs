//! A node's root: an overlay on its image, with the kernel's file systems and the lab's shared files in their places.
//!
//! Everything here runs in the node's own process. Sources on the machine are taken as detached mounts *before* the
//! change of root, targets are resolved *after* it: whatever symbolic links an image holds, they cannot lead a mount
//! out of the node.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, FileType, Mode, chmod, mknodat};
use rustix::mount::{MountAttrFlags, MountFlags};
use slipway_lab::model::{Mount, Node};
use slipway_sys::mount::{
    attach, detached, detached_fs, detached_overlay, enter_tree, mount_fs, mount_overlay, set_flags,
};
use slipway_sys::ns::in_first_user_namespace;

use super::error::{RootfsError, file};
use super::laid::{self, Laid, ensure_dir};
use super::pieces;
use crate::bypass::Needs;
use crate::exec::ssh;
use crate::state::LabDir;
use slipway_image::Rootfs;

/// What a node's root is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Root<'a> {
    pub(crate) dir: &'a LabDir,
    pub(crate) node: &'a Node,
    pub(crate) image: &'a Rootfs,
    /// Of its bypasses, beside what the lab file says.
    pub(crate) needs: &'a Needs,
    /// On disk, for the node's `/scratch`.
    pub(crate) scratch: &'a Path,
    /// A mount namespace with nothing in it, which the node's begins as.
    pub(crate) empty: BorrowedFd<'a>,
}

const NO_EXEC: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

const HARMLESS: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV).union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// Most pseudo-terminals of a node: all nodes of a machine have some 3000 together (`kernel.pty.max`, `kernel.pty.reserve`).
const TERMINALS: u32 = 256;

/// Kernel files that tell or change what belongs to the machine: the default of container engines
/// (OCI runtime specification, `linux.maskedPaths` and `linux.readonlyPaths` as Docker and containerd fill them).
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Devices that every program may expect: name, major, minor (`Documentation/admin-guide/devices.txt`).
const DEVICES: &[(&str, u32, u32)] =
    &[("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// A detached mount that waits for its place.
struct Bind {
    tree: OwnedFd,
    target: PathBuf,
    is_dir: bool,
    flags: MountFlags,
}

/// The upper and work directories of a node, on the lab's own tmpfs.
pub(crate) fn upper(dir: &LabDir, node: &str) -> (PathBuf, PathBuf) {
    let base = dir.join("rw").join(node);
    (base.join("upper"), base.join("work"))
}

/// What a node has from its lab rather than from its image or its programs, as paths in its root: mount points, and the
/// files that are written at its start. `mounts` are those beside the lab file's.
pub(crate) fn furnished(node: &Node, mounts: &[Mount]) -> BTreeSet<PathBuf> {
    let fixed = ["proc", "sys", "dev", "run", "tmp", "scratch", "etc/hosts", "etc/resolv.conf", "etc/hostname"];
    let mounts = node.mounts.iter().chain(mounts).filter_map(|mount| mount.target.strip_prefix("/").ok());
    let ssh = node.sshd.then_some(Path::new(ssh::SETTINGS));
    fixed.map(Path::new).into_iter().chain(mounts).chain(ssh).map(Path::to_owned).collect()
}

/// Whether an image lies on top of this machine's root, which then contains the image's own layers: overlayfs refuses
/// that (`ELOOP`) unless an overlay in between hides it.
pub(crate) fn lies_on_the_machine(image: &Rootfs) -> bool {
    image.lowers.len() > 1 && image.lowers.last().is_some_and(|last| last == Path::new("/"))
}

/// Where that overlay is. No node's name begins with a dot.
fn hidden(dir: &LabDir) -> PathBuf {
    dir.join("rw").join(".host")
}

/// Mounts it, once for all nodes of a lab. Nothing is ever written to it.
pub(crate) fn hide_machine(dir: &LabDir) -> Result<(), RootfsError> {
    let [upper, work, root] = ["upper", "work", "root"].map(|name| hidden(dir).join(name));
    for path in [&upper, &work, &root] {
        fs::create_dir_all(path).map_err(file("make", path))?;
    }
    Ok(mount_overlay(&[PathBuf::from("/")], &upper, &work, &root)?)
}

/// Mounts `/proc` of the caller's PID namespace, nowhere yet.
pub(crate) fn own_proc() -> Result<OwnedFd, RootfsError> {
    Ok(detached_fs("proc", HARMLESS)?)
}

impl Root<'_> {
    /// Enters the node's mount namespace, which gets the node's `/proc`. This process is in the lab's until then.
    pub(crate) fn enter(&self, proc: BorrowedFd<'_>) -> Result<(), RootfsError> {
        // In a user namespace no device can be made, whatever the capabilities; the machine's own are bound instead.
        let make_own_devices = in_first_user_namespace().map_err(file("read", Path::new("/proc/self/uid_map")))?;
        let binds = self.binds(!make_own_devices)?;
        let laid = Laid::take(self.needs)?;
        let tree = self.tree(make_own_devices)?;
        let sys = detached_fs("sysfs", HARMLESS | MountAttrFlags::MOUNT_ATTR_RDONLY)?;
        enter_tree(tree.as_fd(), self.empty)?;
        self.kernel_file_systems(proc, &sys)?;
        link_devices()?;
        if make_own_devices {
            make_devices()?;
        }
        for bind in &binds {
            bind.put()?;
        }
        laid.put()?;
        laid::make_devices(&self.needs.devices)?;
        self.host_name()?;
        hide_and_protect()?;
        if self.node.read_only {
            set_flags(Path::new("/"), MountFlags::RDONLY | MountFlags::NODEV)?;
        }
        Ok(())
    }

    /// The node's root, attached nowhere.
    fn tree(&self, in_first_user_namespace: bool) -> Result<OwnedFd, RootfsError> {
        let (upper, work) = upper(self.dir, &self.node.name);
        for path in [&upper, &work] {
            // Kept from the node's last life when it was stopped and is started again.
            fs::create_dir_all(path).map_err(file("make", path))?;
        }
        let mut lowers = self.image.lowers.clone();
        if lies_on_the_machine(self.image) {
            lowers.pop();
            lowers.push(hidden(self.dir).join("root"));
        }
        let in_pieces = !in_first_user_namespace && lowers == [Path::new("/")];
        let whole = if in_pieces { None } else { detached_overlay(&lowers, &upper, &work)? };
        if let Some(tree) = whole {
            return Ok(tree);
        }
        // Put together at a place, in a namespace where no other node sees it.
        unshare(CloneFlags::CLONE_NEWNS).map_err(|error| file("leave the mounts of", self.dir.path())(error.into()))?;
        let root = self.dir.join("root");
        if in_pieces {
            pieces::mount(&upper, &work, &root)?;
        } else {
            mount_overlay(&lowers, &upper, &work, &root)?;
        }
        Ok(detached(&root, true)?)
    }

    /// Takes every source on the machine, while its path still means the machine's.
    fn binds(&self, devices: bool) -> Result<Vec<Bind>, RootfsError> {
        let read_only = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        let mut binds = Vec::new();
        if devices {
            for &(name, ..) in DEVICES {
                let path = Path::new("/dev").join(name);
                binds.push(Bind::take(&path, &path, MountFlags::empty())?);
            }
        }
        for path in &self.image.extra_binds {
            binds.push(Bind::take(path, path, read_only.difference(MountFlags::NOSUID))?);
        }
        for name in ["hosts", "resolv.conf"] {
            let target = Path::new("/etc").join(name);
            binds.push(Bind::take(&self.dir.join("etc").join(name), &target, read_only)?);
        }
        let shared = self.dir.join("node");
        binds.push(Bind {
            tree: detached(&shared, true)?,
            target: PathBuf::from("/run/slipway"),
            is_dir: true,
            flags: read_only,
        });
        binds.push(Bind::take(self.scratch, Path::new("/scratch"), MountFlags::NOSUID | MountFlags::NODEV)?);
        for mount in self.node.mounts.iter().chain(&self.needs.mounts) {
            let writable = MountFlags::NOSUID | MountFlags::NODEV;
            let flags = if mount.writable { writable } else { read_only };
            binds.push(Bind::take(&mount.source, &mount.target, flags)?);
        }
        Ok(binds)
    }

    fn host_name(&self) -> Result<(), RootfsError> {
        let (path, text) = (Path::new("/etc/hostname"), format!("{}\n", self.node.name));
        match fs::write(path, &text) {
            // In a user namespace the machine's files belong to somebody who does not exist here.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let own = Path::new("/run/hostname");
                fs::write(own, text).map_err(file("write", own))?;
                Ok(attach(detached(own, false)?.as_fd(), path)?)
            }
            written => written.map_err(file("write", path)),
        }
    }

    fn kernel_file_systems(&self, proc: BorrowedFd<'_>, sys: &OwnedFd) -> Result<(), RootfsError> {
        for path in ["/proc", "/sys", "/dev", "/run", "/tmp", "/etc"] {
            ensure_dir(Path::new(path))?;
        }
        attach(proc, Path::new("/proc"))?;
        attach(sys.as_fd(), Path::new("/sys"))?;
        let writable = MountFlags::NOSUID | MountFlags::NODEV;
        // In memory, so within the node's memory limit and no greater than it.
        let size = self.node.limits.memory.map_or_else(|| "size=50%".to_owned(), |limit| format!("size={}", limit.0));
        mount_fs("tmpfs", Path::new("/dev"), MountFlags::NOSUID | MountFlags::NOEXEC, "mode=755,size=64k")?;
        mount_fs("tmpfs", Path::new("/run"), writable, "mode=755")?;
        mount_fs("tmpfs", Path::new("/tmp"), writable, &format!("mode=1777,{size}"))?;
        for folder in ["/dev/pts", "/dev/shm", "/dev/mqueue"] {
            ensure_dir(Path::new(folder))?;
        }
        // `newinstance` is every mount's nature since Linux 4.7.
        let terminals = |options: &str| {
            let options = format!("ptmxmode=0666,mode=620,max={TERMINALS}{options}");
            mount_fs("devpts", Path::new("/dev/pts"), MountFlags::NOSUID | MountFlags::NOEXEC, &options)
        };
        // gid 5 is `tty` wherever there is one. A user namespace that has no gid 5 cannot name it.
        terminals(",gid=5").or_else(|_| terminals(""))?;
        // MPI libraries put their segments here: no smaller than the node's memory.
        mount_fs("tmpfs", Path::new("/dev/shm"), NO_EXEC, &format!("mode=1777,{size}"))?;
        mount_fs("mqueue", Path::new("/dev/mqueue"), NO_EXEC, "")?;
        Ok(())
    }
}

impl Bind {
    fn take(source: &Path, target: &Path, flags: MountFlags) -> Result<Self, RootfsError> {
        let is_dir = fs::metadata(source).map_err(file("look at", source))?.is_dir();
        Ok(Self { tree: detached(source, false)?, target: target.to_owned(), is_dir, flags })
    }

    fn put(&self) -> Result<(), RootfsError> {
        if self.is_dir {
            ensure_dir(&self.target)?;
        } else {
            if let Some(parent) = self.target.parent() {
                ensure_dir(parent)?;
            }
            // A link here (as /etc/resolv.conf often is) would have the mount appear somewhere else.
            match fs::symlink_metadata(&self.target) {
                Ok(found) if found.is_file() => {}
                Ok(_) => {
                    fs::remove_file(&self.target).map_err(file("replace", &self.target))?;
                    fs::write(&self.target, "").map_err(file("make", &self.target))?;
                }
                Err(_) => fs::write(&self.target, "").map_err(file("make", &self.target))?,
            }
        }
        attach(self.tree.as_fd(), &self.target)?;
        if !self.flags.is_empty() {
            set_flags(&self.target, self.flags)?;
        }
        Ok(())
    }
}

fn make_devices() -> Result<(), RootfsError> {
    for &(name, major, minor) in DEVICES {
        let path = Path::new("/dev").join(name);
        let device = rustix::fs::makedev(major, minor);
        // Whatever the umask is: every user's programs write to /dev/null.
        mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), device)
            .and_then(|()| chmod(&path, Mode::from_raw_mode(0o666)))
            .map_err(|error| file("make device", &path)(error.into()))?;
    }
    Ok(())
}

fn link_devices() -> Result<(), RootfsError> {
    for (target, link) in [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
        ("pts/ptmx", "/dev/ptmx"),
    ] {
        symlink(target, link).map_err(file("link", Path::new(link)))?;
    }
    Ok(())
}

fn hide_and_protect() -> Result<(), RootfsError> {
    for path in MASKED.iter().map(Path::new) {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => mount_fs("tmpfs", path, NO_EXEC | MountFlags::RDONLY, "size=0")?,
            Ok(_) => attach(detached(Path::new("/dev/null"), false)?.as_fd(), path)?,
            Err(_) => {}
        }
    }
    for path in READ_ONLY.iter().map(Path::new).filter(|path| path.exists()) {
        attach(detached(path, false)?.as_fd(), path)?;
        set_flags(path, NO_EXEC | MountFlags::RDONLY)?;
    }
    Ok(())
}
