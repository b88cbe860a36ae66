//! Making processes with `clone3(2)`, for a caller that is single-threaded.
//!
//! A clone goes on in the same program, without an exec. That is sound only while one thread exists: after a clone in a threaded
//! process the child may hold locks (malloc's, for one) whose owners are gone. [`SingleThread`] is the proof that this was checked.

mod borrowing;

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::sched::CloneFlags;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::process::Pid;

pub use borrowing::{Stack, clone_borrowing};

/// How long a thread that was joined may still be listed: `exit(2)` wakes its joiner before the kernel forgets the thread,
/// and nothing tells when it does.
const PARTING: Duration = Duration::from_millis(200);

/// Proof that the process had one thread when it was made. Not `Send`: it stays with that thread.
#[derive(Debug, Clone, Copy)]
pub struct SingleThread(std::marker::PhantomData<*const ()>);

impl SingleThread {
    /// Counts the process's threads in `/proc/self/task`.
    ///
    /// # Errors
    /// When there is more than one thread, or `/proc` is not mounted.
    pub fn check() -> io::Result<Self> {
        let begun = Instant::now();
        loop {
            let threads = fs::read_dir("/proc/self/task")?.count();
            if threads == 1 {
                return Ok(Self(std::marker::PhantomData));
            }
            if begun.elapsed() > PARTING {
                return Err(io::Error::other(format!(
                    "this process has {threads} threads where cloning needs exactly one"
                )));
            }
            std::thread::yield_now();
        }
    }
}

/// The caller's side of a clone.
#[derive(Debug)]
pub enum Cloned {
    /// The new process. Must end by `exit` or exec, never return into the caller's stack of duties.
    Child,
    /// The caller; the child by number and by descriptor (`pidfd_open(2)`), which no recycled pid can fool.
    Parent {
        /// As seen in the caller's PID namespace.
        pid: Pid,
        /// Readable when the child has ended; closed on exec.
        pidfd: OwnedFd,
    },
}

/// `struct clone_args` (`linux/sched.h`), as of Linux 5.7.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// `CLONE_INTO_CGROUP` (`linux/sched.h`); beyond the 32 bits of `clone(2)`'s flags.
const INTO_CGROUP: u64 = 1 << 33;

/// Clones this process as `fork(2)` does, with new namespaces for the child as `flags` say (`CLONE_NEW*` only).
///
/// # Errors
/// As `clone3(2)`; `EINVAL` for any flag that is not a namespace's.
pub fn clone(proof: SingleThread, flags: CloneFlags) -> io::Result<Cloned> {
    clone_into(proof, flags, None)
}

/// As [`clone`], with the child born in the version 2 control group whose folder is `group`. That takes microseconds
/// where moving it there afterwards takes milliseconds.
///
/// # Errors
/// As [`clone`]; `EACCES` where the caller may not move processes into the group.
pub fn clone_into(proof: SingleThread, flags: CloneFlags, group: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    clone_with(proof, flags, 0, group)
}

/// The caller's side of [`clone_bare`].
#[derive(Debug)]
pub enum Bare {
    /// The new process. It owns the descriptors that it was to keep, and must not drop what owns another.
    Child,
    /// The caller; the child as seen in the caller's PID namespace.
    Parent(Pid, Parting),
}

/// A child that may share its maker's table of descriptors still.
#[derive(Debug)]
pub struct Parting {
    parted: OwnedFd,
    pidfd: OwnedFd,
}

impl Parting {
    /// Waits until the child has a table of its own, or has ended. Until then, its maker closes nothing that the child is to keep.
    ///
    /// # Errors
    /// As `poll(2)`.
    pub fn wait(&self) -> io::Result<()> {
        let mut either = [PollFd::new(&self.parted, PollFlags::IN), PollFd::new(&self.pidfd, PollFlags::IN)];
        loop {
            match poll(&mut either, None) {
                Err(Errno::INTR) => {}
                other => return Ok(other.map(drop)?),
            }
        }
    }
}

