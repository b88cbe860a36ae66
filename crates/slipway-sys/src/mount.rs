//! Mounts, with errors that name what was mounted where (`mount(2)`, `open_tree(2)`, `move_mount(2)`).

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, mount_change,
    mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::{WaitOptions, pivot_root, waitpid};

use crate::clone::{Cloned, SingleThread, clone};
use crate::ns::in_first_user_namespace;

/// A mount that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("mount {what} on {}: {source}", target.display())]
pub struct MountError {
    /// The file system or the bound path.
    pub what: String,
    /// The target of the mount.
    pub target: PathBuf,
    /// The kernel's answer.
    pub source: io::Error,
}

fn failed(what: impl Into<String>, target: &Path) -> impl FnOnce(rustix::io::Errno) -> MountError {
    let what = what.into();
    move |errno| MountError { what, target: target.to_owned(), source: errno.into() }
}

/// Mounts a new instance of a file system.
pub fn mount_fs(fs: &str, target: &Path, flags: MountFlags, data: &str) -> Result<(), MountError> {
    let data = CString::new(data).map_err(|_| failed(fs, target)(rustix::io::Errno::INVAL))?;
    mount(fs, target, fs, flags, Some(data.as_c_str())).map_err(failed(fs, target))
}

/// Mounts the file system on a block device.
pub fn mount_device(device: &Path, fs: &str, target: &Path, flags: MountFlags, data: &str) -> Result<(), MountError> {
    let what = || format!("{} ({fs})", device.display());
    let data = CString::new(data).map_err(|_| failed(what(), target)(rustix::io::Errno::INVAL))?;
    mount(device, target, fs, flags, Some(data.as_c_str())).map_err(failed(what(), target))
}

/// Longest options of `mount(2)`: a page, ended by a zero byte.
const LONGEST_OPTIONS: usize = 4095;

/// Mounts an overlay of `lowers` (topmost first), written to `upper` (`Documentation/filesystems/overlayfs.rst`).
/// Device nodes in any layer are inert. Some forty layers are more than `mount(2)` takes; from then on each is given by
/// itself, which takes Linux 6.5.
pub fn mount_overlay(lowers: &[PathBuf], upper: &Path, work: &Path, target: &Path) -> Result<(), MountError> {
    let refused = |source| MountError { what: "overlay".to_owned(), target: target.to_owned(), source };
    let mut options = format!("upperdir={},workdir={}", escape(upper), escape(work));
    // Renamed folders and changed modes are copied whole: an upper must mean the same below another image. In a user
    // namespace, where overlayfs may not keep its notes in `trusted.*` attributes, there is no other way (and it may not
    // be asked for): notes are `user.overlay.*` attributes then.
    let first_namespace = in_first_user_namespace().map_err(refused)?;
    options.push_str(if first_namespace { ",redirect_dir=off,metacopy=off" } else { ",userxattr" });
    let joined: Vec<String> = lowers.iter().map(|lower| escape(lower)).collect();
    let _ = write!(options, ",lowerdir={}", joined.join(":"));
    if options.len() <= LONGEST_OPTIONS {
        return mount_fs("overlay", target, MountFlags::NODEV, &options);
    }
    let mount = || {
        let tree = make_overlay(lowers, upper, work, first_namespace)?;
        move_mount(tree.as_fd(), "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
    };
    mount().map_err(failed(format!("an overlay of {} layers (that many take Linux 6.5)", lowers.len()), target))
}

/// As [`mount_overlay`], attached nowhere yet. `None` where the kernel makes none so: before Linux 6.5, or for paths of more than 255
/// bytes.
pub fn detached_overlay(lowers: &[PathBuf], upper: &Path, work: &Path) -> Result<Option<OwnedFd>, MountError> {
    let nowhere = Path::new("nowhere yet");
    let refused = |source| MountError { what: "overlay".to_owned(), target: nowhere.to_owned(), source };
    match make_overlay(lowers, upper, work, in_first_user_namespace().map_err(refused)?) {
        Err(rustix::io::Errno::INVAL) => Ok(None),
        made => made.map(Some).map_err(failed("overlay", nowhere)),
    }
}

fn make_overlay(lowers: &[PathBuf], upper: &Path, work: &Path, first_namespace: bool) -> rustix::io::Result<OwnedFd> {
    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for lower in lowers {
        fsconfig_set_string(overlay.as_fd(), "lowerdir+", lower)?;
    }
    fsconfig_set_string(overlay.as_fd(), "upperdir", upper)?;
    fsconfig_set_string(overlay.as_fd(), "workdir", work)?;
    if first_namespace {
        fsconfig_set_string(overlay.as_fd(), "redirect_dir", "off")?;
        fsconfig_set_string(overlay.as_fd(), "metacopy", "off")?;
    } else {
        fsconfig_set_flag(overlay.as_fd(), "userxattr")?;
    }
    fsconfig_create(overlay.as_fd())?;
    fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NODEV)
}

/// Overlay options are split at commas and colons; a backslash keeps one in a path.
fn escape(path: &Path) -> String {
    let mut escaped = String::new();
    for c in path.to_string_lossy().chars() {
        if matches!(c, '\\' | ':' | ',') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Takes a copy of the mount at `path`, attached nowhere yet; [`attach`] puts it in place, even after the path itself is
/// out of reach. `recursive` takes the mounts below it too.
pub fn detached(path: &Path, recursive: bool) -> Result<OwnedFd, MountError> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags).map_err(failed(path.display().to_string(), path))
}

