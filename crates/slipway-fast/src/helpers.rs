//! Threads that help a tree's own: where calls wait while that serves another, one of them serves too.
//!
//! A router has so many that all processors serve, and they sleep while no calls wait. Who takes a call, and who waits for one,
//! has its turn: the kernel wakes all who wait at once.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use std::{io, iter, thread};

use slipway_sys::notify::Call;

use crate::blocked_accepts::BlockedAccepts;
use crate::sync::{STACK_BYTES, lock, whole};
use crate::tree::Tree;

/// More are no use: what they share is held too often.
const MOST: usize = 7;

/// So many calls are served before another tree has its turn.
const AT_A_TIME: usize = 64;
/// And for so long.
const LONGEST: Duration = Duration::from_millis(50);

/// All of a router.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    wanted: Mutex<VecDeque<(Arc<Tree>, Arc<BlockedAccepts>)>>,
    came: Condvar,
}

impl Helpers {
    /// Starts them.
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

    /// Calls one to a tree of programs whose calls wait.
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
