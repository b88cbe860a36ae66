//! How servers notice connections: a blocked accept gets one, or a wake-up socket announces it at the listener.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::io::Errno;

use slipway_lab::id::NodeId;
use slipway_sys::notify::Call;
use slipway_sys::sockopt::{self, Name};

use crate::address::{canonical, shown};
use crate::address_map::AddressMap;
use crate::blocked_accepts::{BlockedAccepts, Expected, Offered, ReadyConnection};
use crate::emulation::Options;
use crate::furnish::{Furnisher, Kin, Like, changed};
use crate::journal::{Journal, Unaccepted};
use crate::listener_cache::ListenerCache;
use crate::metadata::{MetadataStore, Path, Role, SocketMetadata};
use crate::node_table::NodeTable;
use crate::pending::{Connection, Pending, PendingConnections, ServerEnd, Wakeup};
use crate::shares::{Share, Shares};
use crate::tree::Tree;
use crate::unsupported_options::PathSupport;
use crate::wakeup::{PATIENCE, WakeupSocket, WakeupSockets};

/// How long the router waits for more wake-up sockets; usually they take a millisecond.
const MORE_PATIENCE: Duration = Duration::from_millis(250);

/// The reason why a connection could not be announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnnounceError {
    /// Nobody listens.
    Refused,
    /// The listener's queue is full.
    Full,
    /// The two nodes have their share of waiting connections.
    Crowded,
    /// The kernel lacked descriptors or memory.
    Failed,
}

impl From<Errno> for AnnounceError {
    fn from(errno: Errno) -> Self {
        match errno {
            // The listener closed while it had the wake-up in its queue.
            Errno::CONNREFUSED | Errno::CONNRESET => Self::Refused,
            Errno::INPROGRESS | Errno::AGAIN | Errno::TIMEDOUT => Self::Full,
            _ => Self::Failed,
        }
    }
}

/// The way in which a server notices a connection.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most are for a call, and each is handed on at once")]
#[must_use]
pub(crate) enum Announced {
    /// A blocked accept of the server gets it.
    For(Handoff),
    /// The server comes for it by itself.
    Kept,
    /// A wake-up socket announces it.
    WokenUp,
}

/// Asks for more wake-up sockets.
pub(crate) struct More(pub(crate) Box<dyn Fn(NodeId, bool) + Send + Sync>);

impl fmt::Debug for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("More")
    }
}

pub(crate) const DEFERS: Name = Name { level: libc::IPPROTO_TCP, name: libc::TCP_DEFER_ACCEPT };

/// A connection for a call that waits for it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Handoff {
    pub(crate) tree: Arc<Tree>,
    pub(crate) blocked_accepts: Arc<BlockedAccepts>,
    pub(crate) call: Call,
    pub(crate) ready: ReadyConnection,
}

/// Brings connections to servers: the state of those that no program has accepted yet.
#[derive(Debug)]
pub(crate) struct Delivery {
    address_map: Arc<AddressMap>,
    furnisher: Arc<Furnisher>,
    metadata: Arc<MetadataStore>,
    nodes: Arc<NodeTable>,
    /// Connections in hand, for the next router.
    pub(crate) journal: Arc<Journal>,
    /// The listener that the kernel picks for an address.
    pub(crate) listener_cache: ListenerCache,
    /// Connections whose wake-up no program has accepted yet.
    pub(crate) pending: PendingConnections,
    /// Shares of the connections that the router may have in hand.
    shares: Arc<Shares>,
    wakeup_sockets: WakeupSockets,
    more: More,
}

impl Delivery {
    /// No connections, and room for `most` of them.
    pub(crate) fn new(
        address_map: Arc<AddressMap>,
        furnisher: Arc<Furnisher>,
        metadata: Arc<MetadataStore>,
        nodes: Arc<NodeTable>,
        journal: Arc<Journal>,
        most: usize,
        more: More,
    ) -> Self {
        let (listener_cache, pending) = Default::default();
        let (shares, wakeup_sockets) = (Shares::new(most), WakeupSockets::new(2 * most));
        Self { address_map, furnisher, metadata, nodes, journal, listener_cache, pending, shares, wakeup_sockets, more }
    }

