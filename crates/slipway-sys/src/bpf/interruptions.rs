//! Which threads had their calls interrupted.

use std::ffi::{CStr, c_long};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::storage::{Of, Storage};
use super::{LoadError, Object, call};

const NAME: &str = "interruptions";
static OBJECT: Object = Object::new(NAME, include_bytes!("../../bpf/interruptions.bpf.o"));

/// Where a thread takes a signal (`get_signal`, `kernel/signal.c`).
const TRACEPOINT: &CStr = c"signal_deliver";

/// `MOST_CALLS` of the program.
const MOST_CALLS: usize = 32;

/// Counts for every thread of the machine how often some of its calls were interrupted by a signal that has a handler, while they
/// waited for an answer of a filter's supervisor.
///
/// Who answers calls for others (`seccomp_unotify(2)`) is not told whether an answer was heard: a caller that a signal has woken goes
/// on without the answer that comes before it holds the filter's lock (`seccomp_do_user_notification`, `kernel/seccomp.c`). By
/// these counts it can be known. They cost nothing where no signal comes.
///
/// Counts as long as this value lives.
#[derive(Debug)]
pub struct Interruptions {
    _link: OwnedFd,
}

impl Interruptions {
    /// Counts these calls in `counts`, e.g. `SYS_accept4`.
    ///
    /// # Errors
    /// [`LoadError`]; needs x86-64, `CAP_BPF` and `CAP_PERFMON`, Linux 5.15, and a kernel that describes its types
    /// (`CONFIG_DEBUG_INFO_BTF`) and lets programs be run at its tracepoints (`CONFIG_BPF_EVENTS`).
    pub fn count(calls: &[c_long], counts: &ThreadCounts) -> Result<Self, LoadError> {
        let refused = |error| LoadError::Attach { name: NAME.to_owned(), error };
        if !cfg!(target_arch = "x86_64") {
            let why = "only x86-64 still shows here that a call is to be made again";
            return Err(refused(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        if calls.len() > MOST_CALLS {
            return Err(refused(io::Error::new(io::ErrorKind::InvalidInput, "too many calls to count")));
        }
        // All numbers of calls are small.
        let mut numbers: Vec<u8> =
            calls.iter().flat_map(|&call| u32::try_from(call).unwrap_or_default().to_ne_bytes()).collect();
        numbers.resize(4 * MOST_CALLS, 0);
        let count = u32::try_from(calls.len()).unwrap_or_default().to_ne_bytes();
        let constants = [("calls", numbers.as_slice()), ("call_count", &count)];
        let program = OBJECT.with(&constants, &[("counts", counts.as_fd())])?.load("interruptions")?;
        Ok(Self { _link: call::trace(program.as_fd(), TRACEPOINT).map_err(refused)? })
    }
}

/// A number for each thread, gone with it.
#[derive(Debug)]
pub struct ThreadCounts(Storage);

impl ThreadCounts {
    /// Makes them, all zero. `name` shows in `bpftool map`: at most 15 letters, digits, `_` or `.`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`.
    pub fn create(name: &str) -> io::Result<Self> {
        Storage::create(Of::Threads, name, size_of::<u64>()).map(Self)
    }

    /// That of a thread, by a pidfd of its own (`PIDFD_THREAD`, Linux 6.9), or of a process's first thread, by one of the process.
    ///
    /// # Errors
    /// `EBADF` where it is no pidfd; before Linux 5.19 `EPERM` without `CAP_BPF`.
    pub fn of(&self, thread: BorrowedFd<'_>) -> io::Result<u64> {
        let value = self.0.get(thread)?;
        Ok(value.and_then(|value| value.first_chunk().copied()).map_or(0, u64::from_ne_bytes))
    }
}

impl AsFd for ThreadCounts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl TryFrom<OwnedFd> for ThreadCounts {
    type Error = io::Error;

    /// Takes over counts that another process made and passed on; `InvalidInput` where it is something else.
    fn try_from(descriptor: OwnedFd) -> io::Result<Self> {
        Storage::take_over(Of::Threads, descriptor).map(Self)
    }
}
