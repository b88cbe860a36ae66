//! Threads that help a tree's own: where calls wait while that serves another, one of them serves too.
//!
//! A router has so many that all processors serve, and they sleep while no calls wait. Who takes a call, and who waits for one,
//! has its turn: the kernel wakes all who wait at once.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use std::{io, iter, thread};

use crate::call::Trapped;
use crate::router::{Router, STACK_BYTES};
use crate::sync::{lock, whole};
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
    wanted: Mutex<VecDeque<Arc<Tree>>>,
    came: Condvar,
}

impl Helpers {
    /// Starts them.
    pub(crate) fn start(router: &Arc<Router>) -> io::Result<()> {
        let others = thread::available_parallelism().map_or(1, NonZero::get) - 1;
        for _ in 0..others.min(MOST) {
            let router = Arc::clone(router);
            let helper = thread::Builder::new().name("helper".into()).stack_size(STACK_BYTES);
            helper.spawn(move || router.helpers.run(&router))?;
        }
        Ok(())
    }

    /// Calls one to a tree of programs whose calls wait.
    pub(crate) fn call(&self, tree: &Arc<Tree>) {
        if tree.wants_help() {
            lock(&self.wanted).push_back(Arc::clone(tree));
            self.came.notify_one();
        }
    }

    fn run(&self, router: &Arc<Router>) {
        loop {
            let mut wanted = lock(&self.wanted);
            let tree = loop {
                match wanted.pop_front() {
                    Some(tree) => break tree,
                    None => wanted = whole(self.came.wait(wanted)),
                }
            };
            drop(wanted);
            let until = Instant::now() + LONGEST;
            let next = || if Instant::now() < until { tree.another() } else { None };
            for call in iter::from_fn(next).take(AT_A_TIME) {
                Trapped { router, tree: &tree, call }.carry_out();
            }
            tree.helped();
        }
    }
}
