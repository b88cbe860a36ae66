//! A request of another router, and how many of them wait.

use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::connection::Connection;
use super::{ChannelError, Open, OpenAnswer, OpenReply, RecordLayer, Refusal};

/// The limits of what callers may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many connections there are at once whose callers have not shown that they are of the lab, at least one. One more
    /// makes the oldest go once that had 100 ms for it, and is not accepted before.
    pub unauthenticated: usize,
    /// How long each of these has while there are not too many.
    pub handshake: Duration,
    /// How many connections of one session wait, at least one. One more makes the oldest go: the caller's pool is greater.
    pub waiting: usize,
}

impl Default for Limits {
    /// 128 for 5 s: a handshake takes two round trips and a further connection none, so that no router of the lab is pushed out,
    /// and a flood of strangers costs 128 descriptors and passes at 1280 a second. 256 that wait.
    fn default() -> Self {
        Self { unauthenticated: 128, handshake: Duration::from_secs(5), waiting: 256 }
    }
}

/// Another router asks for a server, and waits. Dropped without an answer, it closes the connection.
#[derive(Debug)]
pub struct OpenRequest {
    /// Index of the router's host.
    pub host: u32,
    /// For what.
    pub open: Open,
    pub(super) connection: Connection,
    pub(super) records: RecordLayer,
}

impl OpenRequest {
    /// Says yes, and gives the stream for the server's program. Nothing of it has been read.
    ///
    /// # Errors
    /// When the caller is gone.
    pub fn accept(self) -> Result<TcpStream, ChannelError> {
        self.accept_after(|_| ()).map(|(stream, ())| stream)
    }

    /// The same, after something has been done about the stream. What came of that is dropped before the stream is closed.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_after<T>(mut self, act: impl FnOnce(BorrowedFd<'_>) -> T) -> Result<(TcpStream, T), ChannelError> {
        let came = act(self.connection.as_fd());
        self.reply(OpenAnswer::Accepted)?;
        Ok((self.connection.release(), came))
    }

    /// Says no.
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

/// Readable, or hung up, as soon as the caller gives up.
impl AsFd for OpenRequest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
