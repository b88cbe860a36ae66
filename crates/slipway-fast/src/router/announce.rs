//! How servers hear of connections: by a call that waits for one, or by a knock at their listener.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::io::Errno;

use super::Router;
use crate::address::canonical;
use crate::call::{Expected, Gift};
use crate::knock::{Knocker, PATIENCE};
use crate::ledger::{Given, Left};
use crate::limits::Member;
use crate::note::Role;
use crate::pending::{Connection, End, Knock, Pending};
use crate::shares::Share;
use crate::sync::lock;

/// How long more sockets to knock with may take to come; usually it is a millisecond.
const MORE_PATIENCE: Duration = Duration::from_millis(250);

/// Why nobody heard of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unheard {
    /// Nobody listens.
    Refused,
    /// The listener's queue is full.
    Full,
    /// As many wait already as is its nodes' share.
    Crowded,
    /// The kernel lacked something.
    Failed,
}

impl From<Errno> for Unheard {
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
    For(Gift),
    /// It comes for it by itself.
    Kept,
    /// By a knock.
    Knocked,
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
    pub fn add_knockers(&self, node: usize, ipv6: bool, knockers: Vec<Knocker>) {
        self.knockers.add(node, ipv6, knockers);
    }

    /// Tells a server of a connection: finds a call that waits for it, or will, or knocks. It may be accepted before this returns.
    pub(crate) fn announce(&self, node: usize, mut connection: Connection) -> Result<Announced, Unheard> {
        self.charge(node, &mut connection)?;
        self.write(node, &mut connection);
        let parker = self.parker(node);
        let expected = parker.and_then(|parker| parker.expects(self, connection.server));
        self.announce_to(expected, node, connection)
    }

    /// Charges a connection to its nodes, unless it is already.
    fn charge(&self, node: usize, connection: &mut Connection) -> Result<(), Unheard> {
        if connection.share.is_none() {
            connection.share = Some(self.share(connection.client, node).ok_or(Unheard::Crowded)?);
        }
        Ok(())
    }

    /// A share of what the router may have in hand, for a connection to a node; `None` where it has too many.
    pub(super) fn share(&self, client: SocketAddr, node: usize) -> Option<Share> {
        self.shares.take(self.places.of(canonical(client).ip()).map_or(node, |at| at.node), node)
    }

    /// The same, where it has been looked who waits for it.
    pub(crate) fn announce_to(
        &self,
        expected: Option<Expected>,
        node: usize,
        mut connection: Connection,
    ) -> Result<Announced, Unheard> {
        self.charge(node, &mut connection)?;
        let connection = match expected {
            None => connection,
            Some(expected) => match expected.hand_over(self, connection) {
                Ok(announced) => return Ok(announced),
                Err(connection) => connection,
            },
        };
        let knocker = self.knocker(node, connection.server.is_ipv6()).ok_or(Unheard::Failed)?;
        self.knock(node, connection, &knocker, PATIENCE).map(|_| Announced::Knocked).map_err(|(unheard, _)| unheard)
    }

    /// Knocks for a connection that nobody came for, without waiting for somebody to knock.
    ///
    /// # Errors
    /// Gives the connection back.
    pub(crate) fn knock_late(&self, node: usize, connection: Connection) -> Result<(), (Unheard, Box<Connection>)> {
        match self.resting(node, connection.server.is_ipv6()) {
            Some(knocker) => self.knock(node, connection, &knocker, PATIENCE).map(drop),
            None => Err((Unheard::Failed, Box::new(connection))),
        }
    }

    /// Knocks for a connection from another host. Until then it may wait for somebody to knock, and for room in the listener's
    /// queue; `None`: it waits for nothing.
    ///
    /// # Errors
    /// Gives the connection back.
    pub(crate) fn knock_by(
        &self,
        node: usize,
        connection: Connection,
        until: Option<Instant>,
    ) -> Result<Knock, (Unheard, Box<Connection>)> {
        let ipv6 = connection.server.is_ipv6();
        let knocker = if until.is_some() { self.knocker(node, ipv6) } else { self.resting(node, ipv6) };
        let patience = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        match knocker {
            Some(knocker) => self.knock(node, connection, &knocker, patience),
            None => Err((Unheard::Failed, Box::new(connection))),
        }
    }

    /// Knocks for a connection.
    fn knock(
        &self,
        node: usize,
        connection: Connection,
        knocker: &Arc<Knocker>,
        patience: Duration,
    ) -> Result<Knock, (Unheard, Box<Connection>)> {
        let server = connection.server;
        let knock = self.pend(node, connection, knocker);
        let heard = knocker.knock(server, patience).map_err(Unheard::from).and_then(|()| {
            // Whoever accepted it already had it rest, and it may be out for another by now.
            let minded = self.pending.with(knock, |pending| self.mind(knock, &pending.connection, knocker));
            minded.unwrap_or(Ok(())).map_err(|_| Unheard::Failed)
        });
        match heard.map_err(|unheard| (unheard, self.withdraw(knock))) {
            Err((unheard, Some(connection))) => Err((unheard, Box::new(connection))),
            // One that was heard late was heard nevertheless.
            _ => Ok(knock),
        }
    }

    /// Hears of what becomes of a knock, and of its connection.
    fn mind(&self, knock: Knock, connection: &Connection, knocker: &Knocker) -> io::Result<()> {
        if let Some(parker) = self.parker(knock.node) {
            parker.mind(knocker, knock.number)?;
        }
        self.mind_words(knock, connection)
    }

