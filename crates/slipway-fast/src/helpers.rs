//! Threads that help a tree's own thread: while that serves a call, a helper serves another that waits.
//!
//! A router has enough helpers for all processors. They sleep while no calls wait. Threads take turns to take calls and to
//! wait, because the kernel wakes all that wait at once.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use std::{io, iter, thread};

use slipway_sys::notify::Call;

use crate::blocked_accepts::BlockedAccepts;
use crate::sync::{STACK_BYTES, lock, whole};
use crate::tree::Tree;

/// Most helpers: more contend for the shared locks too often.
const MOST: usize = 7;

/// Calls that a helper serves before another tree has its turn.
const AT_A_TIME: usize = 64;
/// Longest time for one tree's turn.
const LONGEST: Duration = Duration::from_millis(50);

/// All helpers of a router.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    wanted: Mutex<VecDeque<(Arc<Tree>, Arc<BlockedAccepts>)>>,
    came: Condvar,
}

impl Helpers {
    /// Starts the helpers.
    pub(crate) fn start(
        self: &Arc<Self>,
        serve: impl Fn(&Arc<Tree>, &Arc<BlockedAccepts>, Call) + Clone + Send + 'static,
    ) -> io::Result<()> {
        let others = thread::available_parallelism().map_or(1, NonZero::get) - 1;
        for _ in 0..others.min(MOST) {
            let (helpers, serve) = (Arc::clone(self), serve.clone());
            let helper = thread::Builder::new().name("helper".into()).stack_size(STACK_BYTES);
            helper.spawn(move || helpers.run(&serve))?;
        }
        Ok(())
    }

    /// Wakes a helper for a tree of programs whose calls wait.
    pub(crate) fn call(&self, tree: &Arc<Tree>, blocked_accepts: &Arc<BlockedAccepts>) {
        if tree.wants_help() {
            lock(&self.wanted).push_back((Arc::clone(tree), Arc::clone(blocked_accepts)));
            self.came.notify_one();
        }
    }

    fn run(&self, serve: &impl Fn(&Arc<Tree>, &Arc<BlockedAccepts>, Call)) {
        loop {
            let mut wanted = lock(&self.wanted);
            let (tree, blocked_accepts) = loop {
                match wanted.pop_front() {
                    Some(served) => break served,
                    None => wanted = whole(self.came.wait(wanted)),
                }
            };
            drop(wanted);
            let until = Instant::now() + LONGEST;
            let next = || if Instant::now() < until { tree.another() } else { None };
            for call in iter::from_fn(next).take(AT_A_TIME) {
                serve(&tree, &blocked_accepts, call);
            }
            tree.helped();
        }
    }
}
