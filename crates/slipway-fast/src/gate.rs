//! Answers to programs of a node, which can be held for a while.
//!
//! A thread that is frozen in the moment of an answer goes on without it, as one that a signal has woken
//! ([`crate::reply_tracker`]). Nothing counts freezes. So routers answer nobody while a node is being frozen.

use std::sync::{PoisonError, RwLock, RwLockWriteGuard, TryLockError};

/// Whether programs of a node get answers.
#[derive(Debug, Default)]
pub(crate) struct Gate(RwLock<()>);

impl Gate {
    /// Answers a program, once no answers are held.
    pub(crate) fn pass<T>(&self, answer: impl FnOnce() -> T) -> T {
        let _open = self.0.read().unwrap_or_else(PoisonError::into_inner);
        answer()
    }

    /// Answers a program, unless answers are held.
    pub(crate) fn try_pass<T>(&self, answer: impl FnOnce() -> T) -> Option<T> {
        let _open = match self.0.try_read() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(open)) => open.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(answer())
    }

    /// Holds answers from now on, until the guard is dropped. Answers that were being given have been given.
    pub(crate) fn hold(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn answers_wait_while_they_are_held() {
        let (gate, answered) = (Gate::default(), AtomicBool::new(false));
        assert_eq!(gate.try_pass(|| 1), Some(1));
        thread::scope(|scope| {
            let held = gate.hold();
            let waiting = scope.spawn(|| gate.pass(|| answered.store(true, Ordering::SeqCst)));
            assert_eq!(gate.try_pass(|| 1), None);
            assert!(!answered.load(Ordering::SeqCst));
            drop(held);
            waiting.join().expect("it goes on");
        });
        assert!(answered.load(Ordering::SeqCst));
        assert_eq!(gate.try_pass(|| 1), Some(1));
    }
}
