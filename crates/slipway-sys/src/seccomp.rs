//! The system-call filter that every program in a node runs under (`seccomp(2)`): the default profile of Docker and
//! containerd with the default capabilities, no wider.
//!
//! The filter is a binary search over runs of call numbers rather than the usual chain of comparisons. The kernel walks
//! it once for every call number when it is attached (`seccomp_cache_prepare_bitmap`, `kernel/seccomp.c`). Some hundred
//! instructions instead of two thousand make attaching cheap, and every program that enters a node attaches once.

mod bpf;
mod permit;
mod profile;
mod threaded;
mod trap;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use libc::sock_filter;

use crate::notify::Listener;

pub use permit::Permit;
pub use trap::{Trap, Verdict, When};

/// A compiled filter.
#[derive(Debug, Clone)]
pub struct Filter(Vec<sock_filter>);

impl Filter {
    /// The default profile, for this processor.
    #[must_use]
    pub fn container_default() -> Self {
        Self::allowing(&profile::calls())
    }

    /// The default profile, and these calls too.
    #[must_use]
    pub fn container_with(calls: &[libc::c_long]) -> Self {
        let numbers = calls.iter().filter_map(|&call| u32::try_from(call).ok());
        let more = numbers.map(|number| (number, bpf::Verdict::Allow));
        Self::allowing(&profile::calls().into_iter().chain(more).collect::<Vec<_>>())
    }

    /// Allows these calls and no other, for this processor.
    #[must_use]
    pub fn only(calls: &[libc::c_long]) -> Self {
        // Every call's number is positive and small.
        let numbers = calls.iter().filter_map(|&call| u32::try_from(call).ok());
        let calls: Vec<_> = numbers.map(|number| (number, bpf::Verdict::Allow)).collect();
        Self::allowing(&calls)
    }

    /// Allows these calls and no other, and has a process that makes another end: by `SIGSYS`, or as [`Self::attach_and_tell`] says.
    /// Calls that are `missing` fail with `ENOSYS`, as in a kernel that is too old for them.
    #[must_use]
    pub fn permitting(permits: &[Permit], missing: &[libc::c_long]) -> Self {
        let other = bpf::Verdict::Signal;
        Self(bpf::compile(bpf::AUDIT_ARCH, &permit::calls(permits, missing), &other, &other))
    }

    /// Calls that are not named fail with `EPERM`, those newer than all of them with `ENOSYS`: a program that tries one then
    /// falls back to an older call.
    fn allowing(calls: &[(u32, bpf::Verdict)]) -> Self {
        let (between, above) = (bpf::Verdict::Errno(libc::EPERM), bpf::Verdict::Errno(libc::ENOSYS));
        Self(bpf::compile(bpf::AUDIT_ARCH, calls, &between, &above))
    }

    /// Catches these calls and allows every other. Where several traps name one call, the first that fits catches it. Calls
    /// through another ABI of the processor (32-bit, x32) fail with `ENOSYS`, lest they slip through.
    ///
    /// For use beside another filter: of several the strictest verdict counts, and an error is stricter than a wait.
    #[must_use]
    pub fn trap(traps: &[Trap]) -> Self {
        let (between, above) = (bpf::Verdict::Allow, bpf::Verdict::Errno(libc::ENOSYS));
        Self(bpf::compile(bpf::AUDIT_ARCH, &trap::calls(traps), &between, &above))
    }

    /// As [`Self::attach`], for a filter of [`Self::permitting`]: calls that it does not permit are named first.
    ///
    /// # Errors
    /// As [`Self::attach`], and `sigaction(2)`.
    pub fn attach_and_tell(&self) -> io::Result<()> {
        permit::tell()?;
        self.attach()
    }

    /// Attaches the filter to this thread, for good: it passes to every child and through every exec.
    ///
    /// `no_new_privs` stays as it is, so that set-user-ID programs work in a node as they do in a container. The caller
    /// therefore needs `CAP_SYS_ADMIN` in its user namespace, or must set `no_new_privs` itself.
    ///
    /// # Errors
    /// As `seccomp(2)`: `EACCES` without that privilege, `EINVAL` where the kernel has no filters.
    pub fn attach(&self) -> io::Result<()> {
        self.set(0).map(drop)
    }

    /// As [`Self::attach`], and gives what hears of the trapped calls.
    ///
    /// # Errors
    /// As [`Self::attach`]; `EBUSY` where the thread is under a filter that has a listener already.
    #[allow(unsafe_code)]
    pub fn attach_and_listen(&self) -> io::Result<Listener> {
        let listener = self.set(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
        // SAFETY: with this flag the kernel gives a new descriptor, which nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(listener) }.into())
    }

    #[allow(unsafe_code)]
    fn set(&self, flags: libc::c_ulong) -> io::Result<RawFd> {
        let len = u16::try_from(self.0.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = libc::sock_fprog { len, filter: self.0.as_ptr().cast_mut() };
        // Without SPEC_ALLOW, kernels before 5.16 slow the program down by turning speculation off; runc sets it too.
        let flags = flags | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        // SAFETY: `program` points at `len` instructions that outlive the call; the kernel copies and checks them, and
        // never writes to them (`struct sock_fprog` lacks const only by age).
        let result =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
        if result < 0 { Err(io::Error::last_os_error()) } else { RawFd::try_from(result).map_err(io::Error::other) }
    }
}
