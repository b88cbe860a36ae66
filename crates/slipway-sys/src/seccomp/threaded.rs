//! The calls that every confined helper with threads makes: those of its language's runtime, and of waiting.

use std::ffi::c_long;

use super::Permit;

/// Calls with any arguments. None opens a file, makes a socket or a process, or reaches another process.
#[rustfmt::skip]
const CALLS: &[c_long] = &[
    // Memory, threads, signals, the end.
    libc::SYS_brk, libc::SYS_mremap, libc::SYS_munmap, libc::SYS_madvise, libc::SYS_futex, libc::SYS_set_robust_list,
    libc::SYS_rseq, libc::SYS_gettid, libc::SYS_getpid, libc::SYS_sched_getaffinity, libc::SYS_sched_yield,
    libc::SYS_sigaltstack, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall, libc::SYS_exit, libc::SYS_exit_group,
    // Time and chance.
    libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_getrandom,
    // Open descriptors.
    libc::SYS_read, libc::SYS_write, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_close,
    libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
    // Waiting.
    libc::SYS_ppoll, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    // Open sockets, and pairs of them.
    libc::SYS_accept4, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_shutdown,
];

/// Calls that only x86 has names for.
#[cfg(target_arch = "x86_64")]
const OWN: &[c_long] = &[libc::SYS_poll, libc::SYS_epoll_wait];
#[cfg(target_arch = "aarch64")]
const OWN: &[c_long] = &[];

/// `FIONBIO`, `FIOCLEX` (`include/uapi/asm-generic/ioctls.h`).
const OF_FILES: &[u32] = &[0x5421, 0x5451];

impl Permit {
    /// The calls of a helper with threads, for the process of this number: no new code, process, file or kind of socket.
    #[must_use]
    pub fn threaded(own: u32) -> Vec<Self> {
        let int = i32::cast_unsigned;
        let thread = int(libc::CLONE_THREAD | libc::CLONE_VM);
        let flags =
            [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL, libc::F_GET_SEALS];
        let restricted = [
            // No memory becomes code.
            Self::only(libc::SYS_mmap, 2, int(libc::PROT_EXEC), &[0]),
            Self::only(libc::SYS_mprotect, 2, int(libc::PROT_EXEC), &[0]),
            // Threads, and no processes.
            Self::only(libc::SYS_clone, 0, thread, &[thread]),
            // A thread with descriptors of its own.
            Self::only(libc::SYS_unshare, 0, u32::MAX, &[int(libc::CLONE_FILES)]),
            // Signals to its own threads: `abort(3)`.
            Self::only(libc::SYS_tgkill, 0, u32::MAX, &[own]),
            // The names of its threads.
            Self::only(libc::SYS_prctl, 0, u32::MAX, &[int(libc::PR_SET_NAME)]),
            Self::only(libc::SYS_fcntl, 1, u32::MAX, &flags.map(int)),
            Self::only(libc::SYS_ioctl, 1, u32::MAX, OF_FILES),
            Self::only(libc::SYS_socketpair, 0, u32::MAX, &[int(libc::AF_UNIX)]),
        ];
        CALLS.iter().chain(OWN).copied().map(Self::every).chain(restricted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_opens_a_file_or_makes_a_process() {
        let permits = Permit::threaded(1);
        for call in [libc::SYS_openat, libc::SYS_execve, libc::SYS_connect, libc::SYS_socket, libc::SYS_ptrace] {
            assert!(permits.iter().all(|permit| permit.call != call), "{call}");
        }
        for call in [libc::SYS_mmap, libc::SYS_clone, libc::SYS_tgkill, libc::SYS_ioctl] {
            assert!(permits.iter().all(|permit| *permit != Permit::every(call)), "{call}");
        }
    }
}
