//! The side that is called: connections of other hosts' routers, each waiting to be asked for a server.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::hall::Hall;
use super::{Asked, Hello, Key, Limits};
use crate::sync::{bell, ring};

/// Accepts connections of other routers in a thread of its own, which ends with it. It costs nothing while nobody calls.
#[derive(Debug)]
pub struct Acceptor {
    bell: Arc<OwnedFd>,
    breaches: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Begins. `ask` is called in the acceptor's thread with each question, and may take it elsewhere to answer it later;
    /// what keeps it long keeps those after it.
    ///
    /// # Errors
    /// When the kernel has no descriptors or no thread for it.
    pub fn start(
        listener: TcpListener,
        key: Key,
        us: Hello,
        limits: Limits,
        ask: impl FnMut(Asked) + Send + 'static,
    ) -> io::Result<Self> {
        let limits = Limits { strangers: limits.strangers.max(1), waiting: limits.waiting.max(1), ..limits };
        let (bell, breaches) = (Arc::new(bell()?), Arc::new(AtomicU64::new(0)));
        let hall = Hall::new(&bell, listener, (key, us), limits, ask, breaches.clone())?;
        let rung = bell.clone();
        let thread = std::thread::Builder::new().name("acceptor".into()).spawn(move || {
            // Kept open here too, for the epoll instance refers to it.
            let _rung = rung;
            hall.run();
        })?;
        Ok(Self { bell, breaches, thread: Some(thread) })
    }

    /// How many connections were closed because of a [`Breach`](super::Breach).
    #[must_use]
    pub fn breaches(&self) -> u64 {
        self.breaches.load(Ordering::Relaxed)
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        ring(&self.bell);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
