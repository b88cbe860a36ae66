//! Answers to programs of a node, which can be held for a while.
//!
//! A thread that is frozen in the moment of an answer goes on without it, as one that a signal has woken
//! ([`crate::reply_tracker`]). Nothing counts freezes. So routers answer nobody while a node is being frozen.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::sync::{lock, whole};

/// The longest that answers are held. The process that freezes a node may be killed, or wait for a program that hangs in the kernel.
pub const LONGEST: Duration = Duration::from_secs(1);

/// Whether programs of a node get answers.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The time until which they are held.
    until: Option<Instant>,
    /// Answers that are being given.
    passing: u32,
}

impl State {
    /// How long answers are held yet.
    fn left(&self) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}

impl Gate {
    /// Answers a program, once no answers are held.
    pub(crate) fn pass<T>(&self, answer: impl FnOnce() -> T) -> T {
        let mut state = lock(&self.state);
        while let Some(left) = state.left() {
            state = whole(self.changed.wait_timeout(state, left)).0;
        }
        self.through(state, answer)
    }

    /// Answers a program, unless answers are held.
    pub(crate) fn try_pass<T>(&self, answer: impl FnOnce() -> T) -> Option<T> {
        let state = lock(&self.state);
        state.left().is_none().then(|| self.through(state, answer))
    }

    fn through<T>(&self, mut state: MutexGuard<'_, State>, answer: impl FnOnce() -> T) -> T {
        state.passing += 1;
        drop(state);
        let answered = answer();
        let mut state = lock(&self.state);
        state.passing -= 1;
        if state.passing == 0 && state.until.is_some() {
            self.changed.notify_all();
        }
        answered
    }

    /// Holds answers from now on until [`release`](Self::release), or for [`LONGEST`]. Waits for answers that are being given, as
    /// long at most: a program's memory may let nobody write.
    pub(crate) fn hold(&self) {
        let mut state = lock(&self.state);
        state.until = Some(Instant::now() + LONGEST);
        while state.passing > 0
            && let Some(left) = state.left()
        {
            state = whole(self.changed.wait_timeout(state, left)).0;
        }
    }

    pub(crate) fn release(&self) {
        lock(&self.state).until = None;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn answers_wait_while_they_are_held() {
        let (gate, answered) = (Gate::default(), AtomicBool::new(false));
        assert_eq!(gate.try_pass(|| 1), Some(1));
        thread::scope(|scope| {
            gate.hold();
            let waiting = scope.spawn(|| gate.pass(|| answered.store(true, Ordering::SeqCst)));
            assert!(gate.try_pass(|| 1).is_none());
            assert!(!answered.load(Ordering::SeqCst));
            gate.release();
            waiting.join().expect("it goes on");
        });
        assert!(answered.load(Ordering::SeqCst));
        assert_eq!(gate.try_pass(|| 1), Some(1));
    }

    #[test]
    fn answers_that_are_being_given_come_first() {
        let gate = Gate::default();
        let (go_on, hears) = channel();
        let (begins, begun) = channel();
        let gate = &gate;
        thread::scope(|scope| {
            let answering = scope.spawn(move || {
                gate.pass(|| {
                    begins.send(()).expect("the test waits");
                    hears.recv().expect("the test goes on");
                    Instant::now()
                })
            });
            begun.recv().expect("it answers");
            let holding = scope.spawn(move || {
                gate.hold();
                Instant::now()
            });
            while gate.try_pass(|| 1).is_some() {
                thread::yield_now();
            }
            go_on.send(()).expect("it waits");
            assert!(answering.join().expect("answered") <= holding.join().expect("held"));
        });
    }

    /// As where the process that held them was killed.
    #[test]
    fn answers_are_not_held_for_ever() {
        let gate = Gate::default();
        gate.hold();
        assert_eq!(gate.pass(|| 1), 1);
        assert_eq!(gate.try_pass(|| 1), Some(1));
    }
}
