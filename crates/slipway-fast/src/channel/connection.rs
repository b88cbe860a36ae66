//! A TCP connection between routers, until programs get it. It reads nothing beyond the message that is due.
//!
//! The connection keeps a new socket's options, so nothing has to be set back while a program waits for it. Calls do not
//! block because each passes `MSG_DONTWAIT`. Messages leave at once without `TCP_NODELAY`: each answers the one before, so
//! Nagle's algorithm (RFC 896) has nothing to wait for. A request is the exception. It follows its connection's first
//! message, which the kernel acknowledges at once (`tcp_event_data_recv`, `net/ipv4/tcp_input.c`). So it waits only on a
//! new connection, for the rest of a round trip.

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

/// Events that show activity of the other side: it sent data, closed its half, or is gone.
pub(super) const ACTIVITY: PollFlags =
    PollFlags::IN.union(PollFlags::RDHUP).union(PollFlags::HUP).union(PollFlags::ERR);

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// The received part of the message that is due.
    received: [u8; LONGEST],
    length: usize,
}

/// The result of a step of a handshake.
pub(super) enum Progress {
    /// The handshake goes on.
    More(Handshake),
    /// The handshake is done. `Hello` is the other side's.
    Done(Session, Hello),
}

impl Connection {
    /// Begins to connect. Once the socket is writable, the connection is there or has failed. A send then fails with the
    /// error of `connect(2)`.
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

    /// A connection over this stream.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, received: [0; LONGEST], length: 0 }
    }

    /// Sends a message. There is always room: at most two messages are unread at a time.
    pub(super) fn send(&self, message: &Message) -> Result<(), ChannelError> {
        match send(&self.stream, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) if sent == message.len() => Ok(()),
            Ok(_) => Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Err(error) => Err(lost(error)),
        }
    }

    /// Receives the next message, which is `wanted` bytes long. `None` while a part is missing.
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

    /// Advances a handshake, if the other side's message is there.
    pub(super) fn advance(&mut self, handshake: Handshake) -> Result<Progress, ChannelError> {
        let Some(message) = self.receive(handshake.wants())? else { return Ok(Progress::More(handshake)) };
        let next = handshake.take(message)?;
        self.answer(next)
    }

    /// Sends the next message of a handshake.
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

    /// Whether the other side is there, and has sent nothing out of turn.
    pub(super) fn is_silent(&self) -> bool {
        let mut this = [PollFd::new(&self.stream, ACTIVITY)];
        matches!(poll(&mut this, Some(&Timespec::default())), Ok(0))
    }

    /// Waits until `deadline` for activity of the other side. False where there was none.
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

    /// Checks that the other side has neither closed the connection nor sent anything.
    pub(super) fn check_silent(&mut self) -> Result<(), ChannelError> {
        self.receive(1)?.map_or(Ok(()), |_| Err(ProtocolError::OutOfOrder.into()))
    }

    /// Turns TCP keep-alive on, because an idle connection does not show that its peer is gone. The kernel notices an
    /// unreachable peer within half a minute.
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

/// Maps an error of a socket. A reset shows that the peer was killed.
fn lost(error: Errno) -> ChannelError {
    match error {
        Errno::CONNRESET | Errno::PIPE => ChannelError::Gone,
        _ => ChannelError::Io(error.into()),
    }
}
