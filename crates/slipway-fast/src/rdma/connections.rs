//! The identifiers of connections, and the steps that each takes (`rdma_cm(7)`; `drivers/infiniband/core/cma.c`).

mod addresses;
mod between;
mod groups;
mod later;
mod resume;
mod table;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustix::io::Errno;
use slipway_lab::id::{HostId, NodeId};

use super::held::Left;
pub(super) use super::identifier::{Caller, Identifier, Peer};
use super::identifier::{Step, TCP, UDP};
use super::outside::Outside;
use crate::address_map::{AddressMap, Interface};
use crate::admission::{Admission, Rules};
use crate::rdma_wire::{Event, IN_LOOKED_UP, IN_LOOKUP, IN_REJECTION, IN_REPLY, IN_REQUEST, Kind, Offer, USUAL_KEY};
use crate::reason::Reason;
use crate::records::Records;
use addresses::{ANY, is_any};
use table::Identifiers;

/// Most identifiers of a node.
const MOST: usize = 8192;
/// `IB_CM_REJ_INVALID_SERVICE_ID` and `IB_CM_REJ_CONSUMER_DEFINED` (`include/rdma/ib_cm.h`).
const NO_LISTENER: i32 = 8;
const BY_PROGRAM: i32 = 28;
/// `IB_SIDR_UNSUPPORTED` and `IB_SIDR_REJECT`: the same for datagrams.
const NO_LISTENER_FOR_DATAGRAMS: i32 = 1;
const BY_PROGRAM_OF_DATAGRAMS: i32 = 2;

/// The place of a peer that this router does not serve.
#[derive(Debug, Clone, Copy)]
pub(super) enum Elsewhere {
    /// Another host of the lab.
    Host(HostId),
    /// Outside of the lab. The node is the one that asks.
    Outside(NodeId),
}

/// A client's wish for a connection with a peer elsewhere.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(super) id: u32,
    pub(super) place: Elsewhere,
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    pub(super) offer: Offer,
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
    /// It waits for a listener.
    Later,
}

/// The meaning of a message of another router.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// An event for the program.
    News(Kind),
    /// One that has come before: a router was killed before it noted that.
    Again,
    /// One that may not come now.
    Wrong,
}

/// All identifiers of a host.
#[derive(Debug)]
pub(super) struct Connections {
    host: HostId,
    address_map: Arc<AddressMap>,
    rules: Arc<Rules>,
    outside: Option<Arc<Outside>>,
    all: Identifiers,
    /// Identifiers by the port that they have.
    ports: BTreeMap<(NodeId, u16), u32>,
    /// Ports whose listeners have ended a moment ago.
    left: Left,
    next_port: u16,
}

/// News for a peer: its identifier, the event, and the status.
pub(super) type News = (Peer, Kind, i32);

impl Connections {
    pub(super) fn new(
        host: HostId,
        address_map: Arc<AddressMap>,
        rules: Arc<Rules>,
        outside: Option<Arc<Outside>>,
        records: Arc<Records>,
    ) -> Self {
        let (ports, left) = Default::default();
        let all = Identifiers::new(records);
        Self { host, address_map, rules, outside, all, ports, left, next_port: *ANY.start() }
    }

    pub(super) fn channel(&self, id: u32) -> Option<u64> {
        self.all.get(id).map(|one| one.channel)
    }

    pub(super) fn node(&self, id: u32) -> Option<NodeId> {
        self.all.get(id).map(|one| one.node)
    }

    /// The node with an address.
    pub(super) fn node_at(&self, address: SocketAddr) -> Option<NodeId> {
        self.address_map.of(address.ip()).map(|place| place.node)
    }

    /// Writes down what has changed, before others hear of it.
    pub(super) fn save(&mut self) {
        self.all.save();
    }

    pub(super) fn of_channel(&self, channel: u64) -> Vec<u32> {
        self.all.iter().filter(|(_, one)| one.channel == channel).map(|(id, _)| id).collect()
    }

    pub(super) fn reported(&mut self, id: u32) {
        if let Some(one) = self.all.get_mut(id) {
            one.reported = one.reported.wrapping_add(1);
        }
    }

