//! `kcmp(2)`: whether two descriptors are of one file, or two threads have one table of descriptors.

use std::io;

// `include/uapi/linux/kcmp.h`.
const FILES: libc::c_int = 2;
const EPOLL_TFD: libc::c_int = 7;

/// `struct kcmp_epoll_slot`.
#[repr(C)]
struct EpollSlot {
    epoll: u32,
    number: u32,
    /// The index among several files that were added under one number.
    index: u32,
}

/// Whether the epoll instance `epoll` of thread `tid` holds, under its number, the file that descriptor `number` is of.
pub(super) fn polls(tid: i32, epoll: i32, number: i32) -> io::Result<bool> {
    // A file stays in an epoll instance while any copy of its descriptor is open, so that a number that was closed and given
    // out again may be there more than once.
    for index in 0.. {
        let slot = EpollSlot { epoll: epoll.cast_unsigned(), number: number.cast_unsigned(), index };
        // SAFETY: the kernel reads one `kcmp_epoll_slot`, which outlives the call.
        let result = unsafe { libc::syscall(libc::SYS_kcmp, tid, tid, EPOLL_TFD, number, &raw const slot) };
        match result {
            0 => return Ok(true),
            1.. => {}
            _ => {
                let error = io::Error::last_os_error();
                return if error.raw_os_error() == Some(libc::ENOENT) { Ok(false) } else { Err(error) };
            }
        }
    }
    Ok(false)
}

/// Whether two threads have one table of descriptors (`CLONE_FILES`, `clone(2)`), rather than a copy each.
///
/// # Errors
/// `ESRCH` where one is gone, `EPERM` where one may not be traced; `ENOSYS` where the kernel was built without `CONFIG_KCMP`.
pub fn shares_descriptors(one: i32, other: i32) -> io::Result<bool> {
    // SAFETY: the kernel compares by number alone; no memory is read or written.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, one, other, FILES, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result == 0) }
}
