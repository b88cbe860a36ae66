//! A stream of messages about one connection. Its end is the end of the connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{LENGTH, Message};

/// An end of the stream.
#[derive(Debug)]
pub struct Line {
    stream: OwnedFd,
    received: [u8; LENGTH],
    length: usize,
}

impl From<OwnedFd> for Line {
    fn from(stream: OwnedFd) -> Self {
        Self { stream, received: [0; LENGTH], length: 0 }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Line {
    /// Sends a message. There is always room: few are unread at a time. False where the other side has gone.
    #[must_use]
    pub fn send(&self, message: &Message) -> bool {
        let sent = send(&self.stream, &message.write(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        sent.is_ok_and(|sent| sent == LENGTH)
    }

    /// The next message; none where a part is missing.
    ///
    /// # Errors
    /// At the end of the stream, and where the bytes are no message.
    pub fn receive(&mut self) -> Result<Option<Message>, Errno> {
        loop {
            match recv(&self.stream, &mut self.received[self.length..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(Errno::PIPE),
                Ok((_, read)) => self.length += read,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            if self.length == LENGTH {
                self.length = 0;
                return Message::read(&self.received).map(Some).ok_or(Errno::PROTO);
            }
        }
    }
}
