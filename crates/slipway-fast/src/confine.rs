//! The system calls that a confined router may make. A program that makes the router run its own code gets no further.

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
    libc::SYS_restart_syscall, libc::SYS_uname, libc::SYS_exit, libc::SYS_exit_group,
    // Time and chance.
    libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_getrandom,
    // Files of /proc, and what is open.
    libc::SYS_read, libc::SYS_write, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_writev, libc::SYS_lseek,
    libc::SYS_close, libc::SYS_close_range, libc::SYS_statx, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_fstatfs,
    libc::SYS_getdents64, libc::SYS_readlinkat, libc::SYS_getcwd,
    // Waiting.
    libc::SYS_ppoll, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2, libc::SYS_pipe2, libc::SYS_inotify_init1, libc::SYS_inotify_add_watch,
    // Sockets.
    libc::SYS_bind, libc::SYS_listen, libc::SYS_accept4, libc::SYS_connect, libc::SYS_shutdown, libc::SYS_getsockname,
    libc::SYS_getpeername, libc::SYS_getsockopt, libc::SYS_setsockopt, libc::SYS_sendto, libc::SYS_recvfrom,
    libc::SYS_sendmsg, libc::SYS_recvmsg,
    // Other processes: their descriptors and memory.
    libc::SYS_pidfd_open, libc::SYS_pidfd_getfd, libc::SYS_process_vm_readv,
];

/// Calls that only x86 has names for.
#[cfg(target_arch = "x86_64")]
const OWN: &[c_long] = &[libc::SYS_poll, libc::SYS_epoll_wait, libc::SYS_readlink];
#[cfg(target_arch = "aarch64")]
const OWN: &[c_long] = &[];

/// Commands of `bpf(2)` that read and write a map, and say what one is (`include/uapi/linux/bpf.h`).
const NOTES: &[u32] = &[1, 2, 3, 15];

/// `KCMP_FILES`, `KCMP_EPOLL_TFD` (`include/uapi/linux/kcmp.h`).
const COMPARED: &[u32] = &[2, 7];

/// Flags of `open(2)` that make or empty a file.
const CHANGING: i32 = libc::O_CREAT | libc::O_TRUNC;

/// `FIONBIO`, `FIOCLEX` (`include/uapi/asm-generic/ioctls.h`).
const OF_FILES: &[u32] = &[0x5421, 0x5451];
/// All of `include/uapi/linux/seccomp.h`: their kind is `!`.
const OF_LISTENERS: (u32, u32) = (0xff00, 0x2100);
/// All about interfaces (`include/uapi/linux/sockios.h`).
const OF_SOCKETS: (u32, u32) = (0xff00, 0x8900);

/// Confines the calling thread and its later threads, for good, to a router's calls. Another call ends the process, which
/// names the call on standard error. Call it before there are other threads, with `no_new_privs` set.
///
/// # Errors
/// As `seccomp(2)` and `sigaction(2)`.
pub fn confine() -> io::Result<()> {
    let every = [CALLS, OWN].concat().into_iter().map(Permit::every);
    let permits: Vec<Permit> = every.chain(restricted(process::id())).collect();
    // Refused because its flags lie behind a pointer, which a filter cannot read; the C library falls back to clone.
    Filter::permitting(&permits, &[libc::SYS_clone3]).attach_and_tell()
}

/// Calls with certain arguments, for the process of this number.
fn restricted(own: u32) -> Vec<Permit> {
    let whole = u32::MAX;
    let int = i32::cast_unsigned;
    let ints = |values: &[i32]| values.iter().copied().map(int).collect::<Vec<_>>();
    let thread = int(libc::CLONE_THREAD | libc::CLONE_VM);
    let domains = ints(&[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    let flags =
        ints(&[libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL, libc::F_GET_SEALS]);
    vec![
        // No memory becomes code.
        Permit::only(libc::SYS_mmap, 2, int(libc::PROT_EXEC), &[0]),
        Permit::only(libc::SYS_mprotect, 2, int(libc::PROT_EXEC), &[0]),
        // Threads, and no processes.
        Permit::only(libc::SYS_clone, 0, thread, &[thread]),
        // Its own limits only.
        Permit::only(libc::SYS_prlimit64, 0, whole, &[0]),
        // Signals to its own threads: `abort(3)`.
        Permit::only(libc::SYS_tgkill, 0, whole, &[own]),
        // The names of its threads.
        Permit::only(libc::SYS_prctl, 0, whole, &[int(libc::PR_SET_NAME)]),
        // A thread with descriptors of its own.
        Permit::only(libc::SYS_unshare, 0, whole, &[int(libc::CLONE_FILES)]),
        Permit::only(libc::SYS_openat, 2, int(CHANGING), &[0]),
        Permit::only(libc::SYS_fcntl, 1, whole, &flags),
        Permit::only(libc::SYS_ioctl, 1, whole, OF_FILES),
        Permit::only(libc::SYS_ioctl, 1, OF_LISTENERS.0, &[OF_LISTENERS.1]),
        Permit::only(libc::SYS_ioctl, 1, OF_SOCKETS.0, &[OF_SOCKETS.1]),
        Permit::only(libc::SYS_socket, 0, whole, &domains),
        Permit::only(libc::SYS_socketpair, 0, whole, &[int(libc::AF_UNIX)]),
        Permit::only(libc::SYS_bpf, 0, whole, NOTES),
        Permit::only(libc::SYS_kcmp, 2, whole, COMPARED),
    ]
}
