//! This program's own file, out of reach of the programs that it confines.
//!
//! A process in a node can open the file of any process there through `/proc/PID/exe`, by the mount that the file was
//! executed from. So can a script that names `/proc/self/exe` as its interpreter, during its execution (CVE-2019-5736).
//! From an ordinary mount, root in a node could then change the mode of this machine's slipway, or overwrite it once
//! nothing executes it. So slipway executes itself from a read-only mount that nobody else has.

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use nix::fcntl::AtFlags;
use rustix::fs::{CWD, StatVfsMountFlags, statvfs};
use rustix::mount::{OpenTreeFlags, open_tree};

const LINK: &str = "/proc/self/exe";

/// Executes this program again, once, from a read-only mount of its own file, with the same arguments; `argv[0]`
/// becomes the file's path. Returns at once where it is done already, and where it cannot be done. Without the
/// privilege to mount there is no lab to protect the file from. In a user namespace, the file belongs to a root that no
/// process in it is.
///
/// To be called first thing in `main`.
///
/// # Errors
/// As `open_tree(2)`, `mount_setattr(2)` and `execveat(2)`, but for a missing privilege.
pub fn shield() -> io::Result<()> {
    if statvfs(LINK)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        // execveat(2) named this process after a descriptor's number.
        return Ok(rustix::thread::set_name(c"slipway")?);
    }
    let file = std::env::current_exe()?;
    let tree = match open_tree(CWD, LINK, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC) {
        Ok(tree) => tree,
        Err(rustix::io::Errno::PERM) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    make_read_only(&tree)?;
    let c = |bytes: Vec<u8>| CString::new(bytes).map_err(io::Error::other);
    let rest = std::env::args_os().skip(1);
    let argv = std::iter::once(file.into_os_string()).chain(rest).map(|word| c(word.into_vec()));
    let argv = argv.collect::<io::Result<Vec<_>>>()?;
    let pair = |(mut key, value): (std::ffi::OsString, std::ffi::OsString)| {
        key.push("=");
        key.push(value);
        c(key.into_vec())
    };
    let env = std::env::vars_os().map(pair).collect::<io::Result<Vec<_>>>()?;
    let Err(error) = nix::unistd::execveat(&tree, c"", &argv, &env, AtFlags::AT_EMPTY_PATH);
    Err(error.into())
}

/// The path of this program's file, shielded or not.
///
/// # Errors
/// When the file has been replaced or removed since.
pub fn path() -> io::Result<PathBuf> {
    let executed = std::fs::metadata(LINK)?;
    let is_it = |path: &PathBuf| {
        path.is_absolute()
            && path.metadata().is_ok_and(|file| (file.dev(), file.ino()) == (executed.dev(), executed.ino()))
    };
    let named = std::env::args_os().next().map(PathBuf::from);
    let candidates = named.into_iter().chain(std::env::current_exe());
    candidates
        .into_iter()
        .find(is_it)
        .ok_or_else(|| io::Error::other("its file was replaced or removed since it started"))
}

#[allow(unsafe_code)]
fn make_read_only(tree: &std::os::fd::OwnedFd) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let (at, size) = (libc::AT_EMPTY_PATH, size_of::<libc::mount_attr>());
    // SAFETY: the path is an empty C string and `attributes` is of the size given; both outlive the call.
    let result = unsafe {
        libc::syscall(libc::SYS_mount_setattr, tree.as_raw_fd(), c"".as_ptr(), at, &raw const attributes, size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