    /// Hears of what its client says, where a listener may wait for that.
    pub(super) fn mind_words(&self, knock: Knock, connection: &Connection) -> io::Result<()> {
        match (&connection.end, self.parker(knock.node)) {
            (End::There(end), Some(parker)) => parker.mind_words(end, knock.number),
            _ => Ok(()),
        }
    }

    /// The client of a connection has said something that this knock is for: so does who knocks.
    pub(crate) fn spoke(&self, knock: u64) {
        self.pending.speak(knock);
    }

    /// A socket to knock with. Where all are out, more are asked for and waited for: a program that connects hundreds of times before
    /// anything is accepted has as many out at once.
    fn knocker(&self, node: usize, ipv6: bool) -> Option<Arc<Knocker>> {
        let until = Instant::now() + MORE_PATIENCE;
        loop {
            // Others may be quicker to take those that come.
            match self.resting(node, ipv6) {
                // Those that were asked for now are for who comes next.
                None if Instant::now() < until && self.knockers.wait(node, ipv6, until) => {}
                taken => return taken,
            }
        }
    }

    /// The same without waiting.
    fn resting(&self, node: usize, ipv6: bool) -> Option<Arc<Knocker>> {
        self.knockers.take(node, ipv6, || (self.more.0)(node, ipv6))
    }

    /// A socket that was made in the node, to be asked and not to be used.
    pub(crate) fn native(&self, node: usize, ipv6: bool) -> Option<Arc<Knocker>> {
        self.knockers.look(node, ipv6)
    }

    /// Ends a knock, and keeps who knocked for the next.
    pub(crate) fn rest(&self, node: usize, knocker: Arc<Knocker>) {
        if let Some(parker) = self.parker(node) {
            parker.mind_no_more(&knocker);
        }
        knocker.rest();
        self.knockers.put(node, knocker);
    }

    /// Has a connection wait until it is accepted by this knock.
    fn pend(&self, node: usize, mut connection: Connection, knocker: &Arc<Knocker>) -> Knock {
        self.write(node, &mut connection);
        connection.entry.iter().for_each(|entry| entry.knocked(Some(knocker.socket.as_fd())));
        let pending = Pending { connection, since: self.doors.now(node), knocker: Arc::clone(knocker) };
        self.pending.add(node, pending)
    }

    /// Writes a connection down for the next router, once its end is here.
    pub(crate) fn write(&self, node: usize, connection: &mut Connection) {
        let Connection { entry: entry @ None, end: End::There(end), path, flow, client, server, .. } = connection
        else {
            return;
        };
        let left = Left { node, path: *path, flow: *flow, client: *client, server: *server, given: None };
        *entry = self.ledger.enter(&left, end.as_fd());
    }

    /// Goes on with a connection that the router before this one had in hand, by its server's end, and by who knocks for it.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`, and `getsockopt(2)` of a socket that is counted.
    pub(crate) fn take_up(self: &Arc<Self>, left: Left, end: OwnedFd, knocker: Option<OwnedFd>) -> io::Result<()> {
        let Left { node, path, flow, client, server, given } = left;
        if let (Some(path), Some(at)) = (path, self.places.of(client.ip())) {
            let member = Member { role: Role::Server, client: at.node, server: node, port: server.port() };
            self.count_on(&end, member, path)?;
        }
        // It had its share before.
        let share = Some(self.shares.keep(self.places.of(canonical(client).ip()).map_or(node, |at| at.node), node));
        let end = End::There(end);
        let connection = Connection { share, entry: None, end, path, flow, client, server, number: None };
        if let Some(given) = given {
            lock(&self.left).push((given, connection));
            return Ok(());
        }
        let Some(knocker) = knocker.and_then(|socket| Knocker::still_knocking(socket).ok()) else {
            self.bring(node, connection);
            return Ok(());
        };
        let knocker = Arc::new(knocker);
        // It is to hear of what becomes of the knock, and its programs come later.
        self.park_for(node)?;
        let knock = self.pend(node, connection, &knocker);
        let mind = |pending: &mut Pending| self.mind(knock, &pending.connection, &knocker);
        self.pending.with(knock, mind).unwrap_or(Ok(()))
    }

    /// What the router before this one was giving to programs of a tree.
    pub(super) fn left_of(&self, tree: u64) -> Vec<(Given, Connection)> {
        lock(&self.left).extract_if(.., |(given, _)| given.tree == tree).collect()
    }

    /// Tells a server of a connection whose client has it already, the first time or again. Where nobody listens, or the queue is full,
    /// it sees it end.
    pub(crate) fn bring(self: &Arc<Self>, node: usize, connection: Connection) {
        if let Ok(Announced::For(gift)) = self.announce(node, connection) {
            gift.give(self);
        }
    }

    /// Takes a connection back; `None` where it has been accepted.
    fn withdraw(&self, knock: Knock) -> Option<Connection> {
        let (connection, knocker) = self.pending.withdraw(knock)?.heard();
        self.rest(knock.node, knocker);
        Some(connection)
    }

    pub(crate) fn take_pending(&self, node: usize, from: SocketAddr) -> Option<Pending> {
        self.pending.take(node, from)
    }

    /// A knock ended before it was accepted: the listener is closed. The client sees its connection end.
    pub(crate) fn unheard(&self, knock: u64) {
        if let Some(knock) = self.pending.find(knock)
            && !self.is_silent(knock.node)
        {
            self.withdraw(knock);
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
            if let Some(parker) = self.parker(node) {
                parker.drop_all();
            }
        }
    }

    /// Connections that wait to be accepted.
    pub fn waiting(&self) -> usize {
        self.pending.count()
    }
}
