//! A job's guard: the process that ends a job whose own process was killed.
//!
//! The kernel ends a program together with the process that started it (`PR_SET_PDEATHSIG`), but not what that program has
//! started in turn: that is the init's of its node by then, and would stay for as long as the node. So a job has a
//! guard from before its first program until after its last. It waits for the end of the job's process, and then ends all
//! that is in the job's control groups. A job that ends as it should dismisses it.

use std::io;
use std::os::fd::OwnedFd;

use nix::sched::CloneFlags;
use nix::sys::prctl;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use slipway_sys::clone::{Cloned, SingleThread, clone};
use slipway_sys::process::{detach, reap};

/// The guard of this process's job. Dropped, it is dismissed.
#[derive(Debug)]
pub(super) struct Guard(OwnedFd);

impl Guard {
    /// Forks a guard that calls `end` once this process has ended. By then the job's own programs are dying, and what they
    /// still start is born into the job's groups.
    pub(super) fn post(end: impl FnOnce()) -> io::Result<Self> {
        let alone = SingleThread::check()?;
        let job = pidfd_open(getpid(), PidfdFlags::empty())?;
        match clone(alone, CloneFlags::empty())? {
            Cloned::Parent { pidfd, .. } => Ok(Self(pidfd)),
            Cloned::Child => {
                // Or it would be killed along with the job, by whoever signals a whole process group.
                let _ = detach().and_then(|()| Ok(prctl::set_name(c"slipway-guard")?));
                while let Err(Errno::INTR) = poll(&mut [PollFd::new(&job, PollFlags::IN)], None) {}
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
