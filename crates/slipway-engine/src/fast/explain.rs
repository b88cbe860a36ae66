//! Which way each TCP socket of a process takes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_protocol};
use rustix::net::{AddressFamily, SocketAddrAny, getpeername, getsockname, ipproto};
use serde::Serialize;
use slipway_fast::address_map::AddressMap;
use slipway_fast::metadata::{MetadataStore, Path};
use slipway_fast::reason::Reason;
use slipway_fast::unsupported_options::PathSupport;
use slipway_fast::walk;
use slipway_lab::id::{List, NodeId};
use slipway_lab::model::Lab;
use slipway_sys::bpf::SocketStorage;

use super::error::{FastError, says};
use super::{FastReport, setup};
use crate::state::NodeState;

/// A TCP socket as its program sees it, and what it really is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Socket {
    /// The number by which the process has it.
    pub descriptor: i32,
    /// As `getsockname(2)` says.
    pub local: Option<SocketAddr>,
    /// As `getpeername(2)` says.
    pub peer: Option<SocketAddr>,
    /// Where its data goes.
    pub way: SocketRoute,
    /// Why; empty where it goes without saying.
    pub why: String,
}

/// Where a socket's data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketRoute {
    /// The fast path within the host.
    Pair,
    /// The fast path by the host's own network.
    Tcp,
    /// The container network.
    Native,
    /// It listens. What it accepts may come either way.
    Listening,
    /// Nowhere yet.
    Unconnected,
}

/// The node that a process is in, and its TCP sockets.
pub(crate) fn explain(
    lab: &Lab,
    states: &List<NodeId, NodeState>,
    pid: i32,
    metadata: OwnedFd,
    report: &FastReport,
) -> Result<(NodeId, Vec<Socket>), FastError> {
    let doing = format!("look at process {pid}");
    let node = node_of(states, pid).map_err(says(&doing))?;
    let node = node.ok_or_else(|| FastError::NoNode { pid, lab: lab.name.clone() })?;
    let metadata = SocketStorage::try_from(metadata).map(MetadataStore::new).map_err(says(&doing))?;
    let counted: Vec<Reason> = report
        .routers
        .iter()
        .filter(|router| router.router.host == lab.nodes[node].host)
        .flat_map(|router| router.status.iter().flat_map(|status| status.connections.native.keys().copied()))
        .collect();
    Ok((node, sockets(&setup::address_map(lab), pid, &metadata, &counted).map_err(says(&doing))?))
}

/// The node of a lab that a process is in.
pub(crate) fn node_of(states: &List<NodeId, NodeState>, pid: i32) -> io::Result<Option<NodeId>> {
    let its = walk::namespace(pid)?;
    let is_its = |init: i32| walk::namespace(init).is_ok_and(|namespace| namespace == its);
    Ok(states.position(|node| node.init.is_some_and(|init| is_its(init.pid))))
}

fn sockets(
    address_map: &AddressMap,
    pid: i32,
    metadata: &MetadataStore,
    counted: &[Reason],
) -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::new();
    walk::sockets(pid, |found| {
        let socket = found.copy().ok().flatten();
        sockets.extend(socket.and_then(|socket| look(address_map, found.number, &socket, metadata, counted)));
    })?;
    sockets.sort_by_key(|socket| socket.descriptor);
    Ok(sockets)
}

/// `None` for a socket that is none of TCP, and never was.
fn look(
    address_map: &AddressMap,
    descriptor: i32,
    socket: &OwnedFd,
    metadata: &MetadataStore,
    counted: &[Reason],
) -> Option<Socket> {
    if let Ok(Some(socket_metadata)) = metadata.of(socket) {
        let host = |address: SocketAddr| address_map.of(address.ip().to_canonical()).map(|place| place.host);
        let beside = host(socket_metadata.local) == host(socket_metadata.peer);
        let (way, why) = match socket_metadata.path {
            Path::Pair => (
                SocketRoute::Pair,
                "both ends are on this host; a write after the peer's close fails at once (EPIPE), and there is no Nagle: \
                 `exact: true` on the network gives TCP's",
            ),
            Path::Tcp if beside => (
                SocketRoute::Tcp,
                "both ends are on this host; a rule holds it back, or there are no pairs: the network is exact, or the kernel old",
            ),
            Path::Tcp => (SocketRoute::Tcp, "the other end is on another host"),
        };
        let (local, peer) = (Some(socket_metadata.local), Some(socket_metadata.peer));
        return Some(Socket { descriptor, local, peer, way, why: why.to_owned() });
    }
    let is_ip = matches!(socket_domain(socket), Ok(AddressFamily::INET | AddressFamily::INET6));
    if !is_ip || socket_protocol(socket) != Ok(Some(ipproto::TCP)) {
        return None;
    }
    let address = |any: SocketAddrAny| SocketAddr::try_from(any).ok();
    let local = getsockname(socket.as_fd()).ok().and_then(address);
    let peer = getpeername(socket.as_fd()).ok().flatten().and_then(address);
    let is_kept = metadata.on(socket).is_ok_and(|written| PathSupport::of(socket, &written).is_full());
    let unkept = || Reason::Options.to_string();
    let (way, why) = match peer {
        None if socket_acceptconn(socket) == Ok(true) && is_kept => (SocketRoute::Listening, String::new()),
        None if socket_acceptconn(socket) == Ok(true) => (SocketRoute::Listening, unkept()),
        None => (SocketRoute::Unconnected, if is_kept { String::new() } else { unkept() }),
        Some(_) if !is_kept => (SocketRoute::Native, unkept()),
        Some(peer) => (SocketRoute::Native, reason(address_map, local, peer, counted)),
    };
    Some(Socket { descriptor, local, peer, way, why })
}

/// Why a connection is on the container network: known from its addresses, or one of what its router has counted.
fn reason(address_map: &AddressMap, local: Option<SocketAddr>, peer: SocketAddr, counted: &[Reason]) -> String {
    let place = |address: SocketAddr| address_map.of(address.ip().to_canonical());
    let (Some(there), Some(here)) = (place(peer), local.and_then(place)) else {
        return Reason::NotANode.to_string();
    };
    if there.node == here.node {
        return Reason::NotANode.to_string();
    }
    if address_map.is_ruling(there.node) || address_map.is_ruling(here.node) {
        return Reason::Capabilities.to_string();
    }
    let others = counted.iter().filter(|&&reason| !matches!(reason, Reason::NotANode | Reason::NotTcp | Reason::Udp));
    let others: Vec<String> = others.map(ToString::to_string).collect();
    if others.is_empty() {
        "accepted from, or connected by, a program that no router heard".to_owned()
    } else {
        others.join(", or ")
    }
}