    /// Forgets a node that has ended.
    pub(crate) fn forget(&self, node: NodeId) {
        self.wakeup_sockets.forget(node);
        self.listener_cache.forget(node);
    }

    /// Adds wake-up sockets of one family, made in the node's namespace: all of one request.
    pub(crate) fn add_wakeup_sockets(&self, node: NodeId, ipv6: bool, wakeup_sockets: Vec<WakeupSocket>) {
        self.wakeup_sockets.add(node, ipv6, wakeup_sockets);
    }

    /// Announces a connection to a server: to a current or expected call, or by a wake-up socket. The program may accept it
    /// before this returns.
    pub(crate) fn announce(&self, node: NodeId, mut connection: Connection) -> Result<Announced, AnnounceError> {
        self.charge(node, &mut connection)?;
        self.record(node, &mut connection);
        let blocked_accepts = self.nodes.blocked_accepts(node);
        let expected = blocked_accepts
            .and_then(|blocked_accepts| blocked_accepts.expects(&self.listener_cache, connection.server));
        self.announce_to(expected, node, connection)
    }

    /// Charges a connection to its nodes, unless it is charged already.
    fn charge(&self, node: NodeId, connection: &mut Connection) -> Result<(), AnnounceError> {
        if connection.share.is_none() {
            connection.share = Some(self.share(connection.client, node).ok_or(AnnounceError::Crowded)?);
        }
        Ok(())
    }

    /// A share of the router's connections in hand, for a connection to a node; `None` where the node has too many.
    pub(crate) fn share(&self, client: SocketAddr, node: NodeId) -> Option<Share> {
        self.shares.take(self.address_map.of(canonical(client).ip()).map_or(node, |at| at.node), node)
    }

    /// Like [`announce`](Self::announce), after the caller has looked for blocked accepts.
    pub(crate) fn announce_to(
        &self,
        expected: Option<Expected>,
        node: NodeId,
        mut connection: Connection,
    ) -> Result<Announced, AnnounceError> {
        self.charge(node, &mut connection)?;
        let connection = match expected {
            None => connection,
            Some(expected) => match self.hand_over(expected, connection) {
                Ok(announced) => return Ok(announced),
                Err(connection) => connection,
            },
        };
        let wakeup_socket = self.wakeup_socket(node, connection.server.is_ipv6()).ok_or(AnnounceError::Failed)?;
        self.wake_listener(node, connection, &wakeup_socket, PATIENCE)
            .map(|_| Announced::WokenUp)
            .map_err(|(error, _)| error)
    }

    /// Announces a connection that no call came for, by a wake-up socket that is free now. It waits for room in the listener's
    /// queue until `until`.
    ///
    /// # Errors
    /// Gives the connection back.
    pub(crate) fn wake_late(
        &self,
        node: NodeId,
        connection: Connection,
        until: Instant,
    ) -> Result<(), (AnnounceError, Box<Connection>)> {
        let patience = until.saturating_duration_since(Instant::now());
        match self.try_wakeup_socket(node, connection.server.is_ipv6()) {
            Some(wakeup_socket) => self.wake_listener(node, connection, &wakeup_socket, patience).map(drop),
            None => Err((AnnounceError::Failed, Box::new(connection))),
        }
    }

    /// Announces a connection from another host by a wake-up socket. `until` is how long it may wait for a socket, and for room
    /// in the listener's queue; `None`: not at all.
    ///
    /// # Errors
    /// Gives the connection back.
    pub(crate) fn wake_by(
        &self,
        node: NodeId,
        connection: Connection,
        until: Option<Instant>,
    ) -> Result<Wakeup, (AnnounceError, Box<Connection>)> {
        let ipv6 = connection.server.is_ipv6();
        let wakeup_socket =
            if until.is_some() { self.wakeup_socket(node, ipv6) } else { self.try_wakeup_socket(node, ipv6) };
        let patience = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        match wakeup_socket {
            Some(wakeup_socket) => self.wake_listener(node, connection, &wakeup_socket, patience),
            None => Err((AnnounceError::Failed, Box::new(connection))),
        }
    }

