//! Waiting: for other threads, and until a time.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, eventfd};

/// Bytes of a thread's stack: those of a router need little.
pub(crate) const STACK_BYTES: usize = 128 * 1024;

/// Locks. A thread that panicked in between left whole values: nothing here changes in steps that a panic could come
/// between.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    whole(mutex.lock())
}

/// The value behind a lock, even if another thread panicked with it.
pub(crate) fn whole<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// The kernel's form of a duration, no shorter than this.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: duration.subsec_nanos().into() }
}

/// An event descriptor that wakes a thread from `epoll_wait(2)` (`eventfd(2)`).
pub(crate) fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Signals the event. It fails only after 2^64 signals that nobody received, which is as good.
pub(crate) fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}
