//! Locks that hold what they guard whatever happens to a thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. A thread that panicked in between left values that are whole: nothing here is changed in steps that a panic could
/// come between.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
