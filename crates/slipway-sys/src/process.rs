//! A process that is named so that a recycled pid can never be taken for it.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, set_parent_process_death_signal,
    setsid, waitid,
};
use serde::{Deserialize, Serialize};

use crate::clone::close_all_but;

/// Gives this thread an empty table of descriptors of its own (`unshare(2)` with `CLONE_FILES`, `close_range(2)`): numbers here
/// mean nothing to the process's other threads, and theirs nothing here. Nothing that was opened before may be used by the
/// thread from then on.
///
/// # Errors
/// `EMFILE` or `ENOMEM` where the kernel cannot copy the table; then nothing changed.
pub fn descriptors_of_its_own() -> io::Result<()> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES)?;
    close_all_but(&[])
}

static INHERITED: OnceLock<Vec<RawFd>> = OnceLock::new();

/// Remembers the descriptors above standard error that this process was started with. To be called before it opens any.
///
/// # Errors
/// `/proc` is not mounted.
pub fn remember_inherited() -> io::Result<()> {
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let mut open: Vec<RawFd> = fs::read_dir("/proc/self/fd")?.filter_map(number).collect();
    // Without that of the folder itself, which is closed by now.
    open.retain(|&fd| fd > 2 && Path::new("/proc/self/fd").join(fd.to_string()).exists());
    INHERITED.get_or_init(|| open);
    Ok(())
}

/// Closes the descriptors that [`remember_inherited`] found, in a process that outlives its caller: whoever waits for the end
/// of a caller's pipe, or for its lock, must not wait for this process.
pub fn close_inherited() {
    for &fd in INHERITED.get().into_iter().flatten() {
        // Closed already is as good.
        let _ = nix::unistd::close(fd);
    }
}

/// A field of `/proc/PID/status` by its name, such as `VmRSS` (`proc_pid_status(5)`).
///
/// # Errors
/// `NotFound` or `ESRCH` where there is none, or nothing of this name is said.
pub fn status(tid: i32, name: &str) -> io::Result<String> {
    let status = fs::read_to_string(format!("/proc/{tid}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.ok_or(io::ErrorKind::NotFound)?.trim().to_owned())
}

/// A process by pid and by start time (clock ticks since boot; `proc_pid_stat(5)`, field 22).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// In the reader's PID namespace.
    pub pid: i32,
    /// The start time, which tells two processes with one PID apart.
    pub start: u64,
}

impl ProcessId {
    /// Names the process that has this pid now.
    ///
    /// # Errors
    /// When there is none, or `/proc` is not mounted.
    pub fn of(pid: Pid) -> io::Result<Self> {
        Self::look(pid.as_raw_nonzero().get()).map(|(id, _)| id)
    }

    /// And whether it is a zombie.
    fn look(pid: i32) -> io::Result<(Self, bool)> {
        let mut line = [0; LONGEST_STAT];
        let length = File::open(format!("/proc/{pid}/stat"))?.read(&mut line)?;
        let line = String::from_utf8_lossy(line.get(..length).unwrap_or_default());
        let start = start_time(&line).ok_or_else(|| io::Error::other("unreadable /proc stat line"))?;
        Ok((Self { pid, start }, is_zombie(&line)))
    }

    /// Opens the process, or says `None` where it has ended. The descriptor then stays true whatever happens to the pid.
    ///
    /// # Errors
    /// Other than that the process is gone: as `pidfd_open(2)`.
    pub fn open(self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(None);
        };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Looked at after the open: had the pid been recycled before it, the start time differs.
        match Self::look(self.pid) {
            Ok((now, false)) if now == self => Ok(Some(pidfd)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True while the process runs (a zombie does not).
    #[must_use]
    pub fn is_alive(self) -> bool {
        matches!(self.open(), Ok(Some(_)))
    }

    /// Sends `signal`; a process that is gone is fine. True where it was there.
    ///
    /// # Errors
    /// As `pidfd_send_signal(2)`.
    pub fn signal(self, signal: Signal) -> io::Result<bool> {
        let Some(pidfd) = self.open()? else {
            return Ok(false);
        };
        match pidfd_send_signal(pidfd, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Leaves the caller's session, terminal, working directory and standard input and output behind, as a process does that
/// is to outlive its caller.
///
/// # Errors
/// As `setsid(2)`, which refuses the leader of a process group, `chdir(2)` and `open(2)`.
pub fn detach() -> io::Result<()> {
    setsid()?;
    std::env::set_current_dir("/")?;
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Has the kernel end this process when its parent does (`PR_SET_PDEATHSIG`), and makes sure that it has not ended already.
/// `parent` is the parent's own descriptor (`pidfd_open(2)`), opened before it made this process.
///
/// # Errors
/// `BrokenPipe` where the parent has ended: nobody will end this process but itself.
pub fn end_with(parent: impl AsFd) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that ends looks at its children's wishes, and is ended to others, in one stretch in which it holds the lock of
    // the list of processes (`exit_notify`, kernel/exit.c). This waits for that lock (`__do_wait`), so that a parent which
    // looked before the wish was there is seen to have ended below.
    let _ = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT);
    if wait_for_end(parent, Duration::ZERO)? {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the process that made this one has ended"));
    }
    Ok(())
}

/// Waits until the process behind `pidfd` has ended, at most `patience`. True where it has.
///
/// # Errors
/// As `poll(2)`.
pub fn wait_for_end(pidfd: impl AsFd, patience: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for a child to end and collects it, so that it is no zombie.
///
/// # Errors
/// As `waitid(2)`; `ECHILD` where it is not this process's child.
pub fn reap(pidfd: &OwnedFd) -> io::Result<()> {
    loop {
        match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Bytes that a stat line has at most: 52 numbers, of at most 20 digits. One read gives it whole.
const LONGEST_STAT: usize = 2048;

/// Field 3 of a stat line.
fn is_zombie(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

/// Field 22 of a stat line. The command name (field 2) may hold anything, so fields are counted after its last `)`.
fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_parentheses_is_read_past() {
        let stat = "12 (a ) b) (c) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(start_time(stat), Some(4242));
    }

    #[test]
    fn a_status_has_many_fields() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        assert_eq!(status(own, "Tgid").expect("it is there"), own.to_string());
        assert!(status(own, "VmRSS").expect("it is there").ends_with(" kB"));
        for (tid, name) in [(own, "Tg"), (own, "tgid"), (0, "Tgid")] {
            assert_eq!(status(tid, name).expect_err("there is none").kind(), io::ErrorKind::NotFound, "{tid} {name}");
        }
    }

    #[test]
    fn another_start_time_is_another_process() {
        let me = ProcessId::of(rustix::process::getpid()).expect("we exist");
        assert!(me.is_alive());
        assert!(!ProcessId { start: me.start + 1, ..me }.is_alive());
    }
}
