//! The identifiers of connections, and the steps that each takes (`rdma_cm(7)`; `drivers/infiniband/core/cma.c`).

mod far;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::io::Errno;
use slipway_lab::id::{HostId, NodeId};

use crate::address_map::{AddressMap, Interface};
use crate::admission::{Admission, Rules};
use crate::rdma_wire::{Attributes, Event, IN_REJECTION, IN_REPLY, IN_REQUEST, Kind, Offer, Route, guid};

/// Most identifiers of a node.
const MOST: usize = 8192;
/// Ports that are given out where a program asks for any (`net.ipv4.ip_local_port_range`).
const ANY: std::ops::RangeInclusive<u16> = 32768..=60999;
/// `RDMA_PS_TCP` (`include/uapi/rdma/rdma_user_cm.h`): reliable connections. Others are not managed.
const TCP: u16 = 0x0106;
/// `IB_CM_REJ_INVALID_SERVICE_ID` and `IB_CM_REJ_CONSUMER_DEFINED` (`include/rdma/ib_cm.h`).
const NO_LISTENER: i32 = 8;
const BY_PROGRAM: i32 = 28;

/// The step that an identifier has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    New,
    Resolved,
    Routed,
    Listening,
    /// A listener's, whose program has yet to answer.
    Requested,
    /// A client's, which waits for an answer.
    Requesting,
    /// A client's, whose program has yet to acknowledge.
    Answered,
    /// A server's, which waits for that.
    Accepted,
    Connected,
    Over,
}

/// The other side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// An identifier of this host.
    Near(u32),
    /// A link to the router of another host.
    Far(u64),
}

/// A client's wish for a connection with another host's node.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(super) id: u32,
    pub(super) host: HostId,
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    pub(super) offer: Offer,
}

/// A client of another host, before it has said what it offers.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    pub(super) admission: Admission,
}

/// The result of asking for a connection.
#[derive(Debug)]
pub(super) enum Asked {
    /// The listener's channel, its identifier, and the event there.
    Near(u64, u32, Event),
    /// The client's own event.
    Refused(Kind, i32),
    /// Another host's router has to be asked.
    Far(Wish),
}

/// An identifier.
#[derive(Debug)]
struct Identifier {
    node: NodeId,
    channel: u64,
    uid: u64,
    port_space: u16,
    step: Step,
    own: Option<SocketAddr>,
    to: Option<SocketAddr>,
    /// Whether its address came from a program: a key of the bound ports.
    is_bound: bool,
    peer: Option<Peer>,
    /// The peer's offer, as this side reads it.
    theirs: Offer,
    /// The client's, once it was admitted.
    admission: Option<Admission>,
    /// Events that its program has taken.
    reported: u32,
}

/// All identifiers of a host.
#[derive(Debug)]
pub(super) struct Connections {
    host: HostId,
    address_map: Arc<AddressMap>,
    rules: Arc<Rules>,
    all: HashMap<u32, Identifier>,
    /// Identifiers by the port that they have.
    ports: BTreeMap<(NodeId, u16), u32>,
    next: u32,
    next_port: u16,
}

/// News for a peer: its identifier, the event, and the status.
pub(super) type News = (Peer, Kind, i32);

impl Connections {
    pub(super) fn new(host: HostId, address_map: Arc<AddressMap>, rules: Arc<Rules>) -> Self {
        let (all, ports) = Default::default();
        Self { host, address_map, rules, all, ports, next: 0, next_port: *ANY.start() }
    }

    pub(super) fn channel(&self, id: u32) -> Option<u64> {
        self.all.get(&id).map(|one| one.channel)
    }

    pub(super) fn of_channel(&self, channel: u64) -> Vec<u32> {
        self.all.iter().filter(|(_, one)| one.channel == channel).map(|(&id, _)| id).collect()
    }

    pub(super) fn reported(&mut self, id: u32) {
        if let Some(one) = self.all.get_mut(&id) {
            one.reported = one.reported.wrapping_add(1);
        }
    }

