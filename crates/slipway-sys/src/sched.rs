//! Scheduling policies (`sched(7)`).

use std::io;

use rustix::process::Pid;

/// Makes this thread a real-time one, first in first out, at `priority` (1 to 99). Its children begin as ordinary ones.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`, or where the control group has no real-time bandwidth.
pub fn set_fifo(priority: i32) -> io::Result<()> {
    set(0, libc::SCHED_FIFO, priority)
}

/// The same for the first thread of another process.
///
/// # Errors
/// As [`set_fifo`]; `ESRCH` where there is no such process.
pub fn set_fifo_of(process: Pid, priority: i32) -> io::Result<()> {
    set(process.as_raw_nonzero().get(), libc::SCHED_FIFO, priority)
}

/// Makes this thread an ordinary one again.
///
/// # Errors
/// As `sched_setscheduler(2)`.
pub fn set_usual() -> io::Result<()> {
    set(0, libc::SCHED_OTHER, 0)
}

/// Makes the first thread of another process an ordinary one again.
///
/// # Errors
/// As [`set_fifo_of`].
pub fn set_usual_of(process: Pid) -> io::Result<()> {
    set(process.as_raw_nonzero().get(), libc::SCHED_OTHER, 0)
}

#[allow(unsafe_code)]
fn set(pid: libc::pid_t, policy: libc::c_int, priority: i32) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads one `sched_param`, which outlives the call.
    if unsafe { libc::sched_setscheduler(pid, policy, &raw const parameter) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
