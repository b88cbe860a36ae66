//! A request of another router, and limits on how many wait.

use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::connection::Connection;
use super::{ChannelError, Open, OpenAnswer, OpenReply, RecordLayer, Refusal};

/// The limits of what callers may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most connections at once whose callers have not authenticated themselves, at least one. A further one pushes out the
    /// oldest, once the oldest had 100 ms. Until then it is not accepted.
    pub unauthenticated: usize,
    /// Time that each of these has while there are not too many.
    pub handshake: Duration,
    /// Most waiting connections of one session, at least one. A further one pushes out the oldest: the caller's pool is
    /// greater.
    pub waiting: usize,
}

impl Default for Limits {
    /// 128 unauthenticated connections for 5 s, and 256 that wait. A handshake takes two round trips and a further
    /// connection none, so no router of the lab is pushed out. A flood of strangers costs 128 descriptors, and passes at
    /// 1280 a second.
    fn default() -> Self {
        Self { unauthenticated: 128, handshake: Duration::from_secs(5), waiting: 256 }
    }
}

/// A request of another router for a server. To drop it without an answer closes the connection.
#[derive(Debug)]
pub struct OpenRequest {
    /// Index of the router's host.
    pub host: u32,
    /// The server and the client.
    pub open: Open,
    pub(super) connection: Connection,
    pub(super) records: RecordLayer,
}

impl OpenRequest {
    /// Accepts, and gives the stream for the server's program. Nothing of it has been read.
    ///
    /// # Errors
    /// When the caller is gone.
    pub fn accept(self) -> Result<TcpStream, ChannelError> {
        self.accept_after(|_| ()).map(|(stream, ())| stream)
    }

    /// Like [`accept`](Self::accept), but calls `act` on the stream first. On failure, the result of `act` is dropped
    /// before the stream closes.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_after<T>(mut self, act: impl FnOnce(BorrowedFd<'_>) -> T) -> Result<(TcpStream, T), ChannelError> {
        let came = act(self.connection.as_fd());
        self.reply(OpenAnswer::Accepted)?;
        Ok((self.connection.release(), came))
    }

    /// Refuses the connection.
    ///
    /// # Errors
    /// When the caller is gone.
    pub fn refuse(mut self, reason: Refusal) -> Result<(), ChannelError> {
        self.reply(OpenAnswer::Refused(reason))
    }

    fn reply(&mut self, answer: OpenAnswer) -> Result<(), ChannelError> {
        let reply = self.records.seal(&OpenReply { flow: self.open.flow, answer });
        self.connection.send(&reply)
    }
}

/// The descriptor becomes readable, or hangs up, as soon as the caller gives up.
impl AsFd for OpenRequest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
