//! Threads that register memory and end registrations. To pin much memory takes long, and other programs do not wait for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::region::Region;

/// The work of a thread for a session, once it is done.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) session: u64,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) enum Outcome {
    /// Memory is registered in this domain, or is not.
    Registered { domain: u32, region: Result<Region, Errno> },
    /// The device has let go of a region.
    Deregistered,
}

/// Threads at work, and a bell that is readable where one has ended.
#[derive(Debug)]
pub(super) struct Workers {
    bell: Arc<OwnedFd>,
    sender: Sender<Done>,
    done: Receiver<Done>,
}

impl AsFd for Workers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Workers {
    pub(super) fn new() -> Result<Self, Errno> {
        let (sender, done) = channel();
        Ok(Self { bell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?), sender, done })
    }

    /// Has a thread work for a session. Without a thread, the work is dropped here.
    pub(super) fn start(&self, session: u64, work: impl FnOnce() -> Outcome + Send + 'static) -> Result<(), Errno> {
        let (sender, bell) = (self.sender.clone(), Arc::clone(&self.bell));
        let work = move || {
            if sender.send(Done { session, outcome: work() }).is_ok() {
                let _ = rustix::io::write(&*bell, &1_u64.to_ne_bytes());
            }
        };
        Builder::new().name("registers".into()).spawn(work).map(drop).map_err(|_| Errno::NOMEM)
    }

    /// Takes what has been done.
    pub(super) fn take(&self) -> Vec<Done> {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.done.try_iter().collect()
    }
}
