//! Scheduling policies (`sched(7)`).

use std::io;

/// Makes this thread a real-time one, first in first out, at `priority` (1 to 99). Its children begin as ordinary ones.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`, or where the control group has no real-time bandwidth.
#[allow(unsafe_code)]
pub fn set_fifo(priority: i32) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads one `sched_param`, which outlives the call.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
