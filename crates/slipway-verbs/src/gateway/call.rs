//! A connection with a peer outside of the lab, from a router's order to its end.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::flow::Flow;
use super::pair::Identifier;
use crate::management::{LENGTH, Message, Offer, Step};

/// The way of a connection.
#[derive(Debug)]
pub(super) enum State {
    /// The router has to say which queue pair asks, and what it offers.
    Called,
    /// The kernel looks for the peer's address, and then for a route.
    Looking(Identifier, Offer),
    /// The peer has to answer.
    Asking(Flow),
    /// It is established.
    Open(Flow),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) node: u32,
    pub(super) to: SocketAddr,
    /// The node's queue pair, once the router has named it, and its program's session.
    pub(super) of: Option<(u64, u32)>,
    pub(super) state: State,
    stream: OwnedFd,
    received: [u8; LENGTH],
    length: usize,
}

/// The router's end.
impl AsFd for Call {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Call {
    pub(super) fn new(node: u32, to: SocketAddr, stream: OwnedFd) -> Self {
        Self { node, to, of: None, state: State::Called, stream, received: [0; LENGTH], length: 0 }
    }

    /// The next message of the router; none where a part is missing. An error is its end.
    pub(super) fn receive(&mut self) -> Result<Option<Message>, Errno> {
        loop {
            let room = self.received.get_mut(self.length..).unwrap_or_default();
            match recv(&self.stream, room, RecvFlags::DONTWAIT) {
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

    /// Tells the router, whose end has room for the few messages of a connection. False where it has gone.
    pub(super) fn tell(&self, step: Step, status: i32, offer: Offer) -> bool {
        let message = Message { step, status, offer }.write();
        let sent = send(&self.stream, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        sent.is_ok_and(|sent| sent == LENGTH)
    }

    /// The queues, once the device has a queue pair.
    pub(super) fn flow(&mut self) -> Option<&mut Flow> {
        match &mut self.state {
            State::Asking(flow) | State::Open(flow) => Some(flow),
            State::Called | State::Looking(..) => None,
        }
    }

    /// The queues of a connection that its program uses.
    pub(super) fn joined(&mut self) -> Option<&mut Flow> {
        self.flow().filter(|flow| flow.is_joined)
    }
}
