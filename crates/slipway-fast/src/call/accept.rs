//! `accept(2)` and `accept4(2)`: what is accepted is a connection of the container network, or a knock. A call that waits may be
//! given a connection that nobody knocked for.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_acceptconn, socket_cookie, socket_reuseport, socket_timeout};
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use slipway_sys::sockopt::{self, Name};

use super::furnish::{Like, furnish};
use super::{Answer, Trapped};
use crate::address::{canonical, shown, write};
use crate::note::{Note, Path, Role, Written};
use crate::pending::{Connection, End};
use crate::personality::Options;
use crate::router::Router;
use crate::sync::lock;

const PROTOCOL: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_PROTOCOL };
const DEFERS: Name = Name { level: libc::IPPROTO_TCP, name: libc::TCP_DEFER_ACCEPT };

/// What the program asked of the new descriptor.
#[derive(Debug, Clone, Copy)]
struct Wishes {
    nonblocking: bool,
    close_on_exec: bool,
}

/// The socket that a call accepts from.
struct Listening {
    socket: OwnedFd,
    protocol: i32,
    /// Where the call waits: what to know the listener by (`SO_COOKIE`).
    cookie: Option<u64>,
}

pub(super) fn accept(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let socket = call.socket()?;
    let wishes = wishes(call)?;
    let protocol = sockopt::int(&socket, PROTOCOL)?;
    let is_ours = [libc::IPPROTO_TCP, libc::IPPROTO_MPTCP].contains(&protocol);
    // A socket that does not listen is refused by the kernel in its own words. One that was handed out never does.
    if !is_ours || !socket_acceptconn(&socket)? {
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
    let Some(accepted) = accepted else { return Ok(Answer::Parked) };
    let Accepted { end, path, client, server } = accepted;
    give(call, &end, client, wishes).or_else(|NotGiven(answer)| {
        call.router.put_back(call.node(), end, path, client, server);
        Ok(answer)
    })
}

/// Parks the call, unless there is a connection by now.
fn wait(call: &Trapped<'_>, listening: &Listening, cookie: u64) -> Result<Option<Accepted>, Answer> {
    let parker = &call.router.parker;
    let patience = socket_timeout(&listening.socket, Timeout::Recv)?;
    parker.park(call, cookie, &listening.socket, patience)?;
    // What came in between was told to nobody.
    if !is_readable(&listening.socket)? || !parker.take_back(call, cookie) {
        return Ok(None);
    }
    let accepted = next(call, listening)?;
    if accepted.is_none() {
        // Another acceptor was quicker.
        parker.park(call, cookie, &listening.socket, patience)?;
    }
    Ok(accepted)
}

fn wishes(call: &Trapped<'_>) -> Result<Wishes, Answer> {
    let flags = if call.call.number == libc::SYS_accept4 { call.int(3) } else { 0 };
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(Errno::INVAL.into());
    }
    Ok(Wishes { nonblocking: flags & libc::SOCK_NONBLOCK != 0, close_on_exec: flags & libc::SOCK_CLOEXEC != 0 })
}

/// A connection on its way to the program.
struct Accepted {
    end: OwnedFd,
    path: Option<Path>,
    /// In the form of the program's socket.
    client: SocketAddr,
    server: SocketAddr,
}

/// The program did not get it, so that it is still to be accepted; and what becomes of the call.
struct NotGiven(Answer);

