//! A connection with a peer outside of the lab, from a router's order to its end.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::flow::Flow;
use super::pair::Identifier;
use crate::management::{Line, Message, Offer, Step};

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
    pub(super) line: Line,
}

/// The router's end.
impl AsFd for Call {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

impl Call {
    pub(super) fn new(node: u32, to: SocketAddr, stream: OwnedFd) -> Self {
        Self { node, to, of: None, state: State::Called, line: stream.into() }
    }

    /// Tells the router. False where it has gone.
    pub(super) fn tell(&self, step: Step, status: i32, offer: Offer) -> bool {
        self.line.send(&Message { step, status, offer })
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