    /// Announces a connection by this wake-up socket.
    fn wake_listener(
        &self,
        node: NodeId,
        connection: Connection,
        wakeup_socket: &Arc<WakeupSocket>,
        patience: Duration,
    ) -> Result<Wakeup, (AnnounceError, Box<Connection>)> {
        let server = connection.server;
        let wakeup = self.pend(node, connection, wakeup_socket);
        let heard = wakeup_socket.wake(server, patience).map_err(AnnounceError::from).and_then(|()| {
            // A program that accepted it already has released the socket, which may announce another connection by now.
            let watched = self.pending.with(wakeup, |pending| self.watch(wakeup, &pending.connection, wakeup_socket));
            watched.unwrap_or(Ok(())).map_err(|_| AnnounceError::Failed)
        });
        match heard.map_err(|error| (error, self.withdraw(wakeup))) {
            Err((error, Some(connection))) => Err((error, Box::new(connection))),
            // A late acceptance counts too.
            _ => Ok(wakeup),
        }
    }

    /// Watches a wake-up for its end, and its connection for data.
    pub(crate) fn watch(
        &self,
        wakeup: Wakeup,
        connection: &Connection,
        wakeup_socket: &WakeupSocket,
    ) -> io::Result<()> {
        if let Some(blocked_accepts) = self.nodes.blocked_accepts(wakeup.node) {
            blocked_accepts.watch_wakeup(wakeup_socket, wakeup.number)?;
        }
        self.watch_data(wakeup, connection)
    }

    /// Watches for the client's data, where a listener may wait for that.
    pub(crate) fn watch_data(&self, wakeup: Wakeup, connection: &Connection) -> io::Result<()> {
        match (&connection.end, self.nodes.blocked_accepts(wakeup.node)) {
            (ServerEnd::There(end), Some(blocked_accepts)) => blocked_accepts.watch_data(end, wakeup.number),
            _ => Ok(()),
        }
    }

    /// Handles data from the client of the connection with this wake-up: the wake-up socket sends a byte.
    pub(crate) fn data_came(&self, wakeup: u64) {
        self.pending.send_byte(wakeup);
    }

    /// Takes a wake-up socket. Where all are in use, the router requests more and waits: a program that connects hundreds
    /// of times before its server accepts needs as many at once.
    fn wakeup_socket(&self, node: NodeId, ipv6: bool) -> Option<Arc<WakeupSocket>> {
        let until = Instant::now() + MORE_PATIENCE;
        loop {
            // Other threads may take the new ones first.
            match self.try_wakeup_socket(node, ipv6) {
                // The sockets requested now are for later threads.
                None if Instant::now() < until && self.wakeup_sockets.wait(node, ipv6, until) => {}
                taken => return taken,
            }
        }
    }

    /// Takes a wake-up socket without waiting.
    fn try_wakeup_socket(&self, node: NodeId, ipv6: bool) -> Option<Arc<WakeupSocket>> {
        self.wakeup_sockets.take(node, ipv6, || (self.more.0)(node, ipv6))
    }

    /// A socket made in the node, for queries only.
    pub(crate) fn node_socket(&self, node: NodeId, ipv6: bool) -> Option<Arc<WakeupSocket>> {
        self.wakeup_sockets.look(node, ipv6)
    }

    /// Ends a wake-up, and keeps its socket for the next.
    pub(crate) fn release(&self, node: NodeId, wakeup_socket: Arc<WakeupSocket>) {
        if let Some(blocked_accepts) = self.nodes.blocked_accepts(node) {
            blocked_accepts.unwatch(&wakeup_socket);
        }
        wakeup_socket.release();
        self.wakeup_sockets.put(node, wakeup_socket);
    }

    /// Keeps a connection until a program accepts its wake-up socket.
    pub(crate) fn pend(&self, node: NodeId, mut connection: Connection, wakeup_socket: &Arc<WakeupSocket>) -> Wakeup {
        self.record(node, &mut connection);
        connection.entry.iter().for_each(|entry| entry.set_wakeup_socket(Some(wakeup_socket.socket.as_fd())));
        let pending =
            Pending { connection, since: self.listener_cache.now(node), wakeup_socket: Arc::clone(wakeup_socket) };
        self.pending.add(node, pending)
    }

    /// Writes a connection into the recovery journal, once its end is here.
    pub(crate) fn record(&self, node: NodeId, connection: &mut Connection) {
        let Connection { entry: entry @ None, end: ServerEnd::There(end), path, flow, client, server, .. } = connection
        else {
            return;
        };
        let unaccepted = Unaccepted { node, path: *path, flow: *flow, client: *client, server: *server, handoff: None };
        *entry = self.journal.enter(&unaccepted, end.as_fd());
    }