    pub(super) fn create(&mut self, node: NodeId, channel: u64, uid: u64, port_space: u16) -> Result<u32, Errno> {
        if self.all.values().filter(|one| one.node == node).count() >= MOST {
            return Err(Errno::NOMEM);
        }
        let one = Identifier {
            node,
            channel,
            uid,
            port_space,
            step: Step::New,
            own: None,
            to: None,
            is_bound: false,
            peer: None,
            theirs: Offer::default(),
            admission: None,
            reported: 0,
        };
        Ok(self.add(one))
    }

    fn add(&mut self, one: Identifier) -> u32 {
        while self.all.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.all.insert(id, one);
        id
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<u32> {
        let one = self.all.remove(&id)?;
        if let (true, Some(own)) = (one.is_bound, one.own) {
            self.ports.remove(&(one.node, own.port()));
        }
        Some(one.reported)
    }

    fn at(&mut self, id: u32, steps: &[Step]) -> Result<&mut Identifier, Errno> {
        self.all.get_mut(&id).filter(|one| steps.contains(&one.step)).ok_or(Errno::INVAL)
    }

    /// Gives an identifier an address. All port spaces of a node share one table of ports.
    pub(super) fn bind(&mut self, id: u32, address: SocketAddr) -> Result<(), Errno> {
        let one = self.at(id, &[Step::New])?;
        let node = one.node;
        if one.own.is_some() {
            return Err(Errno::INVAL);
        }
        let ip = address.ip();
        if !ip.is_unspecified() && self.address_map.of(ip).is_none_or(|place| place.node != node) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        self.take_port(id, node, address)
    }

    fn take_port(&mut self, id: u32, node: NodeId, address: SocketAddr) -> Result<(), Errno> {
        let port = match address.port() {
            0 => self.free_port(node).ok_or(Errno::ADDRNOTAVAIL)?,
            port if self.ports.contains_key(&(node, port)) => return Err(Errno::ADDRINUSE),
            port => port,
        };
        let one = self.all.get_mut(&id).ok_or(Errno::NOENT)?;
        self.ports.insert((node, port), id);
        (one.own, one.is_bound) = (Some(SocketAddr::new(address.ip(), port)), true);
        Ok(())
    }

    fn free_port(&mut self, node: NodeId) -> Option<u16> {
        for _ in ANY {
            let port = self.next_port;
            self.next_port = if port == *ANY.end() { *ANY.start() } else { port + 1 };
            if !self.ports.contains_key(&(node, port)) {
                return Some(port);
            }
        }
        None
    }

    pub(super) fn listen(&mut self, id: u32, _backlog: u32) -> Result<(), Errno> {
        let one = self.at(id, &[Step::New])?;
        if one.port_space != TCP {
            return Err(Errno::OPNOTSUPP);
        }
        if one.own.is_none() {
            let node = one.node;
            self.take_port(id, node, SocketAddr::from(([0, 0, 0, 0], 0)))?;
        }
        self.at(id, &[Step::New])?.step = Step::Listening;
        Ok(())
    }

    /// Looks for an address. The inner error is the event's.
    pub(super) fn resolve(
        &mut self,
        id: u32,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Result<Result<(), Errno>, Errno> {
        let one = self.at(id, &[Step::New])?;
        let (node, own) = (one.node, one.own);
        let Some(place) = self.address_map.of(to.ip()) else { return Ok(Err(Errno::HOSTUNREACH)) };
        let Some(near) = self.address_map.address(node, place.network, to.is_ipv6()) else {
            return Ok(Err(Errno::NETUNREACH));
        };
        if own.is_none() {
            let asked = from.filter(|from| !from.ip().is_unspecified());
            let address = asked.unwrap_or_else(|| SocketAddr::new(near, from.map_or(0, |from| from.port())));
            if self.address_map.of(address.ip()).is_none_or(|place| place.node != node) {
                return Err(Errno::ADDRNOTAVAIL);
            }
            self.take_port(id, node, address)?;
        }
        let one = self.at(id, &[Step::New])?;
        if let Some(own) = one.own.as_mut().filter(|own| own.ip().is_unspecified()) {
            own.set_ip(near);
        }
        (one.to, one.step) = (Some(to), Step::Resolved);
        Ok(Ok(()))
    }

    pub(super) fn resolve_route(&mut self, id: u32) -> Result<(), Errno> {
        self.at(id, &[Step::Resolved])?.step = Step::Routed;
        Ok(())
    }

    pub(super) fn route(&self, id: u32) -> Option<Route> {
        let one = self.all.get(&id)?;
        let has_device = one.own.is_some_and(|own| !own.ip().is_unspecified());
        let is_resolved = !matches!(one.step, Step::New | Step::Resolved | Step::Listening);
        Some(Route { from: one.own, to: one.to, guid: has_device.then(|| guid(one.node)), is_resolved })
    }

    /// Asks a listener, here or on another host.
    pub(super) fn connect(&mut self, id: u32, offer: &Offer) -> Result<Asked, Errno> {
        let one = self.at(id, &[Step::Routed])?;
        if !offer.is_valid || offer.private.len() > IN_REQUEST {
            return Err(Errno::INVAL);
        }
        if one.port_space != TCP {
            return Err(Errno::OPNOTSUPP);
        }
        let (Some(own), Some(to), node) = (one.own, one.to, one.node) else { return Err(Errno::INVAL) };
        let Some(place) = self.address_map.of(to.ip()) else {
            return Ok(Asked::Refused(Kind::Unreachable, unreachable()));
        };
        let Ok(admission) = self.rules.admits(node, place, to.port()) else {
            return Ok(Asked::Refused(Kind::Unreachable, -Errno::ACCESS.raw_os_error()));
        };
        let theirs = offer.seen(IN_REQUEST);
        if place.host != self.host {
            let one = self.at(id, &[Step::Routed])?;
            (one.step, one.admission) = (Step::Requesting, Some(admission));
            return Ok(Asked::Far(Wish { id, host: place.host, client: own, server: to, offer: theirs }));
        }
        let Ok((channel, listener, event)) = self.ask(place, (own, to), Peer::Near(id), theirs, None) else {
            return Ok(Asked::Refused(Kind::Rejected, NO_LISTENER));
        };
        let one = self.at(id, &[Step::Routed])?;
        (one.step, one.peer, one.admission) = (Step::Requesting, Some(Peer::Near(event.id)), Some(admission));
        Ok(Asked::Near(channel, listener, event))
    }

    /// Makes an identifier for a request at a listener of this host. Gives the listener's channel, its identifier, and the event
    /// there; or the reason of a rejection.
    fn ask(
        &mut self,
        place: Interface,
        (client, server): (SocketAddr, SocketAddr),
        peer: Peer,
        theirs: Offer,
        admission: Option<Admission>,
    ) -> Result<(u64, u32, Event), i32> {
        let fits = |one: &&Identifier| {
            let is_there = |at: SocketAddr| at.ip().is_unspecified() || at.ip() == server.ip();
            one.step == Step::Listening && one.own.is_some_and(is_there)
        };
        let listener = *self.ports.get(&(place.node, server.port())).ok_or(NO_LISTENER)?;
        let found = self.all.get(&listener).filter(fits).ok_or(NO_LISTENER)?;
        let (channel, uid) = (found.channel, found.uid);
        let child = Identifier {
            node: place.node,
            channel,
            uid,
            port_space: TCP,
            step: Step::Requested,
            own: Some(server),
            to: Some(client),
            is_bound: false,
            peer: Some(peer),
            theirs: theirs.clone(),
            admission,
            reported: 0,
        };
        let id = self.add(child);
        Ok((channel, listener, Event { uid, id, kind: Kind::ConnectRequest, status: 0, offer: theirs }))
    }

    /// Accepts a request, or acknowledges that it was accepted. Gives the peer, and the event there.
    pub(super) fn accept(&mut self, id: u32, uid: u64, offer: &Offer) -> Result<(Peer, Kind, Offer), Errno> {
        let one = self.at(id, &[Step::Requested, Step::Answered])?;
        let (peer, next, of_peer, kind) = if one.step == Step::Requested {
            if !offer.is_valid || offer.private.len() > IN_REPLY {
                return Err(Errno::INVAL);
            }
            one.uid = uid;
            (one.peer, Step::Accepted, Step::Answered, Kind::ConnectResponse)
        } else {
            (one.peer, Step::Connected, Step::Connected, Kind::Established)
        };
        one.step = next;
        let peer = peer.ok_or(Errno::NOTCONN)?;
        let seen = if kind == Kind::ConnectResponse { offer.seen(IN_REPLY) } else { Offer::default() };
        if let Peer::Near(id) = peer {
            let other = self.at(id, &[Step::Requesting, Step::Accepted])?;
            other.step = of_peer;
            if kind == Kind::ConnectResponse {
                other.theirs = seen.clone();
            }
        }
        Ok((peer, kind, seen))
    }

    /// Rejects a request. Gives the client.
    pub(super) fn reject(&mut self, id: u32, private: Vec<u8>) -> Result<(Peer, Offer), Errno> {
        if private.len() > IN_REJECTION {
            return Err(Errno::INVAL);
        }
        let one = self.at(id, &[Step::Requested, Step::Answered])?;
        one.step = Step::Over;
        let peer = one.peer.take().ok_or(Errno::NOTCONN)?;
        let seen = Offer { private, ..Offer::default() }.seen(IN_REJECTION);
        if let Peer::Near(id) = peer {
            let other = self.all.get_mut(&id).ok_or(Errno::NOTCONN)?;
            (other.step, other.peer, other.theirs) = (Step::Over, None, seen.clone());
        }
        Ok((peer, seen))
    }

    /// Leaves a connection on whatever step it is. Gives the news for the peer; `None` where there is none to tell.
    pub(super) fn leave(&mut self, id: u32) -> Option<News> {
        let one = self.all.get_mut(&id)?;
        let was = one.step;
        let peer = one.peer.take()?;
        one.step = Step::Over;
        if let Peer::Near(id) = peer {
            let other = self.all.get_mut(&id)?;
            (other.step, other.peer, other.theirs) = (Step::Over, None, Offer::default());
        }
        Some(match was {
            Step::Requested => (peer, Kind::Rejected, BY_PROGRAM),
            Step::Requesting | Step::Answered => (peer, Kind::Unreachable, unreachable()),
            _ => (peer, Kind::Disconnected, 0),
        })
    }

    /// An event about an identifier, and the channel that it goes to.
    pub(super) fn event(&self, id: u32, kind: Kind, status: i32) -> Option<(u64, Event)> {
        let one = self.all.get(&id)?;
        let has_offer = matches!(kind, Kind::ConnectResponse | Kind::Rejected);
        let offer = if has_offer { one.theirs.clone() } else { Offer::default() };
        Some((one.channel, Event { uid: one.uid, id, kind, status, offer }))
    }

    pub(super) fn attributes(&self, id: u32) -> Option<Attributes> {
        let one = self.all.get(&id)?;
        // A queue pair is made ready for a connection from the first step on.
        Some(Attributes {
            peer: one.to?.ip(),
            peer_queue_pair: one.theirs.queue_pair,
            own_index: 0,
            responder_resources: one.theirs.responder_resources,
            initiator_depth: one.theirs.initiator_depth,
            retry_count: 7,
            rnr_retry_count: one.theirs.rnr_retry_count.min(7),
        })
    }

    pub(super) fn migrate(&mut self, id: u32, channel: u64) -> Option<u32> {
        let one = self.all.get_mut(&id)?;
        one.channel = channel;
        Some(one.reported)
    }

    /// Clients whose connections are no longer allowed.
    pub(super) fn forbidden(&self) -> Vec<u32> {
        let is_forbidden = |one: &Identifier| {
            one.admission.is_some_and(|admission| matches!(self.rules.recheck(&admission), Some(Err(_))))
        };
        self.all.iter().filter(|(_, one)| one.peer.is_some() && is_forbidden(one)).map(|(&id, _)| id).collect()
    }
}

/// The status of a peer that is out of reach.
fn unreachable() -> i32 {
    -Errno::HOSTUNREACH.raw_os_error()
}
