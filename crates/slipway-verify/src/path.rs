//! One path: a socket in the sender's network namespace, one in the receiver's.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;

use nix::sys::socket::{setsockopt, sockopt};
use serde::{Deserialize, Serialize};
use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::model::Lab;
use slipway_sys::ns::with_net;

use super::{VerifyError, failed};
use slipway_engine::condition::Place;
use slipway_engine::lab::Running;

/// Bytes of UDP payload of a packet in a train: with its headers the shortest frame that Ethernet has.
pub(super) const PACKET: usize = 22;
/// IPv4 and UDP headers, bytes.
pub(super) const HEADERS_IN_MTU: usize = 20 + 8;
/// Bytes of the headers, with Ethernet's.
pub(super) const HEADERS: usize = 14 + HEADERS_IN_MTU;
/// Bytes that may wait at a receiver: seconds of a train while the machine is busy.
const BUFFER: usize = 8 << 20;
/// Gateways on a way; a longer one goes in a circle.
const MOST_HOPS: usize = 32;

/// From where to where: a node's interface, and one of the next node, by positions, over every network in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// At least one.
    pub(super) hops: Vec<Hop>,
}

/// Over one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hop {
    pub(super) from: Place,
    pub(super) to: Place,
}

impl Route {
    /// The way from one node to another: over the first network that both are on, or else through gateways, as the nodes'
    /// routes have it.
    pub fn between(lab: &Lab, from: NodeId, to: NodeId) -> Result<Self, VerifyError> {
        let direct = |at: NodeId| hop(lab, at, to, |_| true);
        let hops = match direct(from) {
            Some(hop) => Some(vec![hop]),
            None => (0..lab.nodes[to].interfaces.len())
                .filter_map(|slot| through(lab, from, (to, slot)))
                .min_by_key(Vec::len),
        };
        hops.map(|hops| Self { hops }).ok_or_else(|| {
            let name = |node: NodeId| lab.nodes[node].name.clone();
            let (from, to) = (name(from), name(to));
            match lab.nodes.iter().find(|node| node.own_routes()) {
                Some(by) => VerifyError::Unknown { from, to, by: by.name.clone() },
                None => VerifyError::NoRoute { from, to },
            }
        })
    }

    /// The nodes at its ends, the sender first.
    #[must_use]
    pub fn ends(&self) -> (NodeId, NodeId) {
        (self.from().0, self.to().0)
    }

    /// Whether all of its places are in a lab, as a route from another process may not be.
    #[must_use]
    pub fn fits(&self, lab: &Lab) -> bool {
        let is_in = |&(node, slot): &Place| lab.nodes.get(node).is_some_and(|node| slot < node.interfaces.len());
        !self.hops.is_empty() && self.hops.iter().flat_map(|hop| [&hop.from, &hop.to]).all(is_in)
    }

    /// The interface at which the path begins.
    pub(super) fn from(&self) -> Place {
        self.hops[0].from
    }

    /// The interface at which the path ends.
    pub(super) fn to(&self) -> Place {
        self.hops[self.hops.len() - 1].to
    }
}

/// The way over a network that both nodes are on.
fn hop(lab: &Lab, from: NodeId, to: NodeId, on: impl Fn(NetworkId) -> bool) -> Option<Hop> {
    let slot_of =
        |network: NetworkId| lab.nodes[to].interfaces.iter().position(|interface| interface.network == network);
    let slots = lab.nodes[from].interfaces.iter().enumerate().filter(|(_, interface)| on(interface.network));
    let found = slots.into_iter().find_map(|(slot, interface)| Some((slot, slot_of(interface.network)?)));
    found.map(|(out, into)| Hop { from: (from, out), to: (to, into) })
}