    /// Takes a connection back; `None` where a program has accepted it.
    fn withdraw(&self, wakeup: Wakeup) -> Option<Connection> {
        let (connection, wakeup_socket) = self.pending.withdraw(wakeup)?.woken();
        self.release(wakeup.node, wakeup_socket);
        Some(connection)
    }

    pub(crate) fn take_pending(&self, node: NodeId, from: SocketAddr) -> Option<Pending> {
        self.pending.take(node, from)
    }

    /// Handles a wake-up that ended before a program accepted it: the listener is closed. The client sees its connection
    /// end.
    pub(crate) fn wakeup_ended(&self, wakeup: u64) {
        if let Some(wakeup) = self.pending.find(wakeup)
            && !self.nodes.is_silent(wakeup.node)
        {
            self.withdraw(wakeup);
        }
    }

    /// Drops connections that wait for programs of a node that starts anew. The node gets other wake-up sockets.
    pub(crate) fn drop_all_of(&self, node: NodeId) {
        self.pending.drop_all_of(node);
        if let Some(blocked_accepts) = self.nodes.blocked_accepts(node) {
            blocked_accepts.drop_all();
        }
    }

    /// A share for a connection that another router had in hand, even beyond the bound.
    pub(crate) fn keep_share(&self, client: SocketAddr, node: NodeId) -> Share {
        self.shares.keep(self.address_map.of(canonical(client).ip()).map_or(node, |at| at.node), node)
    }

    /// Gives a connection the listener's options, and hands it to a blocked accept, or keeps it for the next call.
    ///
    /// # Errors
    /// Returns the connection where a wake-up socket has to announce it.
    fn hand_over(&self, expected: Expected, connection: Connection) -> Result<Announced, Connection> {
        let Expected { node, cached, socket, room } = expected;
        let Connection { end: ServerEnd::There(end), path: Some(path), .. } = &connection else {
            return Err(connection);
        };
        let Some(blocked_accepts) = self.nodes.blocked_accepts(node) else { return Err(connection) };
        let Ok(stored) = self.metadata.on(&*socket) else { return Err(connection) };
        let changed = changed(&stored);
        let is_supported = PathSupport::of(&*socket, &stored).is_by(*path);
        if !is_supported || changed.is_some() && goes_by_packets(&blocked_accepts, &socket).unwrap_or(true) {
            return Err(connection);
        }
        let like = Like { socket: &socket, ipv6: cached.ipv6, kin: Kin::Listener, changed };
        if self.furnisher.furnish(node, like, end, server_metadata(&connection, *path, cached.ipv6)).is_err() {
            return Err(connection);
        }
        match blocked_accepts.offer(cached.cookie, ReadyConnection::new(node, cached.ipv6, connection), room) {
            Offered::Kept => Ok(Announced::Kept),
            Offered::Full(ready) => Err(ready.connection),
            Offered::For(tree, call, ready) => Ok(Announced::For(Handoff { tree, blocked_accepts, call, ready })),
        }
    }

    /// Connections that wait to be accepted.
    pub(crate) fn waiting(&self) -> usize {
        self.pending.count()
    }
}

/// Whether a listener's wake-ups depend on packets: on its clients' first data, which the router remembers per node, or on
/// a filter.
pub(crate) fn goes_by_packets(blocked_accepts: &BlockedAccepts, listening: &OwnedFd) -> io::Result<bool> {
    let defers = sockopt::int(listening, DEFERS)? != 0;
    if defers {
        blocked_accepts.defer();
    }
    Ok(defers || sockopt::has_filter(listening)?)
}

/// The metadata of a server's end, in the form of a socket of IPv6 or not.
pub(crate) fn server_metadata(connection: &Connection, path: Path, ipv6: bool) -> SocketMetadata {
    let [local, peer] = [connection.server, connection.client].map(|address| shown(address, ipv6));
    let (role, options) = (Role::Server, Options::default());
    let (flow, reported, unregistered) = (connection.flow, true, None);
    SocketMetadata { path, role, flow, local, peer, reported, options, unregistered }
}
