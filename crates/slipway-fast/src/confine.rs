//! The system calls that a confined router may make. A program that makes the router run its own code gets no further.

use std::io;
use std::process;

use libc::c_long;
use slipway_sys::seccomp::{Filter, Permit};

/// Calls with any arguments, besides those of a helper with threads.
#[rustfmt::skip]
const CALLS: &[c_long] = &[
    libc::SYS_uname,
    // Files of /proc, and what is open.
    libc::SYS_lseek, libc::SYS_close_range, libc::SYS_fstatfs, libc::SYS_getdents64, libc::SYS_readlinkat,
    libc::SYS_getcwd, libc::SYS_pipe2, libc::SYS_inotify_init1, libc::SYS_inotify_add_watch,
    // Sockets.
    libc::SYS_bind, libc::SYS_listen, libc::SYS_connect, libc::SYS_getsockname, libc::SYS_getpeername,
    libc::SYS_getsockopt, libc::SYS_setsockopt,
    // Other processes: their descriptors and memory.
    libc::SYS_pidfd_open, libc::SYS_pidfd_getfd, libc::SYS_process_vm_readv,
];

/// Calls that only x86 has names for.
#[cfg(target_arch = "x86_64")]
const OWN: &[c_long] = &[libc::SYS_readlink];
#[cfg(target_arch = "aarch64")]
const OWN: &[c_long] = &[];

/// Commands of `bpf(2)` that read and write a map, and say what one is (`include/uapi/linux/bpf.h`).
const NOTES: &[u32] = &[1, 2, 3, 15];

/// `KCMP_FILES`, `KCMP_EPOLL_TFD` (`include/uapi/linux/kcmp.h`).
const COMPARED: &[u32] = &[2, 7];

/// Flags of `open(2)` that make or empty a file.
const CHANGING: i32 = libc::O_CREAT | libc::O_TRUNC;

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
    let permits: Vec<Permit> = Permit::threaded(process::id()).into_iter().chain(every).chain(restricted()).collect();
    // Refused because its flags lie behind a pointer, which a filter cannot read; the C library falls back to clone.
    Filter::permitting(&permits, &[libc::SYS_clone3]).attach_and_tell()
}

/// Calls with certain arguments.
fn restricted() -> [Permit; 7] {
    let whole = u32::MAX;
    let int = i32::cast_unsigned;
    let domains = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(int);
    [
        // Its own limits only.
        Permit::only(libc::SYS_prlimit64, 0, whole, &[0]),
        Permit::only(libc::SYS_openat, 2, int(CHANGING), &[0]),
        Permit::only(libc::SYS_ioctl, 1, OF_LISTENERS.0, &[OF_LISTENERS.1]),
        Permit::only(libc::SYS_ioctl, 1, OF_SOCKETS.0, &[OF_SOCKETS.1]),
        Permit::only(libc::SYS_socket, 0, whole, &domains),
        Permit::only(libc::SYS_bpf, 0, whole, NOTES),
        Permit::only(libc::SYS_kcmp, 2, whole, COMPARED),
    ]
}
