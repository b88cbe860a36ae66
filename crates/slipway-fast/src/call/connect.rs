//! `connect(2)`: decides whether a connection takes the fast path, or stays on the container network.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use slipway_sys::notify::{Caller, Descriptor};
use slipway_sys::sockopt::{self, Name};

use super::{Answer, Trapped, complete};
use crate::address::{Address, canonical, shown};
use crate::address_map::Interface;
use crate::admission::Admission;
use crate::delivery::{AnnounceError, Announced, Handoff};
use crate::emulation::Options;
use crate::ends::EndIdentity;
use crate::furnish::Like;
use crate::loopback;
use crate::metadata::{Change, Path, Role, SocketMetadata, Stored};
use crate::parts::Parts;
use crate::peers::Outcome;
use crate::pending::{Connection, ServerEnd};
use crate::reason::Reason;
use crate::replaced_sockets;
use crate::reply_tracker::Reply;
use crate::sync::lock;
use crate::unsupported_options::PathSupport;

/// `TCP_CLOSE` (`include/net/tcp_states.h`): neither connected nor listening.
const CLOSED: u8 = 7;

/// A connection that may take the fast path.
struct Wanted {
    /// The program's own socket.
    socket: OwnedFd,
    stored: Stored,
    nonblocking: bool,
    /// Whether the socket is one of IPv6, whose addresses may be mapped ones of IPv4.
    ipv6: bool,
    client: SocketAddr,
    server: SocketAddr,
    at: Interface,
    path: Path,
    admission: Admission,
}

pub(super) fn connect(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let (caller, socket, address) = call.socket_and_address(1)?;
    let stored = call.parts.metadata.on(&socket)?;
    let address = Address::read(&address);
    if let Stored::Metadata(metadata) = stored {
        return again(call, &socket, &metadata, address);
    }
    let server = match address {
        Address::Ip(server) => server,
        Address::Unspecified => {
            // An accepted socket can become a client by this, and has its listener's options.
            call.parts.metadata.mark_changed(&socket, &stored, Change::UNKNOWN)?;
            return Ok(Answer::GoOn);
        }
        Address::Other => return Ok(Answer::GoOn),
    };
    match wanted(call, socket, stored, server) {
        Ok(wanted) => take(call, &caller, wanted),
        Err(Some(reason)) => Ok(native(call, server, reason)),
        Err(None) => Ok(Answer::GoOn),
    }
}

fn native(call: &Trapped<'_>, server: SocketAddr, reason: Reason) -> Answer {
    let at = call.parts.address_map.of(canonical(server).ip());
    call.parts.counts.connected(call.node(), at.map(|at| at.node), Err(reason));
    Answer::GoOn
}

/// A socket that is connected already.
fn again(call: &Trapped<'_>, socket: &OwnedFd, metadata: &SocketMetadata, address: Address) -> Result<Answer, Answer> {
    if address == Address::Unspecified {
        return Err(Errno::OPNOTSUPP.into());
    }
    let is_lost = lock(&call.tree.replies).take_connected(call.call.tid, fstat(socket)?.st_ino);
    // An earlier router's answer may not have arrived: then its program calls again.
    if metadata.reported && !is_lost && (metadata.role == Role::Server || call.parts.numbers.made(metadata.flow)) {
        return Err(Errno::ISCONN.into());
    }
    if let Some(entry) = metadata.unregistered {
        // The program may have closed that instance since.
        let _ = call.parts.registrar.register(call.call.tid, call.int(0), vec![entry]);
    }
    change(call, socket, |metadata| SocketMetadata { reported: true, unregistered: None, ..metadata })?;
    connected(call, socket)
}

/// Tells the program that it is connected, and remembers that a signal may lose the answer.
fn connected(call: &Trapped<'_>, end: &OwnedFd) -> Result<Answer, Answer> {
    if let Some(now) = call.counted_moment() {
        call.track_reply(Reply::Connected(fstat(end)?.st_ino), now);
    }
    // A program that a signal interrupts now calls again, without having received the answer.
    if call.tree.answer(call.call.id, Ok(0)).is_err() {
        change(call, end, |metadata| SocketMetadata { reported: false, ..metadata })?;
    }
    Ok(Answer::Done)
}

/// Changes the metadata of a client's end.
fn change(call: &Trapped<'_>, end: &OwnedFd, change: impl FnOnce(SocketMetadata) -> SocketMetadata) -> io::Result<()> {
    let _turn = lock(&call.tree.writing);
    match call.parts.metadata.of(end)? {
        Some(metadata) => call.parts.metadata.put(end, &change(metadata)),
        None => Ok(()),
    }
}

