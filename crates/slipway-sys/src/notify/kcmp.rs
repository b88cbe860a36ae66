//! `kcmp(2)`: whether two descriptors are of one file.

use std::io;

/// `KCMP_EPOLL_TFD` (`include/uapi/linux/kcmp.h`).
const EPOLL_TFD: libc::c_int = 7;

/// `struct kcmp_epoll_slot`.
#[repr(C)]
struct EpollSlot {
    epoll: u32,
    number: u32,
    /// Which of several files that were added under one number.
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
