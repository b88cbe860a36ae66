//! `accept(2)` and `accept4(2)`: what is accepted is a connection of the container network, or a knock, or a connection that nobody
//! knocked for because the program comes to hear of it.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_acceptconn, socket_cookie, socket_reuseport, socket_timeout};
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use slipway_sys::notify::Call;
use slipway_sys::sockopt::{self, Name};

use super::furnish::{Kin, Like, changed, furnish};
use super::handoff::{NotHandedOff, hand_off, wishes};
use super::{Answer, Trapped};
use crate::address::{canonical, shown};
use crate::blocked_accepts::{BlockedAccepts, Offered, ReadyConnection};
use crate::emulation::Options;
use crate::journal::{Entry, Unaccepted};
use crate::listener_cache::CachedListener;
use crate::listener_copies::ListenerCopy;
use crate::metadata::{Change, Path, Role, SocketMetadata};
use crate::pending::{Connection, ServerEnd};
use crate::reply_tracker::AcceptedSocket;
use crate::router::{Announced, Router};
use crate::shares::Share;
use crate::sync::lock;
use crate::tree::Tree;
use crate::unsupported_options::PathSupport;

pub(super) const PROTOCOL: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_PROTOCOL };
pub(super) const DEFERS: Name = Name { level: libc::IPPROTO_TCP, name: libc::TCP_DEFER_ACCEPT };

/// The socket that a call accepts from.
struct Listening {
    socket: OwnedFd,
    protocol: i32,
    /// Where the call waits: what to know the listener by (`SO_COOKIE`).
    cookie: Option<u64>,
}

pub(super) fn accept(call: &Trapped<'_>) -> Result<Answer, Answer> {
    if let Some(accepted) = lost_accept(call) {
        // That the same number is another listener now takes a program that knows what it does.
        return hand_off_or_requeue(call, accepted);
    }
    let socket = call.socket()?;
    wishes(call)?;
    let protocol = sockopt::int(&socket, PROTOCOL)?;
    // A socket that does not listen is refused by the kernel in its own words. One that was handed out never does.
    if !is_ours(protocol) || !socket_acceptconn(&socket)? {
        return Ok(Answer::GoOn);
    }
    let blocks = !fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK);
    let cookie = if blocks { Some(socket_cookie(&socket)?) } else { None };
    let listening = Listening { socket, protocol, cookie };
    let accepted = match (next(call, &listening)?, cookie) {
        (None, Some(cookie)) => wait(call, &listening, cookie)?,
        (None, None) => return Err(Errno::AGAIN.into()),
        (accepted, _) => accepted,
    };
    // Before the program goes on: a listener that it closes next must be closed then.
    drop(listening);
    let Some(accepted) = accepted else { return Ok(Answer::Blocked) };
    hand_off_or_requeue(call, accepted)
}

/// Whether sockets of this protocol may be listeners of the fast path.
pub(super) fn is_ours(protocol: i32) -> bool {
    [libc::IPPROTO_TCP, libc::IPPROTO_MPTCP].contains(&protocol)
}

fn hand_off_or_requeue(call: &Trapped<'_>, accepted: Accepted) -> Result<Answer, Answer> {
    hand_off(call, &accepted).or_else(|NotHandedOff { answer, number }| {
        call.router.redeliver(call.node(), accepted.anew(number));
        Ok(answer)
    })
}

/// A connection that the thread was given before, and does not know of. One that it accepted elsewhere goes back there.
fn lost_accept(call: &Trapped<'_>) -> Option<Accepted> {
    let AcceptedSocket { number, inode, listener, path, flow, client, server } =
        lock(&call.tree.replies).take_accepted(call.call.tid)?;
    let (_, end) = call.tree.found(call.call.tid, number).ok()?;
    if fstat(&end).ok()?.st_ino != inode {
        return None;
    }
    let mut connection =
        Accepted { share: None, entry: None, end, path, flow, client, server, number: None }.anew(Some(number));
    if listener != call.int(0) {
        call.router.redeliver(call.node(), connection);
        return None;
    }
    call.router.record(call.node(), &mut connection);
    Accepted::of(connection, client.is_ipv6())
}

