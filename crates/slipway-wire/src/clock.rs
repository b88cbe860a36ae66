//! The one clock.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds since the machine started (`CLOCK_MONOTONIC`).
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Neither is negative, and the sum fits for 500 years.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The time in the kernel's form.
pub(crate) fn timespec(nanoseconds: u64) -> Timespec {
    let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Timespec { tv_sec: part(nanoseconds / 1_000_000_000), tv_nsec: part(nanoseconds % 1_000_000_000) }
}
