//! How servers hear of connections: by a call that waits for one, or by a knock at their listener.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::io::Errno;

use super::Router;
use crate::address::canonical;
use crate::call::{Expected, Handoff};
use crate::journal::{HandoffCall, Unaccepted};
use crate::limits::EndIdentity;
use crate::metadata::Role;
use crate::pending::{Connection, Pending, ServerEnd, Wakeup};
use crate::shares::Share;
use crate::sync::lock;
use crate::wakeup::{PATIENCE, WakeupSocket};

/// How long more sockets to knock with may take to come; usually it is a millisecond.
const MORE_PATIENCE: Duration = Duration::from_millis(250);

/// Why nobody heard of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnnounceError {
    /// Nobody listens.
    Refused,
    /// The listener's queue is full.
    Full,
    /// As many wait already as is its nodes' share.
    Crowded,
    /// The kernel lacked something.
    Failed,
}

impl From<Errno> for AnnounceError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::CONNREFUSED => Self::Refused,
            Errno::INPROGRESS | Errno::AGAIN | Errno::TIMEDOUT => Self::Full,
            _ => Self::Failed,
        }
    }
}

/// How a server hears of a connection.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most are for a call, and each is handed on at once")]
#[must_use]
pub(crate) enum Announced {
    /// A call of its waits, and is still to be given it.
    For(Handoff),
    /// It comes for it by itself.
    Kept,
    /// By a knock.
    WokenUp,
}

/// Asks for more sockets to knock with.
pub(super) struct More(pub(super) Box<dyn Fn(usize, bool) + Send + Sync>);

impl fmt::Debug for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("More")
    }
}

impl Router {
    /// Adds sockets to knock with, of one family, made in the node's namespace: all that come of what was asked for.
    pub fn add_wakeup_sockets(&self, node: usize, ipv6: bool, wakeup_sockets: Vec<WakeupSocket>) {
        self.wakeup_sockets.add(node, ipv6, wakeup_sockets);
    }

    /// Tells a server of a connection: finds a call that waits for it, or will, or knocks. It may be accepted before this returns.
    pub(crate) fn announce(&self, node: usize, mut connection: Connection) -> Result<Announced, AnnounceError> {
        self.charge(node, &mut connection)?;
        self.record(node, &mut connection);
        let blocked_accepts = self.blocked_accepts(node);
        let expected = blocked_accepts.and_then(|blocked_accepts| blocked_accepts.expects(self, connection.server));
        self.announce_to(expected, node, connection)
    }

    /// Charges a connection to its nodes, unless it is already.
    fn charge(&self, node: usize, connection: &mut Connection) -> Result<(), AnnounceError> {
        if connection.share.is_none() {
            connection.share = Some(self.share(connection.client, node).ok_or(AnnounceError::Crowded)?);
        }
        Ok(())
    }

    /// A share of what the router may have in hand, for a connection to a node; `None` where it has too many.
    pub(super) fn share(&self, client: SocketAddr, node: usize) -> Option<Share> {
        self.shares.take(self.address_map.of(canonical(client).ip()).map_or(node, |at| at.node), node)
    }

    /// The same, where it has been looked who waits for it.
    pub(crate) fn announce_to(
        &self,
        expected: Option<Expected>,
        node: usize,
        mut connection: Connection,
    ) -> Result<Announced, AnnounceError> {
        self.charge(node, &mut connection)?;
        let connection = match expected {
            None => connection,
            Some(expected) => match expected.hand_over(self, connection) {
                Ok(announced) => return Ok(announced),
                Err(connection) => connection,
            },
        };
        let wakeup_socket = self.wakeup_socket(node, connection.server.is_ipv6()).ok_or(AnnounceError::Failed)?;
        self.wake_listener(node, connection, &wakeup_socket, PATIENCE)
            .map(|_| Announced::WokenUp)
            .map_err(|(error, _)| error)
    }

    /// Knocks for a connection that nobody came for, without waiting for somebody to knock.
    ///
    /// # Errors
    /// Gives the connection back.
    pub(crate) fn wake_late(
        &self,
        node: usize,
        connection: Connection,
    ) -> Result<(), (AnnounceError, Box<Connection>)> {
        match self.try_wakeup_socket(node, connection.server.is_ipv6()) {
            Some(wakeup_socket) => self.wake_listener(node, connection, &wakeup_socket, PATIENCE).map(drop),
            None => Err((AnnounceError::Failed, Box::new(connection))),
        }
    }