/// Whether a connection may take the fast path, or the reason why not. Calls that the kernel refuses anyway are not
/// counted.
fn wanted(call: &Trapped<'_>, socket: OwnedFd, stored: Stored, asked: SocketAddr) -> Result<Wanted, Option<Reason>> {
    let server = canonical(asked);
    let option = |name| sockopt::int(&socket, Name { level: libc::SOL_SOCKET, name }).map_err(|_| None);
    match option(libc::SO_PROTOCOL)? {
        libc::IPPROTO_TCP => {}
        libc::IPPROTO_UDP => return Err(Some(Reason::Udp)),
        _ => return Err(Some(Reason::NotTcp)),
    }
    let parts = call.parts;
    let at = parts
        .address_map
        .of(server.ip())
        .filter(|interface| interface.node != call.node())
        .ok_or(Some(Reason::NotANode))?;
    let own = parts.address_map.address(call.node(), at.network, server.is_ipv6()).ok_or(Some(Reason::NotANode))?;
    let mut state = [0; 1];
    let info = Name { level: libc::IPPROTO_TCP, name: libc::TCP_INFO };
    sockopt::get(&socket, info, &mut state).map_err(|_| None)?;
    let bound = rustix::net::getsockname(&socket).ok().and_then(|name| SocketAddr::try_from(name).ok()).ok_or(None)?;
    let ipv6 = bound.is_ipv6();
    if state[0] != CLOSED || asked.is_ipv6() != ipv6 {
        return Err(None);
    }
    let flags = fcntl_getfl(&socket).map_err(|_| None)?;
    if flags.contains(OFlags::from_bits_retain(libc::O_ASYNC.cast_unsigned())) {
        return Err(Some(Reason::Asynchronous));
    }
    if stored != Stored::Nothing && sockopt::has_filter(&socket).map_err(|_| None)? {
        return Err(Some(Reason::Filtered));
    }
    let admission = parts.rules.admits(call.node(), at, server.port()).map_err(Some)?;
    let path = path_kind(parts, at, &admission);
    if !PathSupport::of(&socket, &stored).is_by(path) {
        return Err(Some(Reason::Options));
    }
    let bound = canonical(bound);
    if !bound.ip().is_unspecified() && bound.ip() != own {
        return Err(Some(Reason::NotANode));
    }
    let port = if bound.port() == 0 { parts.numbers.next_port() } else { bound.port() };
    let client = SocketAddr::new(own, port);
    let nonblocking = flags.contains(OFlags::NONBLOCK);
    Ok(Wanted { socket, stored, nonblocking, ipv6, client, server, at, path, admission })
}

/// The kind of connection that would carry the data.
fn path_kind(parts: &Parts, at: Interface, admission: &Admission) -> Path {
    let is_pair = at.host == parts.host && admission.terms.hold(Path::Pair) && !parts.address_map.is_exact(at.network);
    if is_pair { Path::Pair } else { Path::Tcp }
}

fn take(call: &Trapped<'_>, caller: &Arc<Caller>, wanted: Wanted) -> Result<Answer, Answer> {
    let parts = call.parts;
    let is_here = wanted.at.host == parts.host;
    let path = wanted.path;
    let interrupted = lock(&call.tree.interrupted).take(call.call.tid, &wanted.socket, wanted.server);
    let connected = match interrupted {
        Some(ours) => Ok((Outcome::Accepted(ours), None)),
        None if is_here => beside(call, &wanted, path),
        None => beyond(call, &wanted).map(|outcome| (outcome, None)),
    };
    let Ok((outcome, handoff)) = connected else {
        // Descriptors or memory lack; the program's own socket is there already.
        return Ok(native(call, wanted.server, Reason::Exhausted));
    };
    match outcome {
        Outcome::Accepted(ours) => {
            let answer = hand_out(call, caller, wanted, ours, path).unwrap_or_else(|answer| answer);
            let Some(handoff) = handoff else { return Ok(answer) };
            // The router wakes the server once its client has the other end.
            call.answer(&answer);
            complete(parts, handoff);
            Ok(Answer::Done)
        }
        // The container network would drop the connection's SYN, without an answer.
        Outcome::Refused if !wanted.admission.terms.is_free() => {
            parts.counts.refused();
            Err(Errno::CONNREFUSED.into())
        }
        // The container network refuses too. Then the kernel reports it itself, in every way that a program can ask.
        Outcome::Refused => {
            parts.counts.refused();
            Ok(Answer::GoOn)
        }
        Outcome::Native(reason) => Ok(native(call, wanted.server, reason)),
    }
}

/// Puts the client's end into the program.
fn hand_out(
    call: &Trapped<'_>,
    caller: &Arc<Caller>,
    wanted: Wanted,
    ours: OwnedFd,
    path: Path,
) -> Result<Answer, Answer> {
    let parts = call.parts;
    let replaced = replace(call, caller, wanted.socket, &ours);
    // Even where that failed half-way, some of the program's descriptors may be of it by now.
    parts.confirm(&wanted.admission, &ours, path);
    if !replaced? {
        let own = caller.descriptor(call.int(0))?;
        lock(&call.tree.interrupted).keep(call.call.tid, Arc::clone(caller), own, wanted.server, ours);
        return Ok(Answer::Done);
    }
    parts.counts.connected(call.node(), Some(wanted.at.node), Ok(path));
    if wanted.nonblocking {
        return Ok(Answer::Result(Err(Errno::INPROGRESS)));
    }
    connected(call, &ours)
}

