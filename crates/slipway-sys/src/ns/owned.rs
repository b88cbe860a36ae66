//! The process that makes a user namespace. It borrows its maker's memory and descriptors (`vfork(2)`), so that it costs the same
//! whatever its maker has of both.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sched::CloneFlags;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// Keep the effective capabilities when the user changes (`linux/securebits.h`).
const NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;
/// `_IO(NSIO, 0x1)` (`linux/nsfs.h`).
const NS_GET_USERNS: libc::Ioctl = 0xb701;

/// A process that made a user namespace and a network namespace, and ended. It is in the first still, so that a map can be
/// written.
#[derive(Debug)]
pub(super) struct Maker {
    pid: Pid,
    /// Its folder in `/proc`.
    pub(super) folder: OwnedFd,
    user: OwnedFd,
    net: OwnedFd,
}

impl Maker {
    /// Collects it, and gives its namespaces.
    pub(super) fn collect(self) -> (OwnedFd, OwnedFd) {
        collect(self.pid);
        (self.user, self.net)
    }
}

fn collect(pid: Pid) {
    // It has ended: nothing to wait for, and nothing to learn.
    while waitpid(pid, Some(WaitPidFlag::__WALL)) == Err(Errno::EINTR) {}
}

/// Makes the namespaces; the user namespace belongs to `owner`, or to the caller.
pub(super) fn make(owner: Option<u32>) -> io::Result<Maker> {
    let mut stack = vec![0; 32 << 10];
    let mut opened = [-1; 3];
    let child = || {
        let done = namespaces(owner).and_then(|()| {
            for (path, file) in [c"/proc/self", c"/proc/self/ns/user", c"/proc/self/ns/net"].iter().zip(&mut opened) {
                *file = open(path)?;
            }
            Ok(())
        });
        done.err().map_or(0, |error| error as isize)
    };
    let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK | CloneFlags::CLONE_FILES;
    // SAFETY: this thread waits until the child has ended, and the child makes system calls alone, on a stack of its own that is
    // much larger than it needs. It takes no lock and allocates nothing. No signal handler of this program changes memory that
    // the two would disagree about.
    let pid = unsafe { nix::sched::clone(Box::new(child), &mut stack, flags, None) }?;
    // SAFETY: the child opened these in the table of descriptors that it shared, and nobody else knows of them.
    let [folder, user, net] = opened.map(|file| (file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) }));
    if let (Some(folder), Some(user), Some(net)) = (folder, user, net) {
        return Ok(Maker { pid, folder, user, net });
    }
    match waitpid(pid, Some(WaitPidFlag::__WALL))? {
        nix::sys::wait::WaitStatus::Exited(_, code) if code != 0 => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::other("the process that makes the namespaces ended early")),
    }
}

fn namespaces(owner: Option<u32>) -> Result<(), Errno> {
    if let Some(owner) = owner {
        // By itself the kernel would take the effective capabilities, and some kernels want them for what follows.
        // SAFETY: neither call has to do with memory. The C library's own `setresuid` would change all threads of the caller.
        Errno::result(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0) })?;
        Errno::result(unsafe { libc::syscall(libc::SYS_setresuid, -1, owner, -1) })?;
    }
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
}

fn open(path: &CStr) -> Result<i32, Errno> {
    // SAFETY: `path` ends with a zero byte.
    Errno::result(unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) })
}

/// The user namespace that owns a network namespace. `EPERM` where it is no descendant of the caller's, nor that itself.
pub(super) fn owner_of(net: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no argument, and gives a new descriptor that nobody else owns.
    let fd = Errno::result(unsafe { libc::ioctl(net.as_raw_fd(), NS_GET_USERNS) })?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
