//! `getsockopt(2)` and `setsockopt(2)`, for the options on which a socket that was handed out differs from the one that the
//! program asked for. The filter passes all others by.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{SendFlags, send};
use rustix::thread::CapabilitySet;
use slipway_sys::sockopt::{self, Name};
use slipway_verbs::untrusted::SO_PASSRIGHTS;

use super::listen::port;
use super::{Answer, Trapped};
use crate::address::write;
use crate::delivery::DEFERS;
use crate::emulation::{HEARD, OF_SOCKETS, SELDOM, State, change, is_privileged, loses};
use crate::metadata::{Path, SocketMetadata, Stored};
use crate::sync::lock;
use crate::timestamps;
use crate::unsupported_options::PathSupport;

/// Longest value of a TCP option, bytes (`struct tcp_info`). The router reads no longer values from a program.
const LONGEST: usize = 512;

/// Options of `SOL_SOCKET` that can only be read.
const READ_ONLY: [i32; 8] = [
    libc::SO_DOMAIN,
    libc::SO_PROTOCOL,
    libc::SO_PEERCRED,
    libc::SO_PEERSEC,
    libc::SO_PEERGROUPS,
    libc::SO_PEERNAME,
    libc::SO_PEERPIDFD,
    libc::SO_NETNS_COOKIE,
];

/// Options that only Unix sockets have (`sk_may_scm_recv`, Linux 6.16).
const OF_UNIX: [i32; 4] = [libc::SO_PASSCRED, libc::SO_PASSSEC, libc::SO_PASSPIDFD, SO_PASSRIGHTS];

pub(super) fn get(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let socket = call.socket()?;
    let Some(metadata) = call.parts.metadata.of(&socket)? else { return on_own(call, socket.as_fd()) };
    let value = value(&metadata, socket.as_fd(), asked(call))?;
    // The kernel checks the length of these two values.
    if asked(call).level == libc::SOL_SOCKET {
        match asked(call).name {
            libc::SO_PEERNAME if call.room(4)? > value.len() => return Err(Errno::INVAL.into()),
            libc::SO_NETNS_COOKIE if call.room(4)? != value.len() => return Err(Errno::INVAL.into()),
            _ => {}
        }
    }
    // The length is the value-result argument after the value.
    call.write(3, &value, true)?;
    Ok(Answer::Result(Ok(0)))
}

/// Reads an option of a program's own socket. If the answer would give away more than a number of the host's, the router
/// reads the copy, which the program cannot replace. The kernel answers the rest, with the caller's rights.
fn on_own(call: &Trapped<'_>, socket: BorrowedFd<'_>) -> Result<Answer, Answer> {
    let name = asked(call);
    match (name.level, name.name) {
        (libc::SOL_SOCKET, libc::SO_NETNS_COOKIE) => {
            let mut cookie = [0; 16];
            let room = call.room(4)?.min(cookie.len());
            let len = sockopt::get(socket, name, &mut cookie[..room])?;
            call.write(3, &cookie[..len], true)?;
        }
        (libc::SOL_SOCKET, libc::SO_PEERPIDFD) => {
            let process = sockopt::peer_process(socket)?;
            let number = call.tree.listener.install(call.call.id, process.as_fd(), None, true)?;
            call.write(3, &number.to_ne_bytes(), true)?;
        }
        _ => return Ok(Answer::GoOn),
    }
    Ok(Answer::Result(Ok(0)))
}

pub(super) fn set(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let socket = call.socket()?;
    let name = asked(call);
    let _turn = lock(&call.tree.writing);
    let mut metadata = match call.parts.metadata.on(&socket)? {
        Stored::Metadata(metadata) => metadata,
        own => return set_on_own(call, socket.as_fd(), name, &own),
    };
    let len = usize::try_from(call.int(4)).map_err(|_| Errno::INVAL)?.min(LONGEST);
    let bytes = call.read(3, len)?;
    if name.level == libc::SOL_SOCKET && !OF_SOCKETS.contains(&name.name) {
        return set_of_socket(call, socket.as_fd(), &metadata, name, &bytes);
    }
    if !belongs(name.level, metadata.local) {
        return Err(Errno::NOPROTOOPT.into());
    }
    if is_privileged(name, &bytes) && !call.is_capable(CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN)? {
        return Err(Errno::PERM.into());
    }
    let is_real = metadata.options.set(name, &bytes, metadata.path)?;
    // The hosts' own network may be of another version of IP.
    if is_real && metadata.path == Path::Tcp && sockopt::int(&socket, name).is_ok() {
        sockopt::set(&socket, name, &bytes)?;
        // The type of service has a priority of its own (`rt_tos2priority`).
        call.parts.limiter.keep_priority(&socket, &metadata)?;
    }
    call.parts.metadata.put(&socket, &metadata)?;
    Ok(Answer::Result(Ok(0)))
}

