//! Live connections of the fast path, seen from outside, without help of routers or programs.
//!
//! The kernel lists TCP connections (`sock_diag(7)`), each with its metadata and its figures, whoever has its descriptors. Of
//! pairs of unix sockets the kernel lists neither, so they are looked for among the descriptors of nodes' programs ([`walk`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use slipway_lab::id::NodeId;
use slipway_sys::ns::with_net;
use slipway_sys::sock_diag::{TcpSocket, stored_tcp_sockets};

use crate::address::canonical;
use crate::address_map::AddressMap;
use crate::metadata::{MetadataStore, Path, Role, SocketMetadata};
use crate::walk;

/// A connection that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The connection's number, the same on all hosts.
    pub number: u64,
    /// The kind of connection.
    pub path: Path,
    /// The client's virtual address.
    pub client: SocketAddr,
    /// The server's.
    pub server: SocketAddr,
    /// The kernel's figures of it.
    pub figures: Figures,
}

/// The kernel's figures of a connection. Sent and received are by its client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Bytes sent, and acknowledged. TCP alone has this and the next three; some hundred bytes are the routers' own.
    pub sent: Option<u64>,
    /// Bytes received.
    pub received: Option<u64>,
    /// Round trip, smoothed, microseconds.
    pub rtt_us: Option<u32>,
    /// Recent rate from this end, bytes a second (`tcpi_delivery_rate`).
    pub rate: Option<u64>,
    /// Bytes sent and not yet read, both ways. Pairs alone have this.
    pub unread: Option<u64>,
}

impl Flow {
    /// The connection that a socket with this metadata is an end of.
    #[must_use]
    pub fn of(metadata: &SocketMetadata) -> Self {
        let [local, peer] = [metadata.local, metadata.peer].map(canonical);
        let (client, server) = match metadata.role {
            Role::Client => (local, peer),
            Role::Server => (peer, local),
        };
        let (number, path) = (metadata.number(), metadata.path);
        Self { number, path, client, server, figures: Figures::default() }
    }

    /// The nodes of the client and of the server; `None` where one of them has none of these addresses.
    #[must_use]
    pub fn nodes(&self, address_map: &AddressMap) -> Option<(NodeId, NodeId)> {
        Some((address_map.of(self.client.ip())?.node, address_map.of(self.server.ip())?.node))
    }

    fn measured(metadata: &SocketMetadata, socket: &TcpSocket) -> Self {
        // `struct tcp_info` (`include/uapi/linux/tcp.h`): a kernel that has not got a field ends before it.
        let word = |at: usize| socket.info.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        let long = |at: usize| socket.info.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        let (acknowledged, received) = (long(120), long(128));
        let (sent, received) = match metadata.role {
            Role::Client => (acknowledged, received),
            Role::Server => (received, acknowledged),
        };
        let figures = Figures { sent, received, rtt_us: word(68), rate: long(160), unread: None };
        Self { figures, ..Self::of(metadata) }
    }
}

/// The place to look for connections of a host's nodes.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The metadata of the lab's sockets.
    pub metadata: &'a MetadataStore,
    /// The PID namespaces of the nodes whose programs are looked at.
    pub namespaces: &'a BTreeSet<u64>,
    /// The host's network namespace.
    pub net: BorrowedFd<'a>,
}

impl Scope<'_> {
    /// The host's connections of TCP.
    pub(crate) fn tcp(&self) -> io::Result<Vec<(TcpSocket, SocketMetadata)>> {
        let stored = with_net(self.net, || stored_tcp_sockets(self.metadata.storage()))??;
        Ok(stored.into_iter().filter_map(|(socket, bytes)| Some((socket, SocketMetadata::read(&bytes)?))).collect())
    }

    /// Shows each live end of a pair that programs of these nodes have, once, except those among `seen`.
    pub(crate) fn pairs(
        &self,
        seen: &mut BTreeSet<u64>,
        mut each: impl FnMut(walk::HandedOutSocket),
    ) -> io::Result<()> {
        walk::handed_out(&walk::processes(self.namespaces)?, self.metadata, seen, |held| {
            if held.metadata.path == Path::Pair && !has_ended(&held.socket) {
                each(held);
            }
        })
    }
}

/// The connections of a host that live, by their number.
///
/// # Errors
/// When `/proc` cannot be read, or the kernel does not list sockets (`CONFIG_INET_DIAG`); takes root's capabilities.
pub fn look(scope: Scope<'_>) -> io::Result<BTreeMap<u64, Flow>> {
    let mut flows: BTreeMap<u64, Flow> = BTreeMap::new();
    scope.pairs(&mut BTreeSet::new(), |held| {
        let unread = rustix::io::ioctl_fionread(&held.socket).unwrap_or_default();
        let figures = &mut flows.entry(held.metadata.number()).or_insert_with(|| Flow::of(&held.metadata)).figures;
        figures.unread = Some(figures.unread.unwrap_or_default() + unread);
    })?;
    for (socket, metadata) in scope.tcp()? {
        // The client's end has the better figures; of some connections both ends are here.
        if metadata.role == Role::Client || !flows.contains_key(&metadata.number()) {
            flows.insert(metadata.number(), Flow::measured(&metadata, &socket));
        }
    }
    Ok(flows)
}

/// Whether both directions of a pair have been closed, by whomever.
fn has_ended(end: impl AsFd) -> bool {
    let mut end = [PollFd::new(&end, PollFlags::empty())];
    poll(&mut end, Some(&Timespec::default())).is_ok_and(|_| end[0].revents().contains(PollFlags::HUP))
}
