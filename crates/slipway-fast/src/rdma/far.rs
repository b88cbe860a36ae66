//! Connections with nodes of other hosts, and with peers outside of the lab. Each has a stream to the other router or to the
//! gateway, whose end is the end of the connection.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use slipway_lab::id::NodeId;

use super::connections::{Caller, Connections, Elsewhere, Heard, Peer, Wish};
use super::saved::Saved;
use super::{Rdma, Standing, State};
use crate::admission::Admission;
use crate::peers::{Managed, Peers};
use crate::rdma_wire::{Kind, Line, Message, Offer, Step};
use crate::records::Record;

/// Most connections with nodes of other hosts, each with a descriptor of the router's.
const MOST: usize = 4096;
/// Numbers of links, in an epoll set with the inode numbers of channels.
const FIRST: u64 = 1 << 63;

/// A stream to another router, for one connection.
#[derive(Debug)]
pub(super) struct Link {
    /// Dropped before the stream.
    record: Option<Record>,
    line: Line,
    number: u64,
    /// The node here.
    pub(super) node: NodeId,
    /// The identifier here; none until the client has asked.
    id: Result<u32, Caller>,
    /// The message to send.
    unsent: Option<Message>,
    /// Whether this side leaves, once that is sent.
    is_over: bool,
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

impl Link {
    pub(super) fn new(
        number: u64,
        node: NodeId,
        stream: OwnedFd,
        id: Result<u32, Caller>,
        record: Option<Record>,
    ) -> Self {
        let link = Self { record, line: stream.into(), number, node, id, unsent: None, is_over: false };
        link.save();
        link
    }

    /// A link of the router before, with the message that it was to send, and whether it was to leave.
    pub(super) fn resume(
        number: u64,
        node: NodeId,
        stream: OwnedFd,
        id: Result<u32, Caller>,
        record: Record,
        (unsent, is_over): (Option<Message>, bool),
    ) -> Self {
        Self { record: Some(record), line: stream.into(), number, node, id, unsent, is_over }
    }

    pub(super) fn save(&self) {
        let Self { number, node, ref id, ref record, ref unsent, is_over, .. } = *self;
        if let Some(record) = record {
            let unsent = Cow::Borrowed(unsent);
            record.write(&Saved::Link { number, node, id: Cow::Borrowed(id), unsent, is_over });
        }
    }

    /// Sends the message that is to be sent. False where this side leaves. A link that has ended is noticed where it is heard.
    pub(super) fn flush(&mut self) -> bool {
        if let Some(message) = self.unsent.take() {
            let _ = self.line.send(&message);
            self.save();
        }
        !self.is_over
    }

    /// Takes the message away that was acted on.
    pub(super) fn consume(&mut self) {
        self.line.consume();
    }

    /// Whether it is no link of this node, or its identifier is still there, or none has come yet.
    pub(super) fn is_kept(&self, of: NodeId, connections: &Connections) -> bool {
        self.node != of || self.id.as_ref().map_or(true, |id| connections.has(*id))
    }
}

/// Whether an event is about a link, not about a channel.
pub(super) fn is_link(number: u64) -> bool {
    number >= FIRST
}

impl Rdma {
    /// Asks another router, or the gateway, for a connection. Its program has an event with the result, in time.
    pub(crate) fn call(self: &Arc<Self>, peers: &Peers, at: Standing<'_>, wish: Wish) {
        let Wish { id, place, client, server, offer } = wish;
        let managed = match (place, &self.outside) {
            (Elsewhere::Host(host), _) => peers.manage(host, client, server),
            (Elsewhere::Outside(node), Some(outside)) => {
                outside.call(node, server).map_or(Managed::Unreachable, Managed::Accepted)
            }
            (Elsewhere::Outside(_), None) => Managed::Unreachable,
        };
        let mut state = self.state();
        let kept = match managed {
            Managed::Accepted(stream) => {
                self.keep(&mut state, client, stream, Ok(id)).map_err(|errno| -errno.raw_os_error())
            }
            Managed::Refused => Err(-Errno::ACCESS.raw_os_error()),
            Managed::Unreachable => Err(-Errno::HOSTUNREACH.raw_os_error()),
        };
        match kept {
            // A program that has left meanwhile hears of nothing: its link is closed.
            Ok(link) if state.connections.set_link(id, link) => {
                state.send(link, Message { step: Step::Request, status: 0, offer });
            }
            Ok(link) => drop(state.links.remove(&link)),
            Err(status) => {
                state.connections.over(id);
                state.tell_of(id, Kind::Unreachable, status);
            }
        }
        state.did(at, 0);
    }