/// Makes a new instance of a file system, attached nowhere yet; [`attach`] puts it in place. In a user namespace `proc` and
/// `sysfs` are to be had only where the machine's own are in sight (`mount_namespaces(7)`), so before a change of root.
pub fn detached_fs(fs: &str, flags: MountAttrFlags) -> Result<OwnedFd, MountError> {
    let make = || {
        let context = fsopen(fs, FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(context.as_fd())?;
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
    };
    make().map_err(failed(fs, Path::new("nowhere yet")))
}

/// Writes a kernel setting, by its path below `/proc/sys`, through `proc`, a mount of `/proc` that may be attached nowhere. Settings of
/// a network are those of the caller's.
///
/// # Errors
/// As `open(2)` and `write(2)`.
pub fn set_sysctl(proc: BorrowedFd<'_>, name: &str, value: &str) -> io::Result<()> {
    let file = openat(proc, format!("sys/{name}"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(file).write_all(value.as_bytes())
}

/// Attaches what [`detached`] took or [`detached_fs`] made. The target is resolved now, in the root that the caller has now.
pub fn attach(tree: BorrowedFd<'_>, target: &Path) -> Result<(), MountError> {
    move_mount(tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(failed("a bind mount", target))
}

/// Changes the flags of the mount at `target` alone (not of its file system).
pub fn set_flags(target: &Path, flags: MountFlags) -> Result<(), MountError> {
    mount_remount(target, MountFlags::BIND | flags, "").map_err(failed("new flags", target))
}

/// Keeps what is mounted in this namespace from ever appearing in another.
pub fn make_private() -> Result<(), MountError> {
    let root = Path::new("/");
    mount_change(root, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).map_err(failed("private", root))
}

/// Makes a mount namespace with one mount in it: an empty folder that nobody can write to. `place` is any folder; nothing appears there.
///
/// # Errors
/// When the kernel refuses a step, or the process that makes the namespace ends early.
pub fn empty_namespace(alone: SingleThread, place: &Path) -> io::Result<OwnedFd> {
    let (reader, writer) = io::pipe()?;
    let (ended, end) = io::pipe()?;
    match clone(alone, CloneFlags::CLONE_NEWNS)? {
        Cloned::Child => {
            drop(end);
            let said = match have_nothing(place) {
                Ok(()) => Vec::new(),
                Err(error) => error.to_string().into_bytes(),
            };
            let _ = (&writer).write_all(&said);
            drop(writer);
            // The other side has opened the namespace then.
            let _ = (&ended).read(&mut [0]);
            std::process::exit(0)
        }
        Cloned::Parent { pid, .. } => {
            drop((writer, ended));
            let mut said = String::new();
            let made = (&reader)
                .read_to_string(&mut said)
                .and_then(|_| if said.is_empty() { Ok(()) } else { Err(io::Error::other(said)) })
                .and_then(|()| File::open(format!("/proc/{}/ns/mnt", pid.as_raw_nonzero())));
            drop(end);
            waitpid(Some(pid), WaitOptions::empty())?;
            Ok(made?.into())
        }
    }
}

/// In a mount namespace of the caller's own: leaves nothing of it but an empty folder (`pivot_root(2)`, NOTES).
fn have_nothing(place: &Path) -> Result<(), MountError> {
    make_private()?;
    let harmless = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount_fs("tmpfs", place, harmless, "mode=555,size=4k,nr_inodes=2")?;
    let run = || {
        rustix::process::chdir(place)?;
        pivot_root(".", ".")?;
        unmount(".", UnmountFlags::DETACH)
    };
    run().map_err(failed("an empty root", place))
}

/// Enters a mount namespace of this process's own, with a detached tree as its root. The namespace begins as a copy of `empty`
/// ([`empty_namespace`]), and the tree lies on top of that one's root, as any machine's root lies on top of its initial one. Nothing beneath
/// can be reached: `..` ends at the tree's root, and so does `setns(2)`.
///
/// `pivot_root(2)` would go through all processes of the machine, to move those that are at the old root.
pub fn enter_tree(tree: BorrowedFd<'_>, empty: BorrowedFd<'_>) -> Result<(), MountError> {
    let root = Path::new("/");
    let run = || -> Result<(), rustix::io::Errno> {
        let errno = |error: nix::errno::Errno| rustix::io::Errno::from_raw_os_error(error as i32);
        setns(empty, CloneFlags::CLONE_NEWNS).map_err(errno)?;
        unshare(CloneFlags::CLONE_NEWNS).map_err(errno)?;
        rustix::process::fchdir(tree)?;
        move_mount(tree, "", CWD, root, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        rustix::process::chroot(".")
    };
    run().map_err(failed("the new root", root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_layers_are_not_too_many() {
        let work = || -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)?;
            make_private()?;
            let base = Path::new("/tmp");
            mount_fs("tmpfs", base, MountFlags::NODEV, "")?;
            let folder = |name: String| -> io::Result<PathBuf> {
                let path = base.join(name);
                std::fs::create_dir(&path)?;
                Ok(path)
            };
            let lowers = (0..100).map(|i| folder(format!("{i:050}"))).collect::<io::Result<Vec<_>>>()?;
            std::fs::write(lowers[0].join("file"), "top")?;
            std::fs::write(lowers[99].join("file"), "bottom")?;
            let root = folder("root".into())?;
            mount_overlay(&lowers, &folder("upper".into())?, &folder("work".into())?, &root)?;
            Ok(std::fs::read_to_string(root.join("file"))?)
        };
        // In a thread, whose mount namespace goes with it.
        let read = std::thread::spawn(work).join().expect("the thread ends").expect("root may mount (Linux 6.5)");
        assert_eq!(read, "top");
    }

    #[test]
    fn separators_in_paths_are_kept() {
        assert_eq!(escape(Path::new("/a:b,c\\d")), "/a\\:b\\,c\\\\d");
    }
}
