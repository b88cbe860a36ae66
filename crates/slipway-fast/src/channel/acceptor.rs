//! The answerer's side: connections from other hosts' routers, each of which waits for a request.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::accept_loop::AcceptLoop;
use super::{Hello, Key, Limits, OpenRequest};
use crate::sync::{bell, ring};

/// Accepts connections of other routers, in a thread that ends when this is dropped. The thread uses no processor time
/// while nobody calls.
#[derive(Debug)]
pub struct Acceptor {
    bell: Arc<OwnedFd>,
    protocol_errors: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Starts the thread. It calls `ask` with each request; `ask` may pass the request on, to answer it later. A slow `ask`
    /// delays the requests after it.
    ///
    /// # Errors
    /// When the kernel has no descriptors or no thread for it.
    pub fn start(
        listener: TcpListener,
        key: Key,
        us: Hello,
        limits: Limits,
        ask: impl FnMut(OpenRequest) + Send + 'static,
    ) -> io::Result<Self> {
        let limits =
            Limits { unauthenticated: limits.unauthenticated.max(1), waiting: limits.waiting.max(1), ..limits };
        let (bell, protocol_errors) = (Arc::new(bell()?), Arc::new(AtomicU64::new(0)));
        let accept_loop = AcceptLoop::new(&bell, listener, (key, us), limits, ask, protocol_errors.clone())?;
        let rung = bell.clone();
        let thread = std::thread::Builder::new().name("acceptor".into()).spawn(move || {
            // Keeps the descriptor open for the epoll instance, which refers to it.
            let _rung = rung;
            accept_loop.run();
        })?;
        Ok(Self { bell, protocol_errors, thread: Some(thread) })
    }

    /// The number of connections that were closed because of a [`ProtocolError`](super::ProtocolError).
    #[must_use]
    pub fn protocol_errors(&self) -> u64 {
        self.protocol_errors.load(Ordering::Relaxed)
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
