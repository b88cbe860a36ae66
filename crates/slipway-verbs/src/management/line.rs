//! A stream of messages about one connection. Its end is the end of the connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{LENGTH, Message};

/// An end of the stream.
#[derive(Debug)]
pub struct Line {
    stream: OwnedFd,
    /// The bytes of a message that has come in parts, and how many there are.
    parts: [u8; LENGTH],
    length: usize,
}

impl From<OwnedFd> for Line {
    fn from(stream: OwnedFd) -> Self {
        Self { stream, parts: [0; LENGTH], length: 0 }
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

    /// The next message, which stays in the stream; none where a part is missing. Parts are taken away: a stream with one would be
    /// readable again and again.
    ///
    /// # Errors
    /// At the end of the stream, and where the bytes are no message.
    pub fn peek(&mut self) -> Result<Option<Message>, Errno> {
        if self.length == 0 && self.receive(RecvFlags::PEEK)? == Some(LENGTH) {
            return self.read();
        }
        while self.length < LENGTH {
            let Some(received) = self.receive(RecvFlags::empty())? else { return Ok(None) };
            self.length += received;
        }
        self.read()
    }

    /// Takes the message away that [`peek`](Self::peek) gave.
    pub fn consume(&mut self) {
        if self.length == 0 {
            let _ = self.receive(RecvFlags::empty());
        }
        self.length = 0;
    }

    fn read(&self) -> Result<Option<Message>, Errno> {
        Message::read(&self.parts).map(Some).ok_or(Errno::PROTO)
    }

    /// Receives bytes behind those that are there. Gives how many; none where there are no more yet.
    fn receive(&mut self, flags: RecvFlags) -> Result<Option<usize>, Errno> {
        let rest = &mut self.parts[self.length..];
        match retry_on_intr(|| recv(&self.stream, &mut *rest, flags | RecvFlags::DONTWAIT)) {
            Ok((_, 0)) => Err(Errno::PIPE),
            Ok((_, received)) => Ok(Some(received)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::management::{Offer, Step};

    #[test]
    fn a_message_stays_until_it_is_taken_away() {
        let (line, mut other) = UnixStream::pair().expect("a pair");
        let mut line = Line::from(OwnedFd::from(line));
        let message = |status| Message { step: Step::Accepted, status, offer: Offer::default() };
        assert_eq!(line.peek(), Ok(None));
        let [one, two] = [1, 2].map(|status| message(status).write());
        other.write_all(&one).expect("sent");
        other.write_all(&two[..5]).expect("sent");
        assert_eq!((line.peek(), line.peek()), (Ok(Some(message(1))), Ok(Some(message(1)))));
        line.consume();
        assert_eq!(line.peek(), Ok(None));
        other.write_all(&two[5..]).expect("sent");
        assert_eq!(line.peek(), Ok(Some(message(2))));
        line.consume();
        other.write_all(&one[..5]).expect("sent");
        drop(other);
        assert_eq!(line.peek(), Err(Errno::PIPE), "the rest never comes");
    }

    #[test]
    fn the_end_of_the_stream_is_an_error() {
        let (line, other) = UnixStream::pair().expect("a pair");
        drop(other);
        let mut line = Line::from(OwnedFd::from(line));
        assert_eq!(line.peek(), Err(Errno::PIPE));
    }
}
