//! A listener's requests (`include/uapi/linux/seccomp.h`): the one place where addresses are handed to the kernel. Each
//! request's number carries the size of its structure, so a kernel whose structures had grown would refuse it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{seccomp_data, seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp};

use super::Call;

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`.
pub(super) const SYNC_WAKE_UP: u64 = 1;
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
pub(super) const CONTINUE: u32 = 1;
/// `SECCOMP_ADDFD_FLAG_SETFD`.
pub(super) const SETFD: u32 = 1;

/// Waits for a call.
pub(super) fn receive(listener: BorrowedFd<'_>) -> io::Result<Call> {
    // The kernel refuses one that is not all zero.
    let data = seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] };
    let mut call = seccomp_notif { id: 0, pid: 0, flags: 0, data };
    // SAFETY: the kernel reads and writes one `seccomp_notif`, which outlives the call and is borrowed by nobody else.
    answer(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) })?;
    Ok(Call { id: call.id, tid: call.pid.cast_signed(), number: call.data.nr.into(), args: call.data.args })
}

/// Sends an answer; `error` is a negative error number, or zero.
pub(super) fn send(listener: BorrowedFd<'_>, id: u64, val: i64, error: i32, flags: u32) -> io::Result<()> {
    let mut response = seccomp_notif_resp { id, val, error, flags };
    // SAFETY: the kernel reads one `seccomp_notif_resp`, which outlives the call.
    answer(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response) }).map(drop)
}

/// True if the call waits.
pub(super) fn is_valid(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one `u64`, which outlives the call.
    answer(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) }).is_ok()
}

/// Puts a copy of `file` into the caller's table.
pub(super) fn add_descriptor(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    at: u32,
    flags: u32,
    close_on_exec: bool,
) -> io::Result<i32> {
    let srcfd = file.as_raw_fd().cast_unsigned();
    let newfd_flags = if close_on_exec { libc::O_CLOEXEC.cast_unsigned() } else { 0 };
    let request = seccomp_notif_addfd { id, flags, srcfd, newfd: at, newfd_flags };
    // SAFETY: the kernel reads one `seccomp_notif_addfd`, which outlives the call.
    answer(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const request) }).map_err(
        // A caller that leaves while the kernel waits for it to take the file; ENOENT is one that had left before.
        |error| match error.raw_os_error() {
            Some(libc::ESRCH) => io::Error::from_raw_os_error(libc::ENOENT),
            _ => error,
        },
    )
}

/// Sets the listener's flags.
pub(super) fn set_flags(listener: BorrowedFd<'_>, flags: u64) -> io::Result<()> {
    // SAFETY: this request takes its argument by value and touches no memory of ours.
    answer(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags) }).map(drop)
}

fn answer(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
