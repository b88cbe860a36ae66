//! The wire's process: what it becomes, and what it gives up, before it handles a frame.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::thread::CapabilitySet;
use slipway_sys::caps;
use slipway_sys::helper::Newborn;
use slipway_sys::sched::set_fifo;
use slipway_sys::seccomp::Filter;

use crate::Scheduling;
use crate::protocol::{Answer, say};
use crate::shuttle::Shuttle;

/// The lowest real-time priority: before every ordinary process, behind every other real-time one.
const PRIORITY: i32 = 1;

/// System calls of the loop: frames, readiness, time, messages, memory, the end. `ioctl` switches a device's offloads.
const CALLS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_timerfd_settime,
    libc::SYS_clock_gettime,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_close,
    libc::SYS_getrandom,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The life of the wire.
pub(crate) fn live(newborn: &mut Newborn, control: &OwnedFd, lock: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let (mut shuttle, scheduling) = prepare(newborn, control, lock)?;
    newborn.ready(&serde_json::to_string(&scheduling)?)?;
    shuttle.run().inspect_err(|error| {
        // Nobody there to hear it means that the anchor is gone, and so are we.
        let _ = say(control, &Answer::Failed(error.to_string()), None);
    })
}

fn prepare<'a>(
    newborn: &Newborn,
    control: &'a OwnedFd,
    lock: Option<BorrowedFd<'_>>,
) -> io::Result<(Shuttle<'a>, Scheduling)> {
    let kept: Vec<BorrowedFd<'_>> = lock.into_iter().chain([control.as_fd()]).collect();
    newborn.keep_only(&kept)?;
    let scheduling = prefer();
    // The default lets a timer go off 50 µs late, to save a wake-up.
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    let shuttle = Shuttle::new(control.as_fd())?;
    caps::bound(CapabilitySet::empty())?;
    caps::limit(CapabilitySet::empty())?;
    rustix::thread::set_no_new_privs(true)?;
    Filter::only(CALLS).attach()?;
    Ok((shuttle, scheduling))
}

/// Before other processes as far as may be: a frame that is due must not wait for one's time slice.
fn prefer() -> Scheduling {
    if set_fifo(PRIORITY).is_ok() {
        Scheduling::Fifo
    } else if rustix::process::setpriority_process(None, -20).is_ok() {
        Scheduling::Nice
    } else {
        Scheduling::Plain
    }
}
