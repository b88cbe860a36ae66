//! A tree of programs, all under one filter, and what is remembered of them.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use rustix::io::Errno;
use slipway_sys::notify::{Call, Caller, Listener};

use crate::bounded::BoundedMap;
use crate::epolls::Epolls;
use crate::interrupted_connects::InterruptedConnects;
use crate::replaced_sockets::ReplacedSockets;
use crate::reply_tracker::ReplyTracker;
use crate::sync::{lock, whole};

/// So many threads are remembered, with a descriptor for each; of more the oldest is forgotten.
const REMEMBERED: usize = 64;

/// Programs of a node that one listener hears.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The node.
    pub(crate) node: usize,
    /// Its own number, which every router knows it by.
    pub(crate) number: u64,
    /// Where their calls come from, and are answered.
    pub(crate) listener: Listener,
    /// Their epoll instances.
    pub(crate) epolls: Mutex<Epolls>,
    /// Their calls that were interrupted.
    pub(crate) interrupted: Mutex<InterruptedConnects>,
    /// Their sockets that were replaced.
    pub(crate) replaced_sockets: Mutex<ReplacedSockets>,
    /// Held while what is written on a socket of theirs is read and then written anew.
    pub(crate) writing: Mutex<()>,
    callers: Mutex<BoundedMap<i32, Arc<Caller>>>,
    /// What their threads were told.
    pub(crate) replies: Mutex<ReplyTracker>,
    /// Of waiting for a call, and of taking one: the number of the one that was taken last.
    turn: Mutex<Option<u64>>,
    /// How many were gone before they were taken.
    missed: AtomicU64,
    /// Whether somebody helps, or is to.
    is_helped: AtomicBool,
    /// Threads whose calls are being served.
    served: Mutex<HashSet<i32>>,
    /// One is served no more.
    done: Condvar,
}

impl Tree {
    /// Of which nothing is known yet.
    ///
    /// # Errors
    /// As `epoll_create1(2)`.
    pub(crate) fn new(node: usize, number: u64, listener: Listener) -> io::Result<Self> {
        let replaced_sockets = Mutex::new(ReplacedSockets::new()?);
        let (epolls, interrupted, writing, replies, turn) = Default::default();
        let callers = Mutex::new(BoundedMap::new(REMEMBERED));
        let (missed, is_helped, served, done) = Default::default();
        Ok(Self {
            node,
            number,
            listener,
            epolls,
            interrupted,
            replaced_sockets,
            writing,
            callers,
            replies,
            turn,
            missed,
            is_helped,
            served,
            done,
        })
    }

    /// Waits for a call, as [`Listener::receive`]; and whether there are more.
    ///
    /// # Errors
    /// As [`Listener::receive`].
    pub(crate) fn next(&self) -> io::Result<Option<(Call, bool)>> {
        let mut last = lock(&self.turn);
        let call = self.listener.receive()?;
        Ok(call.map(|call| (self.taken(&mut last, call), self.listener.is_called())))
    }

    /// A call that waits, where nobody else is to take it.
    pub(crate) fn another(&self) -> Option<Call> {
        let mut last = self.turn.try_lock().ok()?;
        let call = self.listener.try_receive().ok()?;
        call.map(|call| self.taken(&mut last, call))
    }

    /// Calls are numbered as they are made, and taken in that order (`seccomp_next_notify_id`, `kernel/seccomp.c`).
    fn taken(&self, last: &mut Option<u64>, call: Call) -> Call {
        let between = last.map_or(0, |last| call.id.wrapping_sub(last).wrapping_sub(1));
        self.missed.fetch_add(between, Ordering::Relaxed);
        *last = Some(call.id);
        lock(&self.replies).taken(call.tid);
        call
    }

    /// How many calls so far were interrupted before somebody took them.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Does what is to be done for a call of this thread, when what was begun for an earlier one has been done: a call that a signal
    /// interrupts is made again while it is still served.
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
                // It has ended, and the number may be another's.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => {}
                found => return found.map(|socket| (caller, socket)),
            }
        }
        let caller = self.remember(tid)?;
        let socket = caller.descriptor(number)?;
        Ok((caller, socket))
    }

    /// The thread of this number, that makes a call.
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
        // Closed with nothing held.
        drop(oldest);
        Ok(caller)
    }
}