    /// Knocks for a connection from another host. Until then it may wait for somebody to knock, and for room in the listener's
    /// queue; `None`: it waits for nothing.
    ///
    /// # Errors
    /// Gives the connection back.
    pub(crate) fn wake_by(
        &self,
        node: usize,
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

    /// Knocks for a connection.
    fn wake_listener(
        &self,
        node: usize,
        connection: Connection,
        wakeup_socket: &Arc<WakeupSocket>,
        patience: Duration,
    ) -> Result<Wakeup, (AnnounceError, Box<Connection>)> {
        let server = connection.server;
        let wakeup = self.pend(node, connection, wakeup_socket);
        let heard = wakeup_socket.wake(server, patience).map_err(AnnounceError::from).and_then(|()| {
            // Whoever accepted it already had it rest, and it may be out for another by now.
            let watched = self.pending.with(wakeup, |pending| self.watch(wakeup, &pending.connection, wakeup_socket));
            watched.unwrap_or(Ok(())).map_err(|_| AnnounceError::Failed)
        });
        match heard.map_err(|error| (error, self.withdraw(wakeup))) {
            Err((error, Some(connection))) => Err((error, Box::new(connection))),
            // One that was heard late was heard nevertheless.
            _ => Ok(wakeup),
        }
    }

    /// Hears of what becomes of a knock, and of its connection.
    fn watch(&self, wakeup: Wakeup, connection: &Connection, wakeup_socket: &WakeupSocket) -> io::Result<()> {
        if let Some(blocked_accepts) = self.blocked_accepts(wakeup.node) {
            blocked_accepts.watch_wakeup(wakeup_socket, wakeup.number)?;
        }
        self.watch_data(wakeup, connection)
    }

    /// Hears of what its client says, where a listener may wait for that.
    pub(super) fn watch_data(&self, wakeup: Wakeup, connection: &Connection) -> io::Result<()> {
        match (&connection.end, self.blocked_accepts(wakeup.node)) {
            (ServerEnd::There(end), Some(blocked_accepts)) => blocked_accepts.watch_data(end, wakeup.number),
            _ => Ok(()),
        }
    }

    /// The client of a connection has said something that this knock is for: so does who knocks.
    pub(crate) fn data_came(&self, wakeup: u64) {
        self.pending.send_byte(wakeup);
    }

    /// A socket to knock with. Where all are out, more are asked for and waited for: a program that connects hundreds of times before
    /// anything is accepted has as many out at once.
    fn wakeup_socket(&self, node: usize, ipv6: bool) -> Option<Arc<WakeupSocket>> {
        let until = Instant::now() + MORE_PATIENCE;
        loop {
            // Others may be quicker to take those that come.
            match self.try_wakeup_socket(node, ipv6) {
                // Those that were asked for now are for who comes next.
                None if Instant::now() < until && self.wakeup_sockets.wait(node, ipv6, until) => {}
                taken => return taken,
            }
        }
    }

    /// The same without waiting.
    fn try_wakeup_socket(&self, node: usize, ipv6: bool) -> Option<Arc<WakeupSocket>> {
        self.wakeup_sockets.take(node, ipv6, || (self.more.0)(node, ipv6))
    }

    /// A socket that was made in the node, to be asked and not to be used.
    pub(crate) fn node_socket(&self, node: usize, ipv6: bool) -> Option<Arc<WakeupSocket>> {
        self.wakeup_sockets.look(node, ipv6)
    }

    /// Ends a knock, and keeps who knocked for the next.
    pub(crate) fn release(&self, node: usize, wakeup_socket: Arc<WakeupSocket>) {
        if let Some(blocked_accepts) = self.blocked_accepts(node) {
            blocked_accepts.unwatch(&wakeup_socket);
        }
        wakeup_socket.release();
        self.wakeup_sockets.put(node, wakeup_socket);
    }

    /// Has a connection wait until it is accepted by this knock.
    fn pend(&self, node: usize, mut connection: Connection, wakeup_socket: &Arc<WakeupSocket>) -> Wakeup {
        self.record(node, &mut connection);
        connection.entry.iter().for_each(|entry| entry.set_wakeup_socket(Some(wakeup_socket.socket.as_fd())));
        let pending =
            Pending { connection, since: self.listener_cache.now(node), wakeup_socket: Arc::clone(wakeup_socket) };
        self.pending.add(node, pending)
    }

    /// Writes a connection down for the next router, once its end is here.
    pub(crate) fn record(&self, node: usize, connection: &mut Connection) {
        let Connection { entry: entry @ None, end: ServerEnd::There(end), path, flow, client, server, .. } = connection
        else {
            return;
        };
        let unaccepted = Unaccepted { node, path: *path, flow: *flow, client: *client, server: *server, handoff: None };
        *entry = self.journal.enter(&unaccepted, end.as_fd());
    }

    /// Goes on with a connection that the router before this one had in hand, by its server's end, and by who knocks for it.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`, and `getsockopt(2)` of a socket that is counted.
    pub(crate) fn take_up(
        self: &Arc<Self>,
        unaccepted: Unaccepted,
        end: OwnedFd,
        wakeup_socket: Option<OwnedFd>,
    ) -> io::Result<()> {
        let Unaccepted { node, path, flow, client, server, handoff } = unaccepted;
        if let (Some(path), Some(at)) = (path, self.address_map.of(client.ip())) {
            let identity = EndIdentity { role: Role::Server, client: at.node, server: node, port: server.port() };
            self.count_on(&end, identity, path)?;
        }
        // It had its share before.
        let share =
            Some(self.shares.keep(self.address_map.of(canonical(client).ip()).map_or(node, |at| at.node), node));
        let end = ServerEnd::There(end);
        let connection = Connection { share, entry: None, end, path, flow, client, server, number: None };
        if let Some(handoff) = handoff {
            lock(&self.unfinished).push((handoff, connection));
            return Ok(());
        }
        let Some(wakeup_socket) = wakeup_socket.and_then(|socket| WakeupSocket::still_pending(socket).ok()) else {
            self.redeliver(node, connection);
            return Ok(());
        };
        let wakeup_socket = Arc::new(wakeup_socket);
        // It is to hear of what becomes of the knock, and its programs come later.
        self.blocked_accepts_for(node)?;
        let wakeup = self.pend(node, connection, &wakeup_socket);
        let watch = |pending: &mut Pending| self.watch(wakeup, &pending.connection, &wakeup_socket);
        self.pending.with(wakeup, watch).unwrap_or(Ok(()))
    }

    /// What the router before this one was giving to programs of a tree.
    pub(super) fn handoffs_of(&self, tree: u64) -> Vec<(HandoffCall, Connection)> {
        lock(&self.unfinished).extract_if(.., |(handoff, _)| handoff.tree == tree).collect()
    }

    /// Tells a server of a connection whose client has it already, the first time or again. Where nobody listens, or the queue is full,
    /// it sees it end.
    pub(crate) fn redeliver(self: &Arc<Self>, node: usize, connection: Connection) {
        if let Ok(Announced::For(handoff)) = self.announce(node, connection) {
            handoff.complete(self);
        }
    }

    /// Takes a connection back; `None` where it has been accepted.
    fn withdraw(&self, wakeup: Wakeup) -> Option<Connection> {
        let (connection, wakeup_socket) = self.pending.withdraw(wakeup)?.woken();
        self.release(wakeup.node, wakeup_socket);
        Some(connection)
    }

    pub(crate) fn take_pending(&self, node: usize, from: SocketAddr) -> Option<Pending> {
        self.pending.take(node, from)
    }

    /// A knock ended before it was accepted: the listener is closed. The client sees its connection end.
    pub(crate) fn wakeup_ended(&self, wakeup: u64) {
        if let Some(wakeup) = self.pending.find(wakeup)
            && !self.is_silent(wakeup.node)
        {
            self.withdraw(wakeup);
        }
    }

    /// Whether nobody is to hear that this node has ended.
    pub(crate) fn is_silent(&self, node: usize) -> bool {
        lock(&self.silent).contains(&node)
    }

    /// From now on nobody hears that listeners of this node end.
    pub fn silence(&self, node: usize) {
        lock(&self.silent).insert(node);
    }

    /// The node starts anew, and what waited for its programs ends.
    pub fn wake(&self, node: usize) {
        if lock(&self.silent).remove(&node) {
            // Who knocked for them knocks no more: the node gets others.
            self.pending.drop_all_of(node);
            if let Some(blocked_accepts) = self.blocked_accepts(node) {
                blocked_accepts.drop_all();
            }
        }
    }

    /// Connections that wait to be accepted.
    pub fn waiting(&self) -> usize {
        self.pending.count()
    }
}
