//! Descriptors on the event loop.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor on the event loop, for what becomes readable.
#[expect(
    deprecated,
    reason = "`AsFd` promises what the new function's unsafe contract asks: the descriptor stays open"
)]
pub(crate) fn watch<T: AsFd + AsRawFd>(descriptor: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}
