//! A tree of programs, all under one filter, and the router's state of them.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use rustix::io::Errno;
use slipway_lab::id::NodeId;
use slipway_sys::notify::{Call, Caller, Listener};

use crate::bounded::BoundedMap;
use crate::epolls::Epolls;
use crate::gate::Gate;
use crate::interrupted_connects::InterruptedConnects;
use crate::replaced_sockets::ReplacedSockets;
use crate::reply_tracker::ReplyTracker;
use crate::sync::{lock, whole};

/// Most remembered threads, each with a descriptor; one more pushes out the oldest.
const REMEMBERED: usize = 64;

/// The programs of a node behind one listener.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The node.
    pub(crate) node: NodeId,
    /// The number of the tree, the same for every router.
    pub(crate) number: u64,
    /// The listener that receives and answers their calls.
    pub(crate) listener: Listener,
    /// The gate of answers to the node's programs.
    gate: Arc<Gate>,
    /// Their epoll instances.
    pub(crate) epolls: Mutex<Epolls>,
    /// Connections of their interrupted calls.
    pub(crate) interrupted: Mutex<InterruptedConnects>,
    /// Their sockets that were replaced.
    pub(crate) replaced_sockets: Mutex<ReplacedSockets>,
    /// Held while the router reads and rewrites the storage of a socket of theirs.
    pub(crate) writing: Mutex<()>,
    /// Held while the router chooses a free descriptor number of theirs, and puts a channel of `rdma_cm` there.
    pub(crate) numbering: Mutex<()>,
    callers: Mutex<BoundedMap<i32, Arc<Caller>>>,
    /// The answers to their threads.
    pub(crate) replies: Mutex<ReplyTracker>,
    /// Turns to wait for a call, and to take one: the number of the last taken call.
    turn: Mutex<Option<u64>>,
    /// The number of calls that were gone before they were taken.
    missed: AtomicU64,
    /// Whether a helper serves too, or has been called.
    is_helped: AtomicBool,
    /// Threads whose calls are being served.
    served: Mutex<HashSet<i32>>,
    /// Notified when a call has been served.
    done: Condvar,
}

impl Tree {
    /// A tree without state yet.
    ///
    /// # Errors
    /// As `epoll_create1(2)`.
    pub(crate) fn new(node: NodeId, number: u64, listener: Listener, gate: Arc<Gate>) -> io::Result<Self> {
        let replaced_sockets = Mutex::new(ReplacedSockets::new()?);
        let (epolls, interrupted, writing, numbering, replies, turn) = Default::default();
        let callers = Mutex::new(BoundedMap::new(REMEMBERED));
        let (missed, is_helped, served, done) = Default::default();
        Ok(Self {
            node,
            number,
            listener,
            gate,
            epolls,
            interrupted,
            replaced_sockets,
            writing,
            numbering,
            callers,
            replies,
            turn,
            missed,
            is_helped,
            served,
            done,
        })
    }

    /// Answers a call, once answers to the node are not held.
    ///
    /// # Errors
    /// As [`Listener::answer`].
    pub(crate) fn answer(&self, call: u64, result: Result<i64, Errno>) -> io::Result<()> {
        self.answer_by(|listener| listener.answer(call, result))
    }

    /// Answers a call by a function, once answers to the node are not held.
    pub(crate) fn answer_by<T>(&self, answer: impl FnOnce(&Listener) -> T) -> T {
        self.gate.pass(|| answer(&self.listener))
    }

    /// Answers a call by a function. `None` while answers to the node are held.
    pub(crate) fn try_answer_by<T>(&self, answer: impl FnOnce(&Listener) -> T) -> Option<T> {
        self.gate.try_pass(|| answer(&self.listener))
    }

    /// Waits for a call, as [`Listener::receive`]; and returns whether there are more.
    ///
    /// # Errors
    /// As [`Listener::receive`].
    pub(crate) fn next(&self) -> io::Result<Option<(Call, bool)>> {
        let mut last = lock(&self.turn);
        let call = self.listener.receive()?;
        Ok(call.map(|call| (self.taken(&mut last, call), self.listener.is_called())))
    }

    /// A call that waits, unless another thread is to take it.
    pub(crate) fn another(&self) -> Option<Call> {
        let mut last = self.turn.try_lock().ok()?;
        let call = self.listener.try_receive().ok()?;
        call.map(|call| self.taken(&mut last, call))
    }

    /// Counts calls from the one with this number on, which an earlier router was the last to take.
    pub(crate) fn follow(&self, last: Option<u64>) {
        *lock(&self.turn) = last;
    }

    /// Calls are numbered as they are made, and taken in that order (`seccomp_next_notify_id`, `kernel/seccomp.c`).
    fn taken(&self, last: &mut Option<u64>, call: Call) -> Call {
        let between = last.map_or(0, |last| call.id.wrapping_sub(last).wrapping_sub(1));
        self.missed.fetch_add(between, Ordering::Relaxed);
        *last = Some(call.id);
        lock(&self.replies).taken(call.tid);
        call
    }

    /// The number of calls so far that were interrupted before a thread took them.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Runs a function for a call of this thread, after the work for its earlier calls. A program repeats an interrupted call
    /// while the router still serves it.
    pub(crate) fn in_turn(&self, tid: i32, serve: impl FnOnce()) {
        let mut served = lock(&self.served);
        while !served.insert(tid) {
            served = whole(self.done.wait(served));
        }
        drop(served);
        serve();
        lock(&self.served).remove(&tid);
        self.done.notify_all();
    }

    /// True once, until it has been [`helped`](Self::helped).
    pub(crate) fn wants_help(&self) -> bool {
        !self.is_helped.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn helped(&self) {
        self.is_helped.store(false, Ordering::Relaxed);
    }

    /// The thread of this number, and a copy of one of its descriptors.
    ///
    /// # Errors
    /// As [`Caller::open`] and [`Caller::descriptor`].
    pub(crate) fn found(&self, tid: i32, number: i32) -> io::Result<(Arc<Caller>, OwnedFd)> {
        let remembered = lock(&self.callers).get(tid).cloned();
        if let Some(caller) = remembered {
            match caller.descriptor(number) {
                // The thread has ended, and the number may be another's.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => {}
                found => return found.map(|socket| (caller, socket)),
            }
        }
        let caller = self.remember(tid)?;
        let socket = caller.descriptor(number)?;
        Ok((caller, socket))
    }

    /// The thread of this number, which makes a call.
    ///
    /// # Errors
    /// As [`Caller::open`].
    pub(crate) fn caller(&self, tid: i32) -> io::Result<Arc<Caller>> {
        let remembered = lock(&self.callers).get(tid).cloned();
        remembered.map_or_else(|| self.remember(tid), Ok)
    }

    fn remember(&self, tid: i32) -> io::Result<Arc<Caller>> {
        let caller = Arc::new(Caller::open(tid)?);
        if !caller.keeps_its_number() || !caller.lives() {
            return Ok(caller);
        }
        let oldest = lock(&self.callers).insert(tid, Arc::clone(&caller));
        // Closed without a lock held.
        drop(oldest);
        Ok(caller)
    }
}
