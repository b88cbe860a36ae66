//! The wire's process: what it becomes, and what it gives up, before it handles a frame.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::thread::CapabilitySet;
use slipway_sys::caps;
use slipway_sys::clone::close_all_but;
use slipway_sys::process::end_with;
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

/// The life of the wire. Never returns.
pub(crate) fn live(maker: &OwnedFd, control: &OwnedFd, lock: Option<BorrowedFd<'_>>) -> ! {
    let outcome = prepare(maker, control, lock).and_then(|(mut shuttle, scheduling)| {
        say(control, &Answer::Started(scheduling), None)?;
        shuttle.run()
    });
    if let Err(error) = outcome {
        // Nobody there to hear it means that the anchor is gone, and so are we.
        let _ = say(control, &Answer::Failed(error.to_string()), None);
        std::process::exit(1);
    }
    std::process::exit(0)
}

fn prepare<'a>(
    maker: &OwnedFd,
    control: &'a OwnedFd,
    lock: Option<BorrowedFd<'_>>,
) -> io::Result<(Shuttle<'a>, Scheduling)> {
    // With the anchor goes the wire.
    end_with(maker)?;
    rustix::thread::set_name(c"slipway-wire")?;
    // What the anchor has on its standard streams stays: a descriptor that took such a number would get what they get.
    let kept: Vec<RawFd> = lock.iter().map(BorrowedFd::as_raw_fd).chain([0, 1, 2, control.as_raw_fd()]).collect();
    close_all_but(&kept)?;
    rustix::process::setsid()?;
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