/// Sets an option on a program's own socket: the kernel sets it, and the router marks the socket.
fn set_on_own(call: &Trapped<'_>, socket: BorrowedFd<'_>, name: Name, own: &Stored) -> Result<Answer, Answer> {
    let len = usize::try_from(call.int(4)).unwrap_or_default().min(LONGEST);
    // Some programs first reset an option that they may set later. A value that cannot be read counts as set.
    let is_nothing = || call.read(3, len).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0));
    let could_be_lost = [Path::Pair, Path::Tcp].iter().any(|path| loses(name, *path));
    let is_nothing = (could_be_lost || name == DEFERS) && is_nothing();
    call.parts.metadata.mark_changed(socket, own, change(name, is_nothing))?;
    if name == DEFERS && !is_nothing {
        call.blocked_accepts.defer();
    }
    if could_be_lost && !is_nothing && socket_acceptconn(socket).unwrap_or(false) {
        call.parts.unsupported.listens(call.node(), || port(socket), PathSupport::after(name, is_nothing));
    }
    Ok(Answer::GoOn)
}

/// Sets or reads an option of `SOL_SOCKET` of a connection.
fn set_of_socket(
    call: &Trapped<'_>,
    socket: BorrowedFd<'_>,
    metadata: &SocketMetadata,
    name: Name,
    bytes: &[u8],
) -> Result<Answer, Answer> {
    match name.name {
        libc::SO_LINGER => sockopt::set(socket, name, bytes)?,
        libc::SO_MAX_PACING_RATE | libc::SO_PRIORITY => {
            if !call.parts.limiter.may_set(metadata, name.name, number(bytes).ok_or(Errno::INVAL)?) {
                return Err(Errno::PERM.into());
            }
            sockopt::set(socket, name, bytes)?;
        }
        other if timestamps::NAMES.contains(&other) => timestamps::set(socket, other, bytes)?,
        // As on any socket. The program's capabilities decide which values it may set, not the router's.
        name if HEARD.contains(&name) || SELDOM.iter().any(|(seldom, _)| *seldom == name) => return Ok(Answer::GoOn),
        // Binds to no interface, which it already does.
        libc::SO_BINDTODEVICE | libc::SO_BINDTOIFINDEX if bytes.iter().all(|byte| *byte == 0) => {}
        _ if READ_ONLY.contains(&name.name) => return Err(Errno::NOPROTOOPT.into()),
        _ if OF_UNIX.contains(&name.name) => return Err(Errno::OPNOTSUPP.into()),
        _ => return Err(Errno::PERM.into()),
    }
    Ok(Answer::Result(Ok(0)))
}

/// A value of four or eight bytes.
fn number(bytes: &[u8]) -> Option<u64> {
    let long = bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    long.or_else(|| bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes).into()))
}

fn asked(call: &Trapped<'_>) -> Name {
    Name { level: call.int(1), name: call.int(2) }
}

fn value(metadata: &SocketMetadata, socket: BorrowedFd<'_>, name: Name) -> Result<Vec<u8>, Answer> {
    let int = |value: i32| Ok(value.to_ne_bytes().to_vec());
    match name {
        Name { level: libc::SOL_SOCKET, name } => match name {
            libc::SO_DOMAIN => int(if metadata.local.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET }),
            libc::SO_PROTOCOL => int(libc::IPPROTO_TCP),
            libc::SO_PEERNAME => Ok(write(metadata.peer)),
            libc::SO_PEERGROUPS | libc::SO_PEERPIDFD => Err(Errno::NODATA.into()),
            // The answer of a socket without credentials (`cred_to_ucred`, `net/core/sock.c`): no process, nobody, no
            // group.
            libc::SO_PEERCRED => Ok([0_i32, -1, -1].iter().flat_map(|id| id.to_ne_bytes()).collect()),
            libc::SO_BINDTODEVICE => Ok(Vec::new()),
            libc::SO_NETNS_COOKIE => Ok(vec![0; 8]),
            libc::SO_BINDTOIFINDEX => int(0),
            _ if OF_SOCKETS.contains(&name) => {
                Ok(metadata.options.get(Name { level: libc::SOL_SOCKET, name }, || state(socket))?)
            }
            _ if OF_UNIX.contains(&name) => Err(Errno::OPNOTSUPP.into()),
            _ => Err(Errno::NOPROTOOPT.into()),
        },
        _ if metadata.path == Path::Tcp && name.level == libc::IPPROTO_TCP => {
            let mut bytes = vec![0; LONGEST];
            let len = sockopt::get(socket, name, &mut bytes)?;
            bytes.truncate(len);
            Ok(bytes)
        }
        _ if belongs(name.level, metadata.local) => Ok(metadata.options.get(name, || state(socket))?),
        // The kernel answers so (`ip_getsockopt`), differently from what is set.
        _ => Err(Errno::OPNOTSUPP.into()),
    }
}

/// A socket of IPv4 has no options of IPv6; one of IPv6 has both.
fn belongs(level: i32, local: SocketAddr) -> bool {
    level != libc::IPPROTO_IPV6 || local.is_ipv6()
}

/// The state of a pair by this end. One whose peer has ended and one that both have shut down look alike.
fn state(socket: BorrowedFd<'_>) -> State {
    let mut end = [PollFd::new(&socket, PollFlags::RDHUP)];
    let _ = poll(&mut end, Some(&Timespec::default()));
    if end[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP) {
        return State::CloseWait;
    }
    // Sending no bytes only checks whether the direction is open.
    match send(socket, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Err(Errno::PIPE) => State::FinWait,
        _ => State::Established,
    }
}