/// Parks the call, unless there is a connection by now.
fn wait(call: &Trapped<'_>, listening: &Listening, cookie: u64) -> Result<Option<Accepted>, Answer> {
    let blocked_accepts = &call.tree.blocked_accepts;
    let patience = socket_timeout(&listening.socket, Timeout::Recv)?;
    if let Some(ready) = blocked_accepts.block(call, cookie, &listening.socket, patience)? {
        return Ok(Accepted::of(ready.connection, ready.ipv6));
    }
    // What came in between was told to nobody.
    if !is_readable(&listening.socket)? || !blocked_accepts.take_back(call, cookie) {
        return Ok(None);
    }
    match next(call, listening)? {
        // Another acceptor was quicker.
        None => Ok(blocked_accepts
            .block(call, cookie, &listening.socket, patience)?
            .and_then(|ready| Accepted::of(ready.connection, ready.ipv6))),
        accepted => Ok(accepted),
    }
}

/// A connection on its way to the program.
pub(crate) struct Accepted {
    /// A share of connections in hand, as [`Connection::share`].
    pub(crate) share: Option<Share>,
    /// As [`Connection::entry`].
    pub(crate) entry: Option<Entry>,
    pub(crate) end: OwnedFd,
    pub(crate) path: Option<Path>,
    /// As [`Connection::flow`].
    pub(crate) flow: u64,
    /// In the form of the program's socket.
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    /// As [`Connection::number`].
    pub(crate) number: Option<i32>,
}

impl Accepted {
    /// `None` where its end is not here.
    fn of(connection: Connection, ipv6: bool) -> Option<Self> {
        let Connection { share, entry, end: ServerEnd::There(end), path, flow, client, server, number } = connection
        else {
            return None;
        };
        let [client, server] = [client, server].map(|address| shown(address, ipv6));
        Some(Self { share, entry, end, path, flow, client, server, number })
    }

    /// To be accepted anew, and written down anew as one that waits: its program had no descriptor for it, or has not been told of the
    /// one that it has, this `number`.
    fn anew(self, number: Option<i32>) -> Connection {
        let Self { share, entry: _, end, path, flow, client, server, number: _ } = self;
        let [client, server] = [client, server].map(canonical);
        Connection { share, entry: None, end: ServerEnd::There(end), path, flow, client, server, number }
    }
}

/// Accepts the first that there is; `None` where there is none.
fn next(call: &Trapped<'_>, listening: &Listening) -> Result<Option<Accepted>, Answer> {
    let router = call.router;
    loop {
        let Some((accepted, peer)) = first(call, &listening.socket)? else { return Ok(None) };
        let peer = SocketAddr::try_from(peer).map_err(|_| Errno::IO)?;
        let Some(pending) = router.take_pending(call.node(), canonical(peer)) else {
            let server = SocketAddr::try_from(rustix::net::getsockname(&accepted)?).map_err(|_| Errno::IO)?;
            let unaccepted = Unaccepted { node: call.node(), path: None, flow: 0, client: peer, server, handoff: None };
            let entry = router.journal.enter(&unaccepted, accepted.as_fd());
            let (path, flow, number) = (unaccepted.path, unaccepted.flow, None);
            let (share, end, client) = (None, accepted, peer);
            return Ok(Some(Accepted { share, entry, end, path, flow, client, server, number }));
        };
        let ipv6 = peer.is_ipv6();
        let since = pending.since;
        let (connection, wakeup_socket) = pending.woken();
        let made = inherit(call, listening, &accepted, ipv6, &connection, since);
        // Only now, so that the listener's queue counts it for as long as it is in it.
        router.release(call.node(), wakeup_socket);
        if let Some(accepted) = made.ok().and_then(|()| Accepted::of(connection, ipv6)) {
            return Ok(Some(accepted));
        }
        // Its client sees it end.
    }
}

