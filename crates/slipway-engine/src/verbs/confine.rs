//! The system calls that a confined broker may make. A program that makes a broker run its own code gets no further.

use std::io;
use std::process;

use libc::c_long;
use slipway_sys::seccomp::{Filter, Permit};

/// Calls with any arguments.
#[rustfmt::skip]
const CALLS: &[c_long] = &[
    // Memory, threads, signals, the end.
    libc::SYS_brk, libc::SYS_mremap, libc::SYS_munmap, libc::SYS_madvise, libc::SYS_futex, libc::SYS_set_robust_list,
    libc::SYS_rseq, libc::SYS_gettid, libc::SYS_getpid, libc::SYS_sched_getaffinity, libc::SYS_sched_yield,
    libc::SYS_sigaltstack, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall, libc::SYS_exit, libc::SYS_exit_group,
    // Time and chance.
    libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_getrandom,
    // Open descriptors: the broker opens no file.
    libc::SYS_read, libc::SYS_write, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_close,
    libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
    // Memory of connections.
    libc::SYS_memfd_create, libc::SYS_ftruncate,
    // Waiting.
    libc::SYS_ppoll, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    // Sockets of programs and of the anchor: it makes none but pairs.
    libc::SYS_accept4, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_shutdown,
];

/// Calls of a broker that talks to brokers of other hosts: sockets of the hosts' network.
const BETWEEN: &[c_long] = &[
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_pipe2,
    libc::SYS_lseek,
];

/// Calls that only x86 has names for.
#[cfg(target_arch = "x86_64")]
const OWN: &[c_long] = &[libc::SYS_poll, libc::SYS_epoll_wait];
#[cfg(target_arch = "aarch64")]
const OWN: &[c_long] = &[];

/// `FIONBIO`, `FIOCLEX` (`include/uapi/asm-generic/ioctls.h`).
const OF_FILES: &[u32] = &[0x5421, 0x5451];

/// Confines the calling thread and its later threads, for good, to a broker's calls: more of them where the lab has other
/// brokers. Call it before there are other threads. Another call ends it, and its log names the call.
///
/// # Errors
/// As `seccomp(2)` and `sigaction(2)`.
pub(super) fn confine(has_others: bool) -> io::Result<()> {
    let between = if has_others { BETWEEN } else { &[] };
    let every = [CALLS, OWN, between].concat().into_iter().map(Permit::every);
    let mut permits: Vec<Permit> = every.chain(restricted(process::id())).collect();
    if has_others {
        let domains = [libc::AF_INET, libc::AF_INET6].map(i32::cast_unsigned);
        permits.push(Permit::only(libc::SYS_socket, 0, u32::MAX, &domains));
    }
    // Refused because its flags lie behind a pointer, which a filter cannot read; the C library falls back to clone.
    Filter::permitting(&permits, &[libc::SYS_clone3]).attach_and_tell()
}

/// Calls with certain arguments, for the process of this number.
fn restricted(own: u32) -> Vec<Permit> {
    let whole = u32::MAX;
    let int = i32::cast_unsigned;
    let ints = |values: &[i32]| values.iter().copied().map(int).collect::<Vec<_>>();
    let thread = int(libc::CLONE_THREAD | libc::CLONE_VM);
    let flags = ints(&[
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
        libc::F_ADD_SEALS,
        libc::F_GET_SEALS,
    ]);
    vec![
        // No memory becomes code.
        Permit::only(libc::SYS_mmap, 2, int(libc::PROT_EXEC), &[0]),
        Permit::only(libc::SYS_mprotect, 2, int(libc::PROT_EXEC), &[0]),
        // The thread of the relay, and no processes.
        Permit::only(libc::SYS_clone, 0, thread, &[thread]),
        Permit::only(libc::SYS_tgkill, 0, whole, &[own]),
        Permit::only(libc::SYS_prctl, 0, whole, &ints(&[libc::PR_SET_NAME, libc::PR_SET_TIMERSLACK])),
        Permit::only(libc::SYS_fcntl, 1, whole, &flags),
        Permit::only(libc::SYS_ioctl, 1, whole, OF_FILES),
        Permit::only(libc::SYS_socketpair, 0, whole, &[int(libc::AF_UNIX)]),
    ]
}

#[cfg(test)]
mod tests {
    use slipway_sys::seccomp::Permit;

    use super::*;

    #[test]
    fn no_call_opens_a_file_or_makes_a_process() {
        for call in [libc::SYS_openat, libc::SYS_execve, libc::SYS_connect, libc::SYS_socket, libc::SYS_ptrace] {
            assert!(!CALLS.contains(&call) && !OWN.contains(&call));
        }
        let _: Vec<Permit> = restricted(1);
    }
}
