//! A TCP connection between routers, until it is the programs'. Nothing beyond what is due is read.
//!
//! Its options are those that every connection has at first, so that nothing is to be set back when a program waits for it. It need
//! not wait: each call says so (`MSG_DONTWAIT`). And messages leave at once without `TCP_NODELAY`: each answers the one before, so
//! none is on its way that Nagle's algorithm (RFC 896) could wait for. The one that does not, a question, comes behind its
//! connection's first message, which the kernel acknowledges at once (`tcp_event_data_recv`, `net/ipv4/tcp_input.c`): only on a
//! connection that has just been made it waits for the rest of a round trip.

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
use super::{ChannelError, Hello, Message, ProtocolError, Session};
use crate::sync::timespec;

/// Whatever says that the other side did something: spoke, closed its half, or is gone.
pub(super) const ACTIVITY: PollFlags =
    PollFlags::IN.union(PollFlags::RDHUP).union(PollFlags::HUP).union(PollFlags::ERR);

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// The message that is due, as far as it came.
    received: [u8; LONGEST],
    length: usize,
}

/// What came of a step of a handshake.
pub(super) enum Progress {
    /// It goes on.
    More(Handshake),
    /// It is done: this is the other side.
    Done(Session, Hello),
}

impl Connection {
    /// Begins to connect; the connection is there, or has failed, when it can be written to. What is said then fails as
    /// connecting did.
    pub(super) fn connect(to: SocketAddr) -> io::Result<Self> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let connection = Self::new(socket.into());
        connection.stream.set_nonblocking(false)?;
        Ok(connection)
    }

    /// Over a connection that is there.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, received: [0; LONGEST], length: 0 }
    }

    /// Sends a message. There is always room: only what was not read yet is on its way, two messages at most.
    pub(super) fn send(&self, message: &Message) -> Result<(), ChannelError> {
        match send(&self.stream, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) if sent == message.len() => Ok(()),
            Ok(_) => Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Err(error) => Err(lost(error)),
        }
    }

    /// The next message, which is `wanted` bytes long; `None` while it is not all there.
    pub(super) fn receive(&mut self, wanted: usize) -> Result<Option<&[u8]>, ChannelError> {
        while self.length < wanted {
            match recv(&self.stream, &mut self.received[self.length..wanted], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(ChannelError::Gone),
                Ok((read, _)) => self.length += read,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(lost(error)),
            }
        }
        self.length = 0;
        Ok(Some(&self.received[..wanted]))
    }

    /// Goes on with a handshake, if the other side's message is there.
    pub(super) fn advance(&mut self, handshake: Handshake) -> Result<Progress, ChannelError> {
        let Some(message) = self.receive(handshake.wants())? else { return Ok(Progress::More(handshake)) };
        let next = handshake.take(message)?;
        self.answer(next)
    }

    /// Says what comes next in a handshake.
    pub(super) fn answer(&self, next: Next) -> Result<Progress, ChannelError> {
        match next {
            Next::More(handshake, message) => {
                self.send(&message)?;
                Ok(Progress::More(handshake))
            }
            Next::Done(session, hello, message) => {
                message.map_or(Ok(()), |message| self.send(&message))?;
                Ok(Progress::Done(session, hello))
            }
        }
    }

    /// Whether the other side neither spoke out of turn nor went.
    pub(super) fn is_silent(&self) -> bool {
        let mut this = [PollFd::new(&self.stream, ACTIVITY)];
        matches!(poll(&mut this, Some(&Timespec::default())), Ok(0))
    }

    /// Waits for the other side to do something. False: it did not, until `deadline`.
    pub(super) fn wait(&self, deadline: Instant) -> io::Result<bool> {
        loop {
            let mut this = [PollFd::new(&self.stream, ACTIVITY)];
            match poll(&mut this, Some(&timespec(deadline.saturating_duration_since(Instant::now())))) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether a connection stands on which nothing more is to be said.
    pub(super) fn check_silent(&mut self) -> Result<(), ChannelError> {
        self.receive(1)?.map_or(Ok(()), |_| Err(ProtocolError::OutOfOrder.into()))
    }

    /// Has the kernel see whether the other side is there, which is not said by what carries nothing: for half a minute at
    /// most it is not known that it cannot be reached.
    pub(super) fn keep_alive(&self) -> io::Result<()> {
        sockopt::set_tcp_keepidle(&self.stream, Duration::from_secs(15))?;
        sockopt::set_tcp_keepintvl(&self.stream, Duration::from_secs(5))?;
        sockopt::set_tcp_keepcnt(&self.stream, 3)?;
        Ok(sockopt::set_socket_keepalive(&self.stream, true)?)
    }

    /// The connection, for the programs.
    pub(super) fn release(self) -> TcpStream {
        self.stream
    }
}

impl AsFd for Connection {
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