/// The way to an interface on a network that the sender is not on. `None` where there is none. It is unknown, and so `None`,
/// where a node's own programs route.
fn through(lab: &Lab, from: NodeId, to: Place) -> Option<Vec<Hop>> {
    let target = &lab.nodes[to.0].interfaces[to.1];
    let address = IpAddr::V4(target.ipv4);
    let mut hops = Vec::new();
    let mut at = from;
    if lab.nodes[to.0].own_routes() {
        return None;
    }
    while hops.len() < MOST_HOPS {
        if lab.nodes[at].own_routes() {
            return None;
        }
        if let Some(last) = hop(lab, at, to.0, |network| network == target.network) {
            hops.push(last);
            return Some(hops);
        }
        let matching = lab.nodes[at].routes.iter().filter(|route| route.to.contains(&address));
        let via = matching.max_by_key(|route| route.to.prefix_len())?.via;
        let gateway = lab.nodes.position(|node| node.interfaces.iter().any(|of| IpAddr::V4(of.ipv4) == via))?;
        let next = hop(lab, at, gateway, |network| {
            lab.nodes[gateway].interfaces.iter().any(|of| of.network == network && IpAddr::V4(of.ipv4) == via)
        })?;
        hops.push(next);
        at = gateway;
    }
    None
}

/// Sockets at the ends of a route, as far as these are on this machine. The sender's is connected, and so is the receiver's,
/// which takes from the sender alone.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) sender: Option<UdpSocket>,
    pub(super) receiver: Option<UdpSocket>,
    /// The ends' addresses, the sender's first.
    addresses: [IpAddr; 2],
}

impl Path {
    pub(super) fn open(running: &Running, route: &Route) -> Result<Self, VerifyError> {
        let address = |(node, slot): (NodeId, usize)| IpAddr::V4(running.lab.nodes[node].interfaces[slot].ipv4);
        let bind = |at: Place| running.lab.has_here(at.0).then(|| bind(running, at, address(at))).transpose();
        let (receiver, sender) = (bind(route.to())?, bind(route.from())?);
        if let Some(receiver) = &receiver {
            prepare(receiver).map_err(failed("prepare a socket"))?;
        }
        Ok(Self { sender, receiver, addresses: [address(route.from()), address(route.to())] })
    }

    /// The ports of the ends that are here.
    pub(super) fn ports(&self) -> io::Result<[Option<u16>; 2]> {
        let port = |end: &Option<UdpSocket>| end.as_ref().map(|end| end.local_addr().map(|at| at.port())).transpose();
        Ok([port(&self.sender)?, port(&self.receiver)?])
    }

    /// Connects the ends that are here with the others, which have these ports.
    pub(super) fn join(&self, [from, to]: [Option<u16>; 2]) -> io::Result<()> {
        let [sender, receiver] = self.addresses;
        let join = |end: &Option<UdpSocket>, peer: IpAddr, port: Option<u16>| {
            let Some(end) = end else { return Ok(()) };
            let port = port.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the other end has no port"))?;
            end.connect(SocketAddr::new(peer, port))
        };
        join(&self.sender, receiver, to)?;
        join(&self.receiver, sender, from)
    }
}

/// Has a receiver tell when packets came and how many it had no room for.
fn prepare(receiver: &UdpSocket) -> io::Result<()> {
    receiver.set_nonblocking(true)?;
    setsockopt(receiver, sockopt::ReceiveTimestampns, &true)?;
    setsockopt(receiver, sockopt::RxqOvfl, &1)?;
    setsockopt(receiver, sockopt::RcvBufForce, &BUFFER).or_else(|_| setsockopt(receiver, sockopt::RcvBuf, &BUFFER))?;
    Ok(())
}

/// Bytes that the interfaces of a route take at once.
pub(super) fn mtu_of(running: &Running, route: &Route) -> usize {
    route.hops.iter().map(|hop| mtu(running, hop.from)).min().unwrap_or(1500) as usize
}

/// Bytes that an interface takes at once.
pub(super) fn mtu(running: &Running, (node, slot): Place) -> u32 {
    let network = running.lab.nodes[node].interfaces[slot].network;
    running.state.networks.get(network).map_or(1500, |made| made.mtu)
}

fn bind(running: &Running, (node, _): Place, address: IpAddr) -> Result<UdpSocket, VerifyError> {
    let pid = running.init(node)?.pid;
    let name = &running.lab.nodes[node].name;
    let net = File::open(format!("/proc/{pid}/ns/net")).map_err(failed(format!("enter node {name}")))?;
    let bound = with_net(net.as_fd(), || UdpSocket::bind(SocketAddr::new(address, 0)));
    bound.and_then(|bound| bound).map_err(failed(format!("open a socket in node {name}")))
}
