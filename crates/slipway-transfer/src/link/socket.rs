//! A socket with a bound on its handshake, and a count of how long its writer waits.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A socket that adds up how long its writer waits.
pub(crate) struct Socket {
    pub(super) stream: TcpStream,
    /// Nanoseconds.
    pub(super) waited: Arc<AtomicU64>,
    /// The end of the handshake, after which a peer that sends byte by byte gets nowhere.
    pub(super) deadline: Option<Instant>,
}

impl Socket {
    /// A socket whose handshake ends within `handshake`.
    pub(super) fn new(stream: TcpStream, handshake: Duration, waited: Arc<AtomicU64>) -> Self {
        Self { stream, waited, deadline: Some(Instant::now() + handshake) }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
        }
        self.stream.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let began = Instant::now();
        let written = self.stream.write(buffer);
        self.waited.fetch_add(nanoseconds(began), Ordering::Relaxed);
        written
    }

    fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let began = Instant::now();
        let written = self.stream.write_vectored(buffers);
        self.waited.fetch_add(nanoseconds(began), Ordering::Relaxed);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Nanoseconds since `began`.
pub(crate) fn nanoseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
