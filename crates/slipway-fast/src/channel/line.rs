//! A TCP connection between routers, until it is the programs'. Nothing beyond what is due is read.
//!
//! Its options are those that every connection has at first, so that nothing is to be set back when a program waits for it. It need
//! not wait: each call says so (`MSG_DONTWAIT`). And messages leave at once without `TCP_NODELAY`: each answers the one before, so
//! none is on its way that Nagle's algorithm (RFC 896) could wait for.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with, sockopt,
};

use super::handshake::{Handshake, Next};
use super::session::LONGEST;
use super::{ChannelError, Hello, Message, Session};
use crate::sync::timespec;

/// Whatever says that the other side did something: spoke, closed its half, or is gone.
pub(super) const SOMETHING: PollFlags =
    PollFlags::IN.union(PollFlags::RDHUP).union(PollFlags::HUP).union(PollFlags::ERR);

#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
    /// The message that is due, as far as it came.
    heard: [u8; LONGEST],
    length: usize,
}

impl Line {
    /// Begins to connect; the connection is there, or has failed, when it can be written to.
    pub(super) fn connect(to: SocketAddr) -> io::Result<Self> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Self::over(socket.into())),
            Err(error) => Err(error.into()),
        }
    }

    /// Over a connection whose descriptor blocks.
    pub(super) fn over(stream: TcpStream) -> Self {
        Self { stream, heard: [0; LONGEST], length: 0 }
    }

    /// What came of [`connect`](Self::connect).
    pub(super) fn connected(&self) -> io::Result<()> {
        sockopt::socket_error(&self.stream)??;
        self.stream.set_nonblocking(false)
    }

    /// Sends a message. There is always room: only one is on its way at a time.
    pub(super) fn say(&self, message: &Message) -> Result<(), ChannelError> {
        match send(&self.stream, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) if sent == message.len() => Ok(()),
            Ok(_) => Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Err(error) => Err(lost(error)),
        }
    }

    /// The next message, which is `wanted` bytes long; `None` while it is not all there.
    pub(super) fn hear(&mut self, wanted: usize) -> Result<Option<&[u8]>, ChannelError> {
        while self.length < wanted {
            match recv(&self.stream, &mut self.heard[self.length..wanted], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(ChannelError::Gone),
                Ok((read, _)) => self.length += read,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(lost(error)),
            }
        }
        self.length = 0;
        Ok(Some(&self.heard[..wanted]))
    }

    /// Whether the other side neither spoke out of turn nor went.
    pub(super) fn is_quiet(&self) -> bool {
        let mut this = [PollFd::new(&self.stream, SOMETHING)];
        matches!(poll(&mut this, Some(&Timespec::default())), Ok(0))
    }

    /// Waits for the other side to do something. False: it did not, until `deadline`.
    pub(super) fn wait(&self, deadline: Instant) -> io::Result<bool> {
        loop {
            let mut this = [PollFd::new(&self.stream, SOMETHING)];
            match poll(&mut this, Some(&timespec(deadline.saturating_duration_since(Instant::now())))) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The connection for the programs.
    pub(super) fn release(self) -> TcpStream {
        self.stream
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A reset is how a peer that was killed says that it is gone.
fn lost(error: Errno) -> ChannelError {
    match error {
        Errno::CONNRESET | Errno::PIPE => ChannelError::Gone,
        _ => ChannelError::Io(error.into()),
    }
}

/// A line whose ends do not know each other yet.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) line: Line,
    handshake: Option<Handshake>,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
}

impl Greeting {
    pub(super) fn new(line: Line, handshake: Handshake, limit: Duration) -> Self {
        let since = Instant::now();
        Self { line, handshake: Some(handshake), since, deadline: since + limit }
    }

    /// Goes on as far as the other side's messages are there. Once it gave a session it is done.
    pub(super) fn step(&mut self) -> Result<Option<(Session, Hello)>, ChannelError> {
        while let Some(handshake) = self.handshake.take() {
            let Some(message) = self.line.hear(handshake.wants())? else {
                self.handshake = Some(handshake);
                break;
            };
            match handshake.take(message)? {
                Next::More(handshake, answer) => {
                    self.handshake = Some(handshake);
                    self.line.say(&answer)?;
                }
                Next::Done(session, hello, answer) => {
                    answer.map_or(Ok(()), |answer| self.line.say(&answer))?;
                    return Ok(Some((session, hello)));
                }
            }
        }
        Ok(None)
    }
}