    /// Takes the stream of another router, whose node asks for a connection. False where there is no room for it.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        stream: OwnedFd,
        client: SocketAddr,
        server: SocketAddr,
        admission: Admission,
    ) -> bool {
        self.keep(&mut self.state(), server, stream, Err(Caller { client, server, admission })).is_ok()
    }

    /// Keeps a stream about a connection of the node here that has an address.
    fn keep(
        self: &Arc<Self>,
        state: &mut State,
        own: SocketAddr,
        stream: OwnedFd,
        id: Result<u32, Caller>,
    ) -> Result<u64, Errno> {
        if state.links.len() >= MOST {
            return Err(Errno::NOBUFS);
        }
        let node = state.connections.node_at(own).ok_or(Errno::ADDRNOTAVAIL)?;
        let ends = self.ends().map_err(|_| Errno::NOMEM)?;
        let number = FIRST + state.records.number();
        epoll::add(&ends.epoll, &stream, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        let record = state.records.add_with(node, stream.as_fd());
        state.links.insert(number, Link::new(number, node, stream, id, record));
        Ok(number)
    }
}

impl State {
    /// Has a link send a message.
    fn send(&mut self, number: u64, message: Message) {
        if let Some(link) = self.links.get_mut(&number) {
            link.unsent = Some(message);
            self.due.links.push(number);
        }
    }

    /// Leaves a connection with another host.
    pub(super) fn close_link(&mut self, number: u64) {
        if let Some(link) = self.links.get_mut(&number) {
            link.is_over = true;
            self.due.links.push(number);
        }
    }

    /// Tells a peer of news: by its channel, or by its router.
    pub(super) fn tell_peer(&mut self, peer: Peer, kind: Kind, status: i32, offer: Offer) {
        let link = match peer {
            Peer::Near(id) => return self.tell_of(id, kind, status),
            Peer::Far(link) => link,
        };
        let step = match kind {
            Kind::ConnectResponse => Step::Accepted,
            Kind::Established => Step::Established,
            Kind::Rejected => Step::Rejected,
            // The side that leaves closes the stream.
            _ => return self.close_link(link),
        };
        self.send(link, Message { step, status, offer });
        if step == Step::Rejected {
            self.close_link(link);
        }
    }

    /// Hears another router: its next message, or its end.
    pub(super) fn hear(&mut self, number: u64) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let is_kept = match link.line.peek() {
            Ok(None) => return,
            Ok(Some(message)) => self.heed(number, message),
            Err(_) => false,
        };
        if is_kept { self.due.heard.push(number) } else { self.lose(number) }
    }

    /// Acts on a message. False where it is none that may come now.
    fn heed(&mut self, number: u64, message: Message) -> bool {
        let Message { step, status, offer } = message;
        let Some(link) = self.links.get_mut(&number) else { return false };
        let id = match (&link.id, step) {
            (Err(_), Step::Request) => return self.request(number, offer),
            // A router that was killed leaves it to the next to take a message away, or to send it.
            (Ok(_), Step::Request) => return true,
            (Ok(id), _) => *id,
            _ => return false,
        };
        match self.connections.heed(id, step, offer) {
            Heard::News(kind) => {
                self.tell_of(id, kind, status);
                if kind == Kind::Rejected {
                    self.close_link(number);
                }
                true
            }
            Heard::Again => true,
            Heard::Wrong => false,
        }
    }

    /// A client of another host says what it offers.
    fn request(&mut self, number: u64, offer: Offer) -> bool {
        let Some(Link { id: Err(caller), .. }) = self.links.get(&number) else { return false };
        match self.connections.requested(number, caller, offer) {
            Ok((channel, listener, event)) => {
                if let Some(link) = self.links.get_mut(&number) {
                    link.id = Ok(event.id);
                    self.due.links.push(number);
                }
                self.tell(channel, listener, event);
            }
            Err(status) => self.tell_peer(Peer::Far(number), Kind::Rejected, status, Offer::default()),
        }
        true
    }

    /// Another router, or its program, has left.
    fn lose(&mut self, number: u64) {
        if let Some(Link { id: Ok(id), .. }) = self.links.remove(&number) {
            self.hear_of_the_end(id);
        }
    }

    /// The peer of an identifier has left.
    pub(super) fn hear_of_the_end(&mut self, id: u32) {
        if let Some((kind, status)) = self.connections.lost(id) {
            self.tell_of(id, kind, status);
        }
    }
}