/// As [`clone_into`], with a child that has these descriptors of the caller and no others. The kernel copies only those up to the
/// highest of them. So a caller with thousands above them clones as fast as one without.
///
/// # Errors
/// As [`clone_into`]; also as `eventfd(2)`.
#[allow(unsafe_code)]
pub fn clone_bare(
    proof: SingleThread,
    flags: CloneFlags,
    group: Option<BorrowedFd<'_>>,
    keep: &[RawFd],
) -> io::Result<Bare> {
    let parted = eventfd(0, EventfdFlags::CLOEXEC)?;
    let mut kept = keep.to_vec();
    kept.push(parted.as_raw_fd());
    let highest = kept.iter().copied().max().unwrap_or(0).unsigned_abs();
    // The two share the table for now (`CLONE_FILES`).
    match clone_with(proof, flags, libc::CLONE_FILES, group)? {
        Cloned::Parent { pid, pidfd } => Ok(Bare::Parent(pid, Parting { parted, pidfd })),
        Cloned::Child => {
            // SAFETY: the call makes the table this process's own before it closes anything in it.
            let apart = unsafe { libc::syscall(libc::SYS_close_range, highest + 1, u32::MAX, CLOSE_RANGE_UNSHARE) };
            let bare = apart != -1 && close_all_but(&kept).is_ok();
            if bare && rustix::io::write(&parted, &1u64.to_ne_bytes()).is_ok() {
                return Ok(Bare::Child);
            }
            // SAFETY: nothing of the caller's is to run here, least of all what would close descriptors that the two share.
            unsafe { libc::_exit(1) }
        }
    }
}

/// `linux/close_range.h`.
const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;

#[allow(unsafe_code)]
fn clone_with(proof: SingleThread, flags: CloneFlags, more: i32, group: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    let namespaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWCGROUP;
    if !namespaces.contains(flags) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (into, cgroup) = match group {
        Some(group) => (INTO_CGROUP, u64::from(group.as_raw_fd().unsigned_abs())),
        None => (0, 0),
    };
    let mut pidfd: i32 = -1;
    let args = CloneArgs {
        flags: into | u64::from((flags.bits() | more | libc::CLONE_PIDFD).cast_unsigned()),
        pidfd: (&raw mut pidfd).addr() as u64,
        exit_signal: libc::SIGCHLD as u64,
        cgroup,
        ..CloneArgs::default()
    };
    match clone3(proof, &args)? {
        None => Ok(Cloned::Child),
        Some(pid) => {
            // SAFETY: on success the kernel stored a new descriptor that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Cloned::Parent { pid, pidfd })
        }
    }
}

/// Clones this process as a sibling (`CLONE_PARENT`). The two share the table of descriptors (`CLONE_FILES`) and
/// nothing else: open files stay open until both have ended. Gives the sibling's number, and `None` to the sibling,
/// which must open and close nothing: it would open or close it for both.
///
/// # Errors
/// As `clone3(2)`; `EINVAL` in the first process of a PID namespace.
pub fn clone_beside(proof: SingleThread) -> io::Result<Option<Pid>> {
    let flags = CloneFlags::CLONE_PARENT | CloneFlags::CLONE_FILES;
    // Its parent is sent the signal that this process's is.
    clone3(proof, &CloneArgs { flags: u64::from(flags.bits().cast_unsigned()), ..CloneArgs::default() })
}

/// `None` in the child.
#[allow(unsafe_code)]
fn clone3(_proof: SingleThread, args: &CloneArgs) -> io::Result<Option<Pid>> {
    // SAFETY: `args` is a valid clone_args of the size given and outlives the call; without CLONE_VM the child has its
    // own copy of the address space, so no memory is shared with the parent; one thread exists (`_proof`), so no lock is
    // left held by a thread that the child lacks.
    match unsafe { libc::syscall(libc::SYS_clone3, &raw const *args, size_of::<CloneArgs>()) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            pid.map(Some).ok_or_else(|| io::Error::other("clone3 gave an impossible pid"))
        }
    }
}

/// Closes every descriptor except those in `keep`, which a fresh child must not carry further.
///
/// # Errors
/// As `close_range(2)`.
#[allow(unsafe_code)]
pub fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().filter_map(|&fd| u32::try_from(fd).ok()).collect();
    keep.sort_unstable();
    keep.dedup();
    let mut from = 0u32;
    for fd in keep.into_iter().chain([u32::MAX]) {
        if from < fd {
            let to = if fd == u32::MAX { fd } else { fd - 1 };
            // SAFETY: the caller is a fresh child that has given up every descriptor but those it keeps; owners of the
            // closed ones live in the parent's copy of memory and never run here.
            if unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) } == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        from = fd.saturating_add(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threaded_process_is_refused() {
        // The test harness itself runs threads.
        let held = std::sync::Arc::new(std::sync::Barrier::new(2));
        let other = std::thread::spawn({
            let held = held.clone();
            move || held.wait()
        });
        assert!(SingleThread::check().is_err());
        held.wait();
        other.join().expect("the other thread ends");
    }
}
