//! `accept(2)` and `accept4(2)`: the program gets a connection of the base network, the connection that a wake-up socket
//! announced, or one that waited for the call.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_acceptconn, socket_cookie, socket_reuseport, socket_timeout};
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use slipway_sys::sockopt::{self, Name};

use super::handoff::{Accepted, NotHandedOff, hand_off, wishes};
use super::{Answer, Trapped, redeliver};
use crate::address::canonical;
use crate::delivery::{goes_by_packets, server_metadata};
use crate::furnish::{Kin, Like, changed};
use crate::journal::Unaccepted;
use crate::listener_cache::CachedListener;
use crate::metadata::Change;
use crate::pending::{Connection, ServerEnd};
use crate::reply_tracker::AcceptedSocket;
use crate::sync::lock;
use crate::unsupported_options::PathSupport;

pub(super) const PROTOCOL: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_PROTOCOL };

/// The socket that a call accepts from.
struct Listening {
    socket: OwnedFd,
    protocol: i32,
    /// The listener's cookie, where the call waits (`SO_COOKIE`).
    cookie: Option<u64>,
}

pub(super) fn accept(call: &Trapped<'_>) -> Result<Answer, Answer> {
    if let Some(accepted) = lost_accept(call) {
        // Only a program that does so on purpose has another listener at this descriptor by now.
        return hand_off_or_requeue(call, accepted);
    }
    let socket = call.socket()?;
    wishes(call)?;
    let protocol = sockopt::int(&socket, PROTOCOL)?;
    // The kernel refuses a socket that does not listen, with its own error. A handed-out socket never listens.
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
    // This happens before the program goes on: a listener that it closes next must be closed then.
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
        redeliver(call.parts, call.node(), accepted.anew(number));
        Ok(answer)
    })
}

/// A connection that the thread got before, and does not know of. A connection of another listener goes back there.
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
        redeliver(call.parts, call.node(), connection);
        return None;
    }
    call.parts.delivery.record(call.node(), &mut connection);
    Accepted::of(connection, client.is_ipv6())
}

/// Blocks the call, unless there is a connection by now.
fn wait(call: &Trapped<'_>, listening: &Listening, cookie: u64) -> Result<Option<Accepted>, Answer> {
    let blocked_accepts = call.blocked_accepts;
    let patience = socket_timeout(&listening.socket, Timeout::Recv)?;
    loop {
        if let Some(ready) = blocked_accepts.block(call.tree, call.call, cookie, &listening.socket, patience)? {
            return Ok(Accepted::of(ready.connection, ready.ipv6));
        }
        // Nobody received an event for connections that came in between.
        if !is_readable(&listening.socket)? || !blocked_accepts.take_back(call.tree, call.call, cookie) {
            return Ok(None);
        }
        // Another thread may accept it first. Then others may have come while the call was not blocked.
        if let accepted @ Some(_) = next(call, listening)? {
            return Ok(accepted);
        }
    }
}

/// Accepts the first connection; `None` where there is none.
fn next(call: &Trapped<'_>, listening: &Listening) -> Result<Option<Accepted>, Answer> {
    let parts = call.parts;
    loop {
        let Some((accepted, peer)) = first(call, &listening.socket)? else { return Ok(None) };
        let peer = SocketAddr::try_from(peer).map_err(|_| Errno::IO)?;
        let Some(pending) = parts.delivery.take_pending(call.node(), canonical(peer)) else {
            let server = SocketAddr::try_from(rustix::net::getsockname(&accepted)?).map_err(|_| Errno::IO)?;
            let unaccepted = Unaccepted { node: call.node(), path: None, flow: 0, client: peer, server, handoff: None };
            let entry = parts.delivery.journal.enter(&unaccepted, accepted.as_fd());
            let (path, flow, number) = (unaccepted.path, unaccepted.flow, None);
            let (share, end, client) = (None, accepted, peer);
            return Ok(Some(Accepted { share, entry, end, path, flow, client, server, number }));
        };
        let ipv6 = peer.is_ipv6();
        let since = pending.since;
        let (connection, wakeup_socket) = pending.woken();
        let made = inherit(call, listening, &accepted, ipv6, &connection, since);
        // Released only now: the listener's queue counts the connection for as long as it holds it.
        parts.delivery.release(call.node(), wakeup_socket);
        if let Some(accepted) = made.ok().and_then(|()| Accepted::of(connection, ipv6)) {
            return Ok(Some(accepted));
        }
        // Its client sees it end.
    }
}

/// Gives the server's end the options of the accepted wake-up socket, which has inherited from the listener.
fn inherit(
    call: &Trapped<'_>,
    listening: &Listening,
    accepted: &OwnedFd,
    ipv6: bool,
    connection: &Connection,
    since: u64,
) -> Result<(), Answer> {
    let Connection { end: ServerEnd::There(end), path: Some(path), .. } = connection else { return Ok(()) };
    let stored = call.parts.metadata.on(&listening.socket)?;
    let support = PathSupport::of(&listening.socket, &stored);
    if !support.is_by(*path) {
        call.parts.unsupported.listens(call.node(), || Some(connection.server.port()), support);
        return Err(Errno::CONNABORTED.into());
    }
    let is_tcp = listening.protocol == libc::IPPROTO_TCP;
    let changed = if is_tcp { changed(&stored) } else { Some(Change::UNKNOWN) };
    let by_packets = is_tcp && changed.is_some() && goes_by_packets(call.blocked_accepts, &listening.socket)?;
    if let Some(cookie) = listening.cookie
        && is_tcp
        && call.blocked_accepts.is_waited_at(cookie)
        // The kernel picks another each time among listeners that share an address.
        && !socket_reuseport(&listening.socket)?
        && !by_packets
    {
        let cached =
            CachedListener { cookie, ipv6, tree: Arc::downgrade(call.tree), tid: call.call.tid, number: call.int(0) };
        call.parts.delivery.listener_cache.learn(call.node(), connection.server, cached, since);
    }
    let like = Like { socket: accepted, ipv6, kin: Kin::Accepted, changed };
    Ok(call.parts.furnisher.furnish(call.node(), like, end, server_metadata(connection, *path, ipv6))?)
}

/// Accepts without waiting, whether the listener blocks or not: it is the program's file, whose flags are the program's.
fn first(call: &Trapped<'_>, listening: &OwnedFd) -> Result<Option<(OwnedFd, SocketAddrAny)>, Answer> {
    // No other thread takes the connection that this has seen: all who accept under the filter come here.
    let _turn = lock(&call.blocked_accepts.accepting);
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
