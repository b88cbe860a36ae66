//! A tree of programs, all under one filter, and what is remembered of them.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use slipway_sys::notify::{Caller, Listener};

use crate::epolls::Epolls;
use crate::interrupted::Interrupted;
use crate::originals::Originals;
use crate::park::Parker;
use crate::sync::lock;

/// So many threads are remembered, with a descriptor for each; then those that have ended are forgotten, or all.
const REMEMBERED: usize = 64;

/// Programs of a node that one listener hears.
#[derive(Debug)]
pub struct Tree {
    /// The node.
    pub node: usize,
    /// Its own number, which every router knows it by.
    pub number: u64,
    /// Where their calls come from, and are answered.
    pub listener: Listener,
    /// Where their calls wait, with those of all programs of the node.
    pub parker: Arc<Parker>,
    /// Their epoll instances.
    pub epolls: Mutex<Epolls>,
    /// Their calls that were interrupted.
    pub interrupted: Mutex<Interrupted>,
    /// Their sockets that were replaced.
    pub(crate) originals: Mutex<Originals>,
    callers: Mutex<HashMap<i32, Arc<Caller>>>,
}

impl Tree {
    /// Of which nothing is known yet.
    ///
    /// # Errors
    /// As `epoll_create1(2)`.
    pub fn new(node: usize, number: u64, listener: Listener, parker: Arc<Parker>) -> io::Result<Self> {
        let originals = Mutex::new(Originals::new()?);
        let (epolls, interrupted, callers) = Default::default();
        Ok(Self { node, number, listener, parker, epolls, interrupted, originals, callers })
    }

    /// The thread of this number, and a copy of one of its descriptors.
    ///
    /// # Errors
    /// As [`Caller::open`] and [`Caller::descriptor`].
    pub fn found(&self, tid: i32, number: i32) -> io::Result<(Arc<Caller>, OwnedFd)> {
        let remembered = lock(&self.callers).get(&tid).cloned();
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

    fn remember(&self, tid: i32) -> io::Result<Arc<Caller>> {
        let caller = Arc::new(Caller::open(tid)?);
        if !caller.keeps_its_number() {
            return Ok(caller);
        }
        let mut callers = lock(&self.callers);
        if callers.len() >= REMEMBERED {
            callers.retain(|_, caller| caller.lives());
        }
        if callers.len() >= REMEMBERED {
            callers.clear();
        }
        callers.insert(tid, Arc::clone(&caller));
        Ok(caller)
    }
}
