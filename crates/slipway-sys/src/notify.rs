//! System calls that another process carries out (`seccomp_unotify(2)`): the supervisor's side.
//!
//! A filter made by [`crate::seccomp::Filter::trap`] lets chosen calls wait until whoever holds the filter's
//! [`Listener`] has answered. The supervisor copies the call's arguments, acts, and answers with a number, an error or
//! a new descriptor. The caller cannot change the copy, so the supervisor acts on exactly the values that it checked.
//!
//! A caller may be killed or interrupted by a signal at any time. Its call is then void: [`Listener::is_waiting`] says
//! false and everything that would answer it fails with `ENOENT`. By then, another process or thread may have the
//! number. So the order is: read, or open the caller's files and memory ([`Caller`], [`Memory`]); ask
//! [`Listener::is_waiting`]; only then believe or change anything.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::system::uname;

pub use caller::{Caller, Descriptor, Memory};
pub use kcmp::shares_descriptors;

mod caller;
#[allow(unsafe_code)]
mod ioctl;
#[allow(unsafe_code)]
mod kcmp;

/// Where the waiting calls of one filter are heard and answered.
///
/// Readable while a call waits. Any number of threads may use one, and copies of the descriptor in other processes.
/// Calls wait as long as one exists; when the last is closed they fail with `ENOSYS`.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// A call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The number to answer to; one filter never uses it twice.
    pub id: u64,
    /// The thread that makes the call, as numbered in the supervisor's PID namespace; 0 where it has no number there.
    pub tid: i32,
    /// The number of the system call, e.g. `SYS_connect`.
    pub number: i64,
    /// Its arguments, as they stood in the registers. The kernel takes only the low half of those that are C `int`s.
    pub args: [u64; 6],
}

impl Listener {
    /// Lets the supervisor's thread run on the caller's processor when a call comes, and the caller on the supervisor's
    /// when it has its answer. Nothing else would run there meanwhile. Holds for all copies of the descriptor.
    ///
    /// # Errors
    /// `Unsupported` before Linux 6.6.
    pub fn wake_on_the_callers_core(&self) -> io::Result<()> {
        ioctl::set_flags(self.as_fd(), ioctl::SYNC_WAKE_UP).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => io::ErrorKind::Unsupported.into(),
            _ => error,
        })
    }

    /// Waits for a call and takes it: no other thread is given it. `None` once no task is left under the filter. Takes no memory.
    ///
    /// # Errors
    /// `Interrupted` where a signal's handler ran.
    pub fn receive(&self) -> io::Result<Option<Call>> {
        loop {
            if !a_wait_hears_the_end() && self.is_abandoned(None)? {
                return Ok(None);
            }
            match ioctl::receive(self.as_fd()) {
                Ok(call) => return Ok(Some(call)),
                // Either the caller was gone before its call was taken, or no task is left.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    if self.is_abandoned(Some(&Timespec::default()))? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes a call that waits, where one does and its caller is not gone before. Nobody else is to receive meanwhile.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    pub fn try_receive(&self) -> io::Result<Option<Call>> {
        if !self.is_called() {
            return Ok(None);
        }
        match ioctl::receive(self.as_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            received => received.map(Some),
        }
    }

    /// Whether a call waits to be received.
    #[must_use]
    pub fn is_called(&self) -> bool {
        let mut listener = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut listener, Some(&Timespec::default())).is_ok() && listener[0].revents().contains(PollFlags::IN)
    }

    /// Waits so long (`None`: for ever) for a call or for the end of the last task. True where there is nothing but the latter.
    fn is_abandoned(&self, patience: Option<&Timespec>) -> io::Result<bool> {
        let mut listener = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut listener, patience)?;
        Ok(listener[0].revents() == PollFlags::HUP)
    }

    /// True while the call that was received waits for its answer.
    #[must_use]
    pub fn is_waiting(&self, id: u64) -> bool {
        ioctl::is_valid(self.as_fd(), id)
    }

    /// Ends the call with this result.
    ///
    /// # Errors
    /// `ENOENT` where the caller is gone, `EINPROGRESS` where the call was answered already.
    pub fn answer(&self, id: u64, result: Result<i64, Errno>) -> io::Result<()> {
        let (value, error) = match result {
            Ok(value) => (value, 0),
            Err(errno) => (0, -errno.raw_os_error()),
        };
        ioctl::send(self.as_fd(), id, value, error, 0)
    }

    /// Lets the kernel carry the call out as if there were no filter. Only for calls without pointers: the caller's other threads
    /// can change memory between any check and the kernel's own reading.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn go_on(&self, id: u64) -> io::Result<()> {
        ioctl::send(self.as_fd(), id, 0, 0, ioctl::CONTINUE)
    }

    /// Gives the caller a copy of `file`: at descriptor number `at`, in place of whatever is there, or at the lowest free one. The
    /// call waits on. The number is given back. A caller that is interrupted before it is answered has the descriptor, and does not
    /// know of it. (The kernel could give and answer in one step, `SECCOMP_ADDFD_FLAG_SEND`. It then counts the call as answered,
    /// with 0, before the caller has taken the descriptor, and a supervisor that is killed meanwhile leaves it at that.)
    ///
    /// # Errors
    /// `ENOENT` where the caller is gone, `EMFILE` where it has no descriptor left, `EBADF` for a number beyond its limit.
    pub fn install(&self, id: u64, file: BorrowedFd<'_>, at: Option<i32>, close_on_exec: bool) -> io::Result<i32> {
        let (flags, at) = match at {
            Some(at) => (ioctl::SETFD, u32::try_from(at).map_err(|_| Errno::BADF)?),
            None => (0, 0),
        };
        ioctl::add_descriptor(self.as_fd(), id, file, at, flags, close_on_exec)
    }
}

/// Before Linux 6.11, who waits to receive waits on where the last task ends; who polls hears of it (`recv_wait_event`,
/// `kernel/seccomp.c`). Polling first everywhere would cost each call half a microsecond.
fn a_wait_hears_the_end() -> bool {
    static HEARS: OnceLock<bool> = OnceLock::new();
    *HEARS.get_or_init(|| is_from_6_11(&uname().release().to_string_lossy()))
}

fn is_from_6_11(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let release = (numbers.next(), numbers.next());
    release >= (Some(6), Some(11))
}

impl From<OwnedFd> for Listener {
    /// Takes over a listener that another process made and passed on.
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl From<Listener> for OwnedFd {
    fn from(listener: Listener) -> Self {
        listener.0
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_numbers() {
        for new in ["6.11.0", "6.18.44-fc-v595", "6.11-rc1", "7.0.1", "10.2"] {
            assert!(is_from_6_11(new), "{new}");
        }
        for old in ["6.1.0-18-amd64", "6.10.14", "5.15.0", "6", "", "linux"] {
            assert!(!is_from_6_11(old), "{old}");
        }
    }
}
