//! The system calls that a confined broker may make. A program that makes a broker run its own code gets no further.

use std::io;
use std::process;

use libc::c_long;
use slipway_sys::seccomp::{Filter, Permit};
use slipway_verbs::untrusted::SO_PASSRIGHTS;

/// Memory of connections.
const CALLS: &[c_long] = &[libc::SYS_memfd_create, libc::SYS_ftruncate];

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

/// Confines the calling thread and its later threads, for good, to a broker's calls: more of them where the lab has other
/// brokers. Call it before there are other threads. Another call ends it, and its log names the call.
///
/// # Errors
/// As `seccomp(2)` and `sigaction(2)`.
pub(super) fn confine(has_others: bool) -> io::Result<()> {
    let int = i32::cast_unsigned;
    let mut permits = Permit::threaded(process::id());
    permits.extend(CALLS.iter().copied().map(Permit::every));
    permits.push(Permit::only(libc::SYS_prctl, 0, u32::MAX, &[int(libc::PR_SET_TIMERSLACK)]));
    permits.push(Permit::only(libc::SYS_fcntl, 1, u32::MAX, &[int(libc::F_ADD_SEALS)]));
    if has_others {
        permits.extend(BETWEEN.iter().copied().map(Permit::every));
        permits.push(Permit::only(libc::SYS_socket, 0, u32::MAX, &[libc::AF_INET, libc::AF_INET6].map(int)));
    } else {
        permits.push(Permit::only(libc::SYS_setsockopt, 2, u32::MAX, &[int(SO_PASSRIGHTS)]));
    }
    // Refused because its flags lie behind a pointer, which a filter cannot read; the C library falls back to clone.
    Filter::permitting(&permits, &[libc::SYS_clone3]).attach_and_tell()
}