/// A connection to a server on this host. The router makes both ends here, and announces the server's, or gives it to a
/// blocked accept.
fn beside(call: &Trapped<'_>, wanted: &Wanted, path: Path) -> io::Result<(Outcome, Option<Handoff>)> {
    let parts = call.parts;
    let [client, server] = [wanted.client, wanted.server];
    if !parts.unsupported.is_supported(wanted.at.node, server.port(), path) {
        return Ok((Outcome::Native(Reason::Options), None));
    }
    let identity = EndIdentity { role: Role::Server, client: call.node(), server: wanted.at.node, port: server.port() };
    let Some(slot) = parts.limiter.slot(identity, &wanted.admission.terms) else { return Ok((Outcome::Refused, None)) };
    let flow = parts.numbers.next_flow();
    let (ours, end) = match path {
        Path::Pair => parts.pairs.make(call.node())?,
        Path::Tcp => loopback::pair(flow)?,
    };
    parts.limiter.count(&end, identity, path, slot)?;
    equip(call, wanted, &ours, path, flow)?;
    let (share, entry, end, number) = (None, None, ServerEnd::There(end), None);
    let connection = Connection { share, entry, end, path: Some(path), flow, client, server, number };
    Ok(match parts.delivery.announce(wanted.at.node, connection) {
        Ok(Announced::For(handoff)) => (Outcome::Accepted(ours), Some(handoff)),
        Ok(Announced::Kept | Announced::WokenUp) => (Outcome::Accepted(ours), None),
        Err(AnnounceError::Refused) => (Outcome::Refused, None),
        Err(AnnounceError::Full) => (Outcome::Native(Reason::Backlog), None),
        Err(AnnounceError::Crowded) => (Outcome::Native(Reason::Crowded), None),
        Err(AnnounceError::Failed) => (Outcome::Native(Reason::Exhausted), None),
    })
}

/// A connection to a server on another host: a connection to its router becomes the program's.
fn beyond(call: &Trapped<'_>, wanted: &Wanted) -> io::Result<Outcome> {
    let parts = call.parts;
    let flow = parts.numbers.next_flow();
    let outcome = parts.peers.open(wanted.at.host, flow, wanted.client, wanted.server);
    if let Outcome::Accepted(ours) = &outcome {
        equip(call, wanted, ours, Path::Tcp, flow)?;
    }
    Ok(outcome)
}

/// Gives a new socket the options and flags of the program's own.
fn equip(call: &Trapped<'_>, wanted: &Wanted, ours: &OwnedFd, path: Path, flow: u64) -> io::Result<()> {
    let Wanted { socket, stored, nonblocking, ipv6, client, server, .. } = wanted;
    // New sockets block.
    if *nonblocking {
        fcntl_setfl(ours, OFlags::NONBLOCK)?;
    }
    let [local, peer] = [*client, *server].map(|address| shown(address, *ipv6));
    let (role, reported, options) = (Role::Client, !nonblocking, Options::default());
    let metadata = SocketMetadata { path, role, flow, local, peer, reported, options, unregistered: None };
    call.parts.furnisher.furnish(call.node(), Like::own(socket, *ipv6, stored), ours, metadata)
}

/// Puts the connected socket into the program, at its own socket's descriptors and epoll entries. False where a signal
/// interrupted the call first.
fn replace(call: &Trapped<'_>, caller: &Caller, own: OwnedFd, ours: &OwnedFd) -> Result<bool, Answer> {
    let Descriptor { close_on_exec, inode } = caller.describe(call.int(0))?;
    if !replace_at(call, caller, call.int(0), close_on_exec, ours)? {
        return Ok(false);
    }
    // Copies of the socket from before it was connected. Those of other processes are out of reach.
    if lock(&call.tree.replaced_sockets).others_have(own)? {
        for number in replaced_sockets::numbers(call.call.tid, inode)? {
            replace_at(call, caller, number, caller.describe(number)?.close_on_exec, ours)?;
        }
    }
    Ok(true)
}

fn replace_at(
    call: &Trapped<'_>,
    caller: &Caller,
    number: i32,
    close_on_exec: bool,
    ours: &OwnedFd,
) -> Result<bool, Answer> {
    let tid = call.call.tid;
    let entries = lock(&call.tree.epolls).entries(tid, caller, number)?;
    // Entries go with the program's own socket. If this router ends before it has made them again, the program repeats this
    // call, and the next router makes the noted one.
    let noted = entries.first().copied().filter(|_| number == call.int(0));
    let note = |unregistered| change(call, ours, |metadata| SocketMetadata { unregistered, ..metadata });
    if noted.is_some() {
        note(noted)?;
    }
    let is_installed = match call.tree.listener.install(call.call.id, ours.as_fd(), Some(number), close_on_exec) {
        Ok(_) => true,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => false,
        Err(error) => return Err(error.into()),
    };
    if is_installed && !entries.is_empty() {
        call.parts.registrar.register(tid, number, entries)?;
    }
    if noted.is_some() {
        note(None)?;
    }
    Ok(is_installed)
}

#[cfg(test)]
mod tests;