/// Makes the server's end what the knock is that was accepted for it, which has inherited from its listener.
fn inherit(
    call: &Trapped<'_>,
    listening: &Listening,
    accepted: &OwnedFd,
    ipv6: bool,
    connection: &Connection,
    since: u64,
) -> Result<(), Answer> {
    let Connection { end: ServerEnd::There(end), path: Some(path), .. } = connection else { return Ok(()) };
    let stored = call.router.metadata.on(&listening.socket)?;
    let support = PathSupport::of(&listening.socket, &stored);
    if !support.is_by(*path) {
        call.router.unsupported.listens(call.node(), || Some(connection.server.port()), support);
        return Err(Errno::CONNABORTED.into());
    }
    let is_tcp = listening.protocol == libc::IPPROTO_TCP;
    let changed = if is_tcp { changed(&stored) } else { Some(Change::UNKNOWN) };
    let by_packets = is_tcp && changed.is_some() && goes_by_packets(&call.tree.blocked_accepts, &listening.socket)?;
    if let Some(cookie) = listening.cookie
        && is_tcp
        && call.tree.blocked_accepts.is_waited_at(cookie)
        // Of those that share an address the kernel picks another each time.
        && !socket_reuseport(&listening.socket)?
        && !by_packets
    {
        let cached =
            CachedListener { cookie, ipv6, tree: Arc::downgrade(call.tree), tid: call.call.tid, number: call.int(0) };
        call.router.listener_cache.learn(call.node(), connection.server, cached, since);
    }
    let like = Like { socket: accepted, ipv6, kin: Kin::Accepted, changed };
    Ok(furnish(call.router, call.node(), like, end, server_metadata(connection, *path, ipv6))?)
}

/// Whether it depends on packets what a listener hears of: on what its clients say first, which is remembered of its node, or on a
/// filter.
fn goes_by_packets(blocked_accepts: &BlockedAccepts, listening: &OwnedFd) -> Result<bool, Answer> {
    let defers = sockopt::int(listening, DEFERS)? != 0;
    if defers {
        blocked_accepts.defer();
    }
    Ok(defers || sockopt::has_filter(listening)?)
}

fn server_metadata(connection: &Connection, path: Path, ipv6: bool) -> SocketMetadata {
    let [local, peer] = [connection.server, connection.client].map(|address| shown(address, ipv6));
    let (role, options) = (Role::Server, Options::default());
    SocketMetadata { path, role, flow: connection.flow, local, peer, reported: true, options }
}