    /// Makes an identifier for connections or datagrams of IP.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` for `InfiniBand`'s port space too. librdmacm tries it at first, and threads that come meanwhile send
    /// commands for `InfiniBand` where this one is granted (`ucma_set_af_ib_support`).
    pub(super) fn create(&mut self, node: NodeId, channel: u64, uid: u64, port_space: u16) -> Result<u32, Errno> {
        if !matches!(port_space, TCP | UDP) {
            return Err(Errno::PROTONOSUPPORT);
        }
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
            joined_by: None,
        };
        Ok(self.add(one))
    }

    fn add(&mut self, one: Identifier) -> u32 {
        // A number comes again after 2^32 others.
        let id = loop {
            let [.., a, b, c, d] = self.all.number().to_be_bytes();
            let id = u32::from_be_bytes([a, b, c, d]);
            if !self.all.has(id) {
                break id;
            }
        };
        self.all.insert(id, one);
        id
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<u32> {
        let one = self.all.remove(id)?;
        if one.is_for_datagrams() {
            self.all.retain(|member| member.joined_by != Some(id));
        }
        if let (true, Some(own)) = (one.is_bound, one.own) {
            self.ports.remove(&(one.node, own.port()));
            if one.step == Step::Listening {
                self.left.note((one.node, own.port()));
            }
        }
        Some(one.reported)
    }

    /// Whether a node may reach a peer outside of the lab.
    fn reaches_outside(&self, node: NodeId, peer: IpAddr) -> bool {
        self.outside.as_ref().is_some_and(|outside| outside.reaches(node, peer))
    }

    pub(super) fn has(&self, id: u32) -> bool {
        self.all.has(id)
    }

    fn at(&mut self, id: u32, steps: &[Step]) -> Result<&mut Identifier, Errno> {
        self.all.get_mut(id).filter(|one| steps.contains(&one.step)).ok_or(Errno::INVAL)
    }

    pub(super) fn listen(&mut self, id: u32, _backlog: u32) -> Result<(), Errno> {
        let one = self.at(id, &[Step::New])?;
        if one.own.is_none() {
            let node = one.node;
            self.take_port(id, node, SocketAddr::from(([0, 0, 0, 0], 0)))?;
        }
        self.at(id, &[Step::New])?.step = Step::Listening;
        Ok(())
    }

    /// Asks a listener, here or on another host.
    pub(super) fn connect(&mut self, id: u32, offer: &Offer) -> Result<Asked, Errno> {
        let one = self.at(id, &[Step::Routed])?;
        let (space, room) = (one.port_space, if one.is_for_datagrams() { IN_LOOKUP } else { IN_REQUEST });
        if !offer.is_valid || offer.private.len() > room {
            return Err(Errno::INVAL);
        }
        let (kind, status) = one.refusal(NO_LISTENER, NO_LISTENER_FOR_DATAGRAMS);
        let (Some(own), Some(to), node) = (one.own, one.to, one.node) else { return Err(Errno::INVAL) };
        let Some(place) = self.address_map.of(to.ip()) else {
            if space == UDP || !self.reaches_outside(node, to.ip()) {
                return Ok(Asked::Refused(Kind::Unreachable, unreachable()));
            }
            self.at(id, &[Step::Routed])?.step = Step::Requesting;
            let place = Elsewhere::Outside(node);
            return Ok(Asked::Far(Wish { id, place, client: own, server: to, offer: offer.seen(room) }));
        };
        let Ok(admission) = self.rules.admits(node, place, to.port()) else {
            return Ok(Asked::Refused(Kind::Unreachable, -Errno::ACCESS.raw_os_error()));
        };
        // A request of datagrams tells nothing but its private data (`cma_ib_req_handler`).
        let told = if space == UDP { &Offer { private: offer.private.clone(), ..Offer::default() } } else { offer };
        let theirs = told.seen(room);
        if place.host != self.host {
            if space == UDP {
                return Ok(Asked::Refused(Kind::Unreachable, unreachable()));
            }
            let one = self.at(id, &[Step::Routed])?;
            (one.step, one.admission) = (Step::Requesting, Some(admission));
            let place = Elsewhere::Host(place.host);
            return Ok(Asked::Far(Wish { id, place, client: own, server: to, offer: theirs }));
        }
        let Ok((channel, listener, event)) = self.ask(place, (own, to), Peer::Near(id), theirs, None, space) else {
            if self.left.is_recent((place.node, to.port())) {
                self.at(id, &[Step::Routed])?.step = Step::Requesting;
                return Ok(Asked::Later);
            }
            return Ok(Asked::Refused(kind, status));
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
        space: u16,
    ) -> Result<(u64, u32, Event), i32> {
        let fits = |one: &&Identifier| {
            let is_there = |at: SocketAddr| is_any(at.ip()) || at.ip() == server.ip();
            one.step == Step::Listening && one.port_space == space && one.own.is_some_and(is_there)
        };
        let listener = *self.ports.get(&(place.node, server.port())).ok_or(NO_LISTENER)?;
        let found = self.all.get(listener).filter(fits).ok_or(NO_LISTENER)?;
        let (channel, uid) = (found.channel, found.uid);
        let child = Identifier {
            node: place.node,
            channel,
            uid,
            port_space: space,
            step: Step::Requested,
            own: Some(server),
            to: Some(client),
            is_bound: false,
            peer: Some(peer),
            theirs: theirs.clone(),
            admission,
            reported: 0,
            joined_by: None,
        };
        let id = self.add(child);
        let datagrams_to = (space == UDP).then_some(client.ip());
        Ok((channel, listener, Event { uid, id, kind: Kind::ConnectRequest, status: 0, offer: theirs, datagrams_to }))
    }

    /// Accepts a request, or acknowledges that it was accepted. Gives the peer, and the event there.
    pub(super) fn accept(&mut self, id: u32, uid: u64, offer: &Offer) -> Result<(Peer, Kind, Offer), Errno> {
        let one = self.at(id, &[Step::Requested, Step::Answered])?;
        let is_for_datagrams = one.is_for_datagrams();
        let (peer, next, of_peer, kind) = if is_for_datagrams {
            // The reply to a lookup is the last step, and neither side hears when the other goes.
            if one.step != Step::Requested || offer.private.len() > IN_LOOKED_UP {
                return Err(Errno::INVAL);
            }
            one.uid = uid;
            (one.peer.take(), Step::Connected, Step::Connected, Kind::Established)
        } else if one.step == Step::Requested {
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
            if is_for_datagrams {
                other.peer = None;
                other.theirs = offer.seen(IN_LOOKED_UP);
                other.theirs.qkey = if offer.qkey == 0 { USUAL_KEY } else { offer.qkey };
            } else if kind == Kind::ConnectResponse {
                other.theirs = seen.clone();
            }
        }
        Ok((peer, kind, seen))
    }

    /// Rejects a request. Gives the client, and its news.
    pub(super) fn reject(&mut self, id: u32, private: Vec<u8>) -> Result<(Peer, (Kind, i32), Offer), Errno> {
        if private.len() > IN_REJECTION {
            return Err(Errno::INVAL);
        }
        let one = self.at(id, &[Step::Requested, Step::Answered])?;
        one.step = Step::Over;
        let news = one.refusal(BY_PROGRAM, BY_PROGRAM_OF_DATAGRAMS);
        let peer = one.peer.take().ok_or(Errno::NOTCONN)?;
        let seen = Offer { private, ..Offer::default() }.seen(IN_REJECTION);
        if let Peer::Near(id) = peer {
            let other = self.all.get_mut(id).ok_or(Errno::NOTCONN)?;
            (other.step, other.peer, other.theirs) = (Step::Over, None, seen.clone());
        }
        Ok((peer, news, seen))
    }

    /// Leaves a connection on whatever step it is. Gives the news for the peer; `None` where there is none to tell.
    pub(super) fn leave(&mut self, id: u32) -> Option<News> {
        let one = self.all.get_mut(id)?;
        let was = one.step;
        let (rejected, reason) = one.refusal(BY_PROGRAM, BY_PROGRAM_OF_DATAGRAMS);
        let peer = one.peer.take()?;
        one.step = Step::Over;
        // A peer whose node's power is gone is there no more, and nobody has told this side.
        if let Peer::Near(id) = peer
            && let Some(other) = self.all.get_mut(id)
        {
            (other.step, other.peer, other.theirs) = (Step::Over, None, Offer::default());
        }
        Some(match was {
            Step::Requested => (peer, rejected, reason),
            Step::Requesting | Step::Answered => (peer, Kind::Unreachable, unreachable()),
            _ => (peer, Kind::Disconnected, 0),
        })
    }

    /// An event about an identifier, and the channel that it goes to.
    pub(super) fn event(&self, id: u32, kind: Kind, status: i32) -> Option<(u64, Event)> {
        let one = self.all.get(id)?;
        let is_established = one.is_for_datagrams() && kind == Kind::Established;
        let has_offer = is_established || matches!(kind, Kind::ConnectResponse | Kind::Rejected);
        let offer = if has_offer { one.theirs.clone() } else { Offer::default() };
        let datagrams_to = one.to.filter(|_| is_established).map(|to| to.ip());
        Some((one.channel, Event { uid: one.uid, id, kind, status, offer, datagrams_to }))
    }

    pub(super) fn migrate(&mut self, id: u32, channel: u64) -> Option<u32> {
        let one = self.all.get_mut(id)?;
        one.channel = channel;
        Some(one.reported)
    }

    /// Clients whose connections are no longer allowed. Conditions of links end none: a device's manager hears nothing of them,
    /// and queue pairs fail by themselves.
    pub(super) fn forbidden(&self) -> Vec<u32> {
        let is_forbidden = |one: &Identifier| {
            let decided = one.admission.and_then(|admission| self.rules.recheck(&admission));
            matches!(decided, Some(Err(reason)) if reason != Reason::Conditions)
        };
        self.all.iter().filter(|(_, one)| one.peer.is_some() && is_forbidden(one)).map(|(id, _)| id).collect()
    }
}

/// The status of a peer that is out of reach.
fn unreachable() -> i32 {
    -Errno::HOSTUNREACH.raw_os_error()
}
