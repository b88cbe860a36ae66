//! A guard: the process that clears up behind a command that was killed.
//!
//! A job has one. The kernel ends a program together with the process that started it (`PR_SET_PDEATHSIG`), but not the
//! processes that this program has started in turn. The init of its node inherits them, and they would stay for as long
//! as the node. A lab that a command brings up for itself has one too: nobody else would take it down.
//!
//! A guard waits for the end of its command. A command that ends as it should dismisses it.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use nix::sched::{CloneFlags, setns};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use slipway_sys::clone::{Cloned, SingleThread, clone, close_all_but};
use slipway_sys::process::{detach, reap};
use slipway_sys::signals::{ENDING, ignore};

/// The guard of this process. Dropped, it is dismissed.
#[derive(Debug)]
pub(crate) struct Guard(OwnedFd);

impl Guard {
    /// Forks a guard that calls `end` once this process has ended. It keeps the descriptors that this process has now.
    pub(crate) fn post(end: impl FnOnce()) -> io::Result<Self> {
        Self::post_with(|_| Ok(()), end)
    }

    /// The same, keeping none: a lock or a pipe that this process holds is free when this process ends.
    pub(crate) fn post_bare(end: impl FnOnce()) -> io::Result<Self> {
        Self::post_with(|watched| close_all_but(&[0, 1, 2, watched]), end)
    }

    /// The same, keeping these descriptors alone. `end` is called in the mount namespace `home`.
    pub(crate) fn post_in(home: BorrowedFd<'_>, kept: BorrowedFd<'_>, end: impl FnOnce()) -> io::Result<Self> {
        let begin = |watched| {
            setns(home, CloneFlags::CLONE_NEWNS)?;
            close_all_but(&[0, 1, 2, watched, kept.as_raw_fd()])
        };
        Self::post_with(begin, end)
    }

    /// Leaves it to itself: it acts once this process has ended.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }

    fn post_with(begin: impl FnOnce(RawFd) -> io::Result<()>, end: impl FnOnce()) -> io::Result<Self> {
        let alone = SingleThread::check()?;
        let watched = pidfd_open(getpid(), PidfdFlags::empty())?;
        match clone(alone, CloneFlags::empty())? {
            Cloned::Parent { pidfd, .. } => Ok(Self(pidfd)),
            Cloned::Child => {
                // A signal to the command's whole process group, or to its whole job, must not end its guard.
                let ready = detach().and_then(|()| ignore(&ENDING));
                let ready = ready.and_then(|()| Ok(rustix::thread::set_name(c"slipway-guard")?));
                let _ = ready.and_then(|()| begin(watched.as_raw_fd()));
                while let Err(Errno::INTR) = poll(&mut [PollFd::new(&watched, PollFlags::IN)], None) {}
                end();
                std::process::exit(0)
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // That it has ended already is as good.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
        let _ = reap(&self.0);
    }
}