/// Accepts without waiting, whether the listener blocks or not: it is the program's file, whose flags are the program's.
fn first(call: &Trapped<'_>, listening: &OwnedFd) -> Result<Option<(OwnedFd, SocketAddrAny)>, Answer> {
    // Nobody else takes what this has seen: all who accept under the filter come here.
    let _turn = lock(&call.tree.blocked_accepts.accepting);
    if !is_readable(listening)? {
        return Ok(None);
    }
    match acceptfrom_with(listening, SocketFlags::CLOEXEC) {
        Ok((accepted, Some(peer))) => Ok(Some((accepted, peer))),
        Ok((_, None)) => Err(Errno::IO.into()),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_readable(listening: &OwnedFd) -> Result<bool, Answer> {
    let mut listening = [PollFd::new(listening, PollFlags::IN)];
    poll(&mut listening, Some(&Timespec::default()))?;
    Ok(listening[0].revents().contains(PollFlags::IN))
}

/// A connection for a call that waits for it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Handoff {
    tree: Arc<Tree>,
    call: Call,
    ready: ReadyConnection,
}

impl Handoff {
    /// Gives it. Where its call is gone, it is announced anew; where nobody hears of it any more, its client sees it end.
    pub(crate) fn complete(self, router: &Arc<Router>) {
        let mut handoff = self;
        loop {
            let Self { tree, call, ready: ReadyConnection { node, ipv6, connection, .. } } = handoff;
            let call = Trapped { router, tree: &tree, call };
            let Some(accepted) = Accepted::of(connection, ipv6) else { return };
            let number = match hand_off(&call, &accepted) {
                Ok(answer) => return call.answer(&answer),
                Err(NotHandedOff { answer, number }) => {
                    call.answer(&answer);
                    number
                }
            };
            match router.announce(node, accepted.anew(number)) {
                Ok(Announced::For(again)) => handoff = again,
                _ => return,
            }
        }
    }
}

/// A listener at which programs wait in `accept(2)` for connections.
#[derive(Debug)]
pub(crate) struct Expected {
    node: usize,
    cached: CachedListener,
    socket: ListenerCopy,
    /// How many its queue has room for.
    room: usize,
}

/// The listener at which programs wait in `accept(2)` for connections to this address, where it is one still and there is room.
///
/// # Errors
/// Where there is none, gives the copy that it took of a descriptor of theirs, if any, which can take long to close.
pub(crate) fn expected(
    router: &Router,
    blocked_accepts: &BlockedAccepts,
    node: usize,
    server: SocketAddr,
) -> Result<Expected, Option<ListenerCopy>> {
    let cached = router
        .listener_cache
        .of(node, server)
        .filter(|cached| blocked_accepts.is_waited_at(cached.cookie))
        .ok_or(None)?;
    let tree = cached.tree.upgrade().ok_or(None)?;
    let permit = blocked_accepts.copies.permit();
    let socket = tree.found(cached.tid, cached.number).map(|(_, socket)| permit.copy(socket)).map_err(|_| None)?;
    let is_it = socket_cookie(&*socket).is_ok_and(|cookie| cookie == cached.cookie);
    let room = if is_it { room(&socket) } else { None };
    match room.filter(|room| blocked_accepts.has_room(cached.cookie, *room)) {
        Some(room) => Ok(Expected { node, cached, socket, room }),
        None => Err(Some(socket)),
    }
}

impl Expected {
    /// Makes a connection what the listener would accept, and finds a call that waits for it, or keeps it for the next that will.
    ///
    /// # Errors
    /// Gives the connection back where somebody has to knock for it.
    pub(crate) fn hand_over(self, router: &Router, connection: Connection) -> Result<Announced, Connection> {
        let Self { node, cached, socket, room } = self;
        let Connection { end: ServerEnd::There(end), path: Some(path), .. } = &connection else {
            return Err(connection);
        };
        let Some(blocked_accepts) = router.blocked_accepts(node) else { return Err(connection) };
        let Ok(stored) = router.metadata.on(&*socket) else { return Err(connection) };
        let changed = changed(&stored);
        let is_supported = PathSupport::of(&*socket, &stored).is_by(*path);
        if !is_supported || changed.is_some() && goes_by_packets(&blocked_accepts, &socket).unwrap_or(true) {
            return Err(connection);
        }
        let like = Like { socket: &socket, ipv6: cached.ipv6, kin: Kin::Listener, changed };
        if furnish(router, node, like, end, server_metadata(&connection, *path, cached.ipv6)).is_err() {
            return Err(connection);
        }
        match blocked_accepts.offer(cached.cookie, ReadyConnection::new(node, cached.ipv6, connection), room) {
            Offered::Kept => Ok(Announced::Kept),
            Offered::Full(ready) => Err(ready.connection),
            Offered::For(tree, call, ready) => Ok(Announced::For(Handoff { tree, call, ready })),
        }
    }

    /// The copy of the program's descriptor.
    pub(crate) fn into_socket(self) -> ListenerCopy {
        self.socket
    }
}

/// How many connections a listener's queue has room for; `None` where it is none.
fn room(listening: &OwnedFd) -> Option<usize> {
    /// `TCP_LISTEN` (`include/net/tcp_states.h`).
    const LISTENS: u8 = 10;
    // `struct tcp_info`: of a listener, `tcpi_unacked` are those in its queue, and `tcpi_sacked` is the most (`tcp_get_info`).
    let mut info = [0; 32];
    let name = Name { level: libc::IPPROTO_TCP, name: libc::TCP_INFO };
    sockopt::get(listening, name, &mut info).ok().filter(|_| info[0] == LISTENS)?;
    let [waiting, most] = [24, 28].map(|at| info[at..].first_chunk().map_or(0, |number| u32::from_ne_bytes(*number)));
    usize::try_from(most.saturating_sub(waiting)).ok()
}
