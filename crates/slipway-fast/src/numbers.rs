//! Numbers that a router gives out: of connections, and of clients' ports.

use std::io;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use crate::metadata::first_number;

/// The range of clients' ports, which the kernel uses too (`ip_local_port_range`).
const PORTS: std::ops::Range<u16> = 32768..61000;

/// The counters of connections and ports.
#[derive(Debug)]
pub(crate) struct Numbers {
    first_flow: u64,
    flows: AtomicU64,
    ports: AtomicU16,
}

impl Numbers {
    /// Counters that begin at random, so that no two routers give out the same.
    ///
    /// # Errors
    /// As `getrandom(2)`.
    pub(crate) fn new() -> io::Result<Self> {
        let mut begin = [0; 8];
        rustix::rand::getrandom(&mut begin, rustix::rand::GetRandomFlags::empty())?;
        let first_flow = first_number(u64::from_ne_bytes(begin));
        let ports = AtomicU16::new(u16::from_ne_bytes([begin[0], begin[1]]));
        Ok(Self { first_flow, flows: AtomicU64::new(first_flow), ports })
    }

    /// A port for a client that chose none. The same port comes again after all others of the range.
    pub(crate) fn next_port(&self) -> u16 {
        PORTS.start + self.ports.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start)
    }

    /// A number for a new connection.
    pub(crate) fn next_flow(&self) -> u64 {
        self.flows.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether this router gave this number out, not an earlier one.
    pub(crate) fn made(&self, flow: u64) -> bool {
        (self.first_flow..self.flows.load(Ordering::Relaxed)).contains(&flow)
    }
}
