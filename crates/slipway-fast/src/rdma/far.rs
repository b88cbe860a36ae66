//! Connections with nodes of other hosts, and with peers outside of the lab. Each has a stream to the other router or to the
//! gateway, whose end is the end of the connection.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;

use super::connections::{Caller, Connections, Elsewhere, Peer, Wish};
use super::{Rdma, State};
use crate::admission::Admission;
use crate::peers::{Managed, Peers};
use crate::rdma_wire::{Kind, Line, Message, Offer, Step};
use crate::sync::lock;

/// Most connections with nodes of other hosts, each with a descriptor of the router's.
const MOST: usize = 4096;
/// Numbers of links, in an epoll set with the inode numbers of channels.
const FIRST: u64 = 1 << 63;

/// A stream to another router, for one connection.
#[derive(Debug)]
pub(super) struct Link {
    line: Line,
    /// The identifier here; none until the client has asked.
    id: Result<u32, Caller>,
}

impl Link {
    /// Whether its identifier here is still there, or none has come yet.
    pub(super) fn is_kept(&self, connections: &Connections) -> bool {
        self.id.as_ref().map_or(true, |id| connections.has(*id))
    }
}

/// Whether an event is about a link, not about a channel.
pub(super) fn is_link(number: u64) -> bool {
    number >= FIRST
}

impl Rdma {
    /// Asks another router, or the gateway, for a connection. Its program has an event with the result, in time.
    pub(crate) fn call(self: &Arc<Self>, peers: &Peers, wish: Wish) {
        let Wish { id, at, client, server, offer } = wish;
        let managed = match (at, &self.outside) {
            (Elsewhere::Host(host), _) => peers.manage(host, client, server),
            (Elsewhere::Outside(node), Some(outside)) => {
                outside.call(node, server).map_or(Managed::Unreachable, Managed::Accepted)
            }
            (Elsewhere::Outside(_), None) => Managed::Unreachable,
        };
        let mut state = lock(&self.state);
        let kept = match managed {
            Managed::Accepted(stream) => self.keep(&mut state, stream, Ok(id)).map_err(|errno| -errno.raw_os_error()),
            Managed::Refused => Err(-Errno::ACCESS.raw_os_error()),
            Managed::Unreachable => Err(-Errno::HOSTUNREACH.raw_os_error()),
        };
        match kept {
            // A program that has left meanwhile hears of nothing: its link is closed.
            Ok(link) if state.connections.set_link(id, link) => {
                state.send(link, &Message { step: Step::Request, status: 0, offer });
            }
            Ok(link) => drop(state.links.remove(&link)),
            Err(status) => {
                state.connections.over(id);
                state.tell_of(id, Kind::Unreachable, status);
            }
        }
    }

    /// Takes the stream of another router, whose node asks for a connection. False where there is no room for it.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        stream: OwnedFd,
        client: SocketAddr,
        server: SocketAddr,
        admission: Admission,
    ) -> bool {
        let mut state = lock(&self.state);
        self.keep(&mut state, stream, Err(Caller { client, server, admission })).is_ok()
    }

    fn keep(self: &Arc<Self>, state: &mut State, stream: OwnedFd, id: Result<u32, Caller>) -> Result<u64, Errno> {
        if state.links.len() >= MOST {
            return Err(Errno::NOBUFS);
        }
        let ends = self.ends().map_err(|_| Errno::NOMEM)?;
        let number = FIRST + state.next_link;
        state.next_link += 1;
        epoll::add(&ends.epoll, &stream, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        state.links.insert(number, Link { line: stream.into(), id });
        Ok(number)
    }
}

impl State {
    /// Sends a message by a link. A link that has ended is noticed where it is heard.
    fn send(&mut self, link: u64, message: &Message) {
        if let Some(link) = self.links.get(&link) {
            let _ = link.line.send(message);
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
            _ => return drop(self.links.remove(&link)),
        };
        self.send(link, &Message { step, status, offer });
        if step == Step::Rejected {
            self.links.remove(&link);
        }
    }

    /// Hears another router.
    pub(super) fn hear(&mut self, number: u64) {
        loop {
            let Some(link) = self.links.get_mut(&number) else { return };
            match link.line.receive() {
                Ok(None) => return,
                Ok(Some(message)) => {
                    if !self.heed(number, message) {
                        return self.lose(number);
                    }
                }
                Err(_) => return self.lose(number),
            }
        }
    }

    /// Acts on a message. False where it is none that may come now.
    fn heed(&mut self, number: u64, message: Message) -> bool {
        let Message { step, status, offer } = message;
        let Some(link) = self.links.get_mut(&number) else { return false };
        let id = match (&link.id, step) {
            (Err(_), Step::Request) => return self.request(number, offer),
            (Ok(id), _) => *id,
            _ => return false,
        };
        let Some(kind) = self.connections.heed(id, step, offer) else { return false };
        self.tell_of(id, kind, status);
        if kind == Kind::Rejected {
            self.links.remove(&number);
        }
        true
    }

    /// A client of another host says what it offers.
    fn request(&mut self, number: u64, offer: Offer) -> bool {
        let Some(Link { id: Err(caller), .. }) = self.links.get(&number) else { return false };
        match self.connections.requested(number, caller, offer) {
            Ok((channel, listener, event)) => {
                if let Some(link) = self.links.get_mut(&number) {
                    link.id = Ok(event.id);
                }
                self.tell(channel, listener, event);
            }
            Err(status) => self.tell_peer(Peer::Far(number), Kind::Rejected, status, Offer::default()),
        }
        true
    }

    /// Another router, or its program, has left.
    fn lose(&mut self, number: u64) {
        let Some(Link { id: Ok(id), .. }) = self.links.remove(&number) else { return };
        if let Some((kind, status)) = self.connections.lost(id) {
            self.tell_of(id, kind, status);
        }
    }
}