/// Puts a connection into the program.
fn give(call: &Trapped<'_>, end: &OwnedFd, client: SocketAddr, wishes: Wishes) -> Result<Answer, NotGiven> {
    if let Err(error) = fcntl_setfl(end, if wishes.nonblocking { OFlags::NONBLOCK } else { OFlags::empty() }) {
        return Ok(error.into());
    }
    if call.call.args[1] != 0
        && let Err(answer) = call.write(1, &write(client), false)
    {
        return if matches!(answer, Answer::Done) { Err(NotGiven(answer)) } else { Ok(answer) };
    }
    match call.tree.listener.install_as_answer(call.call.id, end.as_fd(), wishes.close_on_exec) {
        Ok(_) => Ok(Answer::Done),
        Err(error) => match Errno::from_io_error(&error) {
            // Interrupted, it asks again; killed, its listener may be another's too.
            Some(Errno::NOENT) => Err(NotGiven(Answer::Done)),
            Some(Errno::MFILE) => Err(NotGiven(Errno::MFILE.into())),
            _ => Ok(error.into()),
        },
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
            return Ok(Some(Accepted { end: accepted, path: None, client: peer, server }));
        };
        let ipv6 = peer.is_ipv6();
        let connection = pending.connection;
        let made = inherit(call, listening, &accepted, ipv6, &connection, pending.since);
        // Only now, so that the listener's queue counts it for as long as it is in it.
        router.rest(call.node(), pending.knocker);
        if let (Ok(()), Connection { end: End::There(end), path, client, server, .. }) = (made, connection) {
            let [client, server] = [client, server].map(|address| shown(address, ipv6));
            return Ok(Some(Accepted { end, path, client, server }));
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
    let Connection { end: End::There(end), path: Some(path), .. } = connection else { return Ok(()) };
    let written = call.router.notes.on(&listening.socket)?;
    let is_tcp = listening.protocol == libc::IPPROTO_TCP;
    let changed = !is_tcp || written != Written::Nothing;
    if let Some(cookie) = listening.cookie
        && is_tcp
        // Of those that share an address the kernel picks another each time.
        && !socket_reuseport(&listening.socket)?
        && !(changed && defers(&listening.socket)?)
    {
        call.router.doors.learn(call.node(), connection.server, cookie, since);
    }
    let like = Like { socket: accepted, ipv6, accepted: true, changed };
    Ok(furnish(call, like, end, note(connection, *path, ipv6))?)
}

/// Whether a listener hears of connections only once their clients have said something.
fn defers(listening: &OwnedFd) -> Result<bool, Answer> {
    Ok(sockopt::int(listening, DEFERS)? != 0)
}

fn note(connection: &Connection, path: Path, ipv6: bool) -> Note {
    let [local, peer] = [connection.server, connection.client].map(|address| shown(address, ipv6));
    let (role, options) = (Role::Server, Options::default());
    Note { path, role, flow: connection.flow, local, peer, told: true, options }
}

/// Accepts without waiting, whether the listener blocks or not: it is the program's file, whose flags are the program's.
fn first(call: &Trapped<'_>, listening: &OwnedFd) -> Result<Option<(OwnedFd, SocketAddrAny)>, Answer> {
    // Nobody else takes what this has seen: all who accept under the filter come here.
    let _turn = lock(&call.router.accepting);
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

/// Gives a connection to a call that waits for one, where it is certain that the kernel would give it to the same listener.
/// False where there is none, and somebody has to knock.
pub(crate) fn hand_over(router: &Arc<Router>, node: usize, connection: &Connection) -> bool {
    let Connection { end: End::There(end), path: Some(path), server, client, .. } = connection else { return false };
    let Some(cookie) = router.doors.of(node, *server) else { return false };
    while let Some((tree, call)) = router.parker.claim(cookie) {
        let call = Trapped { router, tree: &tree, call };
        let (wishes, ipv6) = match prepared(&call, cookie, connection, end, *path) {
            Ok(Some(prepared)) => prepared,
            // It waits no more.
            Err(Answer::Done) => continue,
            // Not so, or for another listener. Whatever is in the way is its own to hear of.
            Ok(None) | Err(_) => {
                call.answer(&call.serve());
                return false;
            }
        };
        let (answer, given) = match give(&call, end, shown(*client, ipv6), wishes) {
            Ok(answer) => (answer, true),
            Err(NotGiven(answer)) => (answer, false),
        };
        call.answer(&answer);
        if given {
            return true;
        }
    }
    false
}

/// Makes an end what the call that waits would accept; `None` where its listener is another than this, or wants to hear of
/// connections later.
fn prepared(
    call: &Trapped<'_>,
    cookie: u64,
    connection: &Connection,
    end: &OwnedFd,
    path: Path,
) -> Result<Option<(Wishes, bool)>, Answer> {
    let socket = call.socket()?;
    if socket_cookie(&socket)? != cookie || !socket_acceptconn(&socket)? {
        return Ok(None);
    }
    let changed = call.router.notes.on(&socket)? != Written::Nothing;
    if changed && defers(&socket)? {
        return Ok(None);
    }
    let ipv6 = rustix::net::getsockname(&socket)?.address_family() == rustix::net::AddressFamily::INET6;
    furnish(call, Like { socket: &socket, ipv6, accepted: true, changed }, end, note(connection, path, ipv6))?;
    Ok(Some((wishes(call)?, ipv6)))
}
