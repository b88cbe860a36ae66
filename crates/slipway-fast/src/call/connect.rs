//! `connect(2)`: where a connection takes the fast path, or stays on the container network.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use slipway_sys::sockopt::{self, Name};

use super::{Answer, Trapped};
use crate::address::{Address, canonical, shown};
use crate::epolls::Epolls;
use crate::note::{Note, Path};
use crate::originals;
use crate::peers::Verdict;
use crate::pending::Pending;
use crate::personality::{Options, carry};
use crate::places::Place;
use crate::reason::Reason;
use crate::router::{Unheard, seal};

/// `TCP_CLOSE` (`include/net/tcp_states.h`): neither connected nor listening.
const CLOSED: u8 = 7;

/// A connection that may take the fast path.
struct Wanted {
    /// The program's own socket.
    socket: OwnedFd,
    nonblocking: bool,
    /// Whether the socket is one of IPv6, whose addresses may be mapped ones of IPv4.
    ipv6: bool,
    client: SocketAddr,
    server: SocketAddr,
    at: Place,
}

pub(super) fn connect(call: &Trapped<'_>, epolls: &mut Epolls) -> Result<Answer, Answer> {
    let socket = call.socket()?;
    let note = call.router.notes.of(&socket)?;
    let address = Address::read(&call.address(1)?);
    if let Some(note) = note {
        return again(call, &socket, note, address);
    }
    let Address::Ip(server) = address else { return Ok(Answer::GoOn) };
    match wanted(call, socket, server) {
        Ok(wanted) => take(call, wanted, epolls),
        Err(Some(reason)) => Ok(native(call, reason)),
        Err(None) => Ok(Answer::GoOn),
    }
}

fn native(call: &Trapped<'_>, reason: Reason) -> Answer {
    call.router.counts.native(reason);
    Answer::GoOn
}

/// A socket that is connected already.
fn again(call: &Trapped<'_>, socket: &OwnedFd, mut note: Note, address: Address) -> Result<Answer, Answer> {
    if address == Address::Unspecified {
        return Err(Errno::OPNOTSUPP.into());
    }
    if note.told {
        return Err(Errno::ISCONN.into());
    }
    note.told = true;
    call.router.notes.put(socket, &note)?;
    Ok(Answer::Result(Ok(0)))
}

/// Whether a connection may take the fast path; otherwise why not, where that is worth counting: what the kernel refuses
/// anyway is not.
fn wanted(call: &Trapped<'_>, socket: OwnedFd, asked: SocketAddr) -> Result<Wanted, Option<Reason>> {
    let server = canonical(asked);
    let option = |name| sockopt::int(&socket, Name { level: libc::SOL_SOCKET, name }).map_err(|_| None);
    if option(libc::SO_PROTOCOL)? != libc::IPPROTO_TCP {
        return Err(Some(Reason::NotTcp));
    }
    let router = call.router;
    let at = router.places.of(server.ip()).filter(|place| place.node != call.node).ok_or(Some(Reason::NotANode))?;
    let own = router.places.address(call.node, at.network, server.is_ipv6()).ok_or(Some(Reason::NotANode))?;
    let mut state = [0; 1];
    let info = Name { level: libc::IPPROTO_TCP, name: libc::TCP_INFO };
    sockopt::get(&socket, info, &mut state).map_err(|_| None)?;
    let ipv6 = option(libc::SO_DOMAIN)? == libc::AF_INET6;
    if state[0] != CLOSED || asked.is_ipv6() != ipv6 {
        return Err(None);
    }
    let flags = fcntl_getfl(&socket).map_err(|_| None)?;
    if flags.contains(OFlags::from_bits_retain(libc::O_ASYNC.cast_unsigned())) {
        return Err(Some(Reason::Asynchronous));
    }
    router.admits(call.node, at, server.port()).map_err(Some)?;
    let bound = rustix::net::getsockname(&socket).ok().and_then(|name| SocketAddr::try_from(name).ok()).ok_or(None)?;
    let bound = canonical(bound);
    if !bound.ip().is_unspecified() && bound.ip() != own {
        return Err(Some(Reason::NotANode));
    }
    let port = if bound.port() == 0 { router.next_port() } else { bound.port() };
    let client = SocketAddr::new(own, port);
    Ok(Wanted { socket, nonblocking: flags.contains(OFlags::NONBLOCK), ipv6, client, server, at })
}

fn take(call: &Trapped<'_>, wanted: Wanted, epolls: &mut Epolls) -> Result<Answer, Answer> {
    let router = call.router;
    let path = if wanted.at.host == router.host { Path::Pair } else { Path::Tcp };
    let connected = match path {
        Path::Pair => beside(call, &wanted),
        Path::Tcp => beyond(call, &wanted),
    };
    match connected {
        Ok(Verdict::Accepted(ours)) => {
            replace(call, wanted.socket, &ours, epolls)?;
            router.counts.taken(path);
            Ok(Answer::Result(if wanted.nonblocking { Err(Errno::INPROGRESS) } else { Ok(0) }))
        }
        // The kernel says so itself, in all the ways that there are to ask it, when the container network refuses too.
        Ok(Verdict::Refused) => {
            router.counts.refused();
            Ok(Answer::GoOn)
        }
        Ok(Verdict::Native(reason)) => Ok(native(call, reason)),
        // No descriptor, no memory: the program's own socket is there already.
        Err(_) => Ok(native(call, Reason::Exhausted)),
    }
}

/// A server on this host: a pair, whose other end a knock announces.
fn beside(call: &Trapped<'_>, wanted: &Wanted) -> io::Result<Verdict> {
    let router = call.router;
    let flags = SocketFlags::CLOEXEC;
    let (ours, end) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    seal(&ours)?;
    seal(&end)?;
    let flow = router.next_flow();
    furnish(call, wanted, &ours, Path::Pair, flow)?;
    let Some(knocker) = router.knocker(wanted.at.node, wanted.server.is_ipv6()) else {
        return Ok(Verdict::Native(Reason::Exhausted));
    };
    let [client, server] = [wanted.client, wanted.server];
    let pending = Pending { end: Some(end), path: Some(Path::Pair), flow, client, server, knocker };
    Ok(match router.announce(wanted.at.node, pending) {
        Ok(()) => Verdict::Accepted(ours),
        Err(Unheard::Refused) => Verdict::Refused,
        Err(Unheard::Full) => Verdict::Native(Reason::Backlog),
        Err(Unheard::Failed) => Verdict::Native(Reason::Exhausted),
    })
}

/// A server on another host: a connection to its router, which becomes the program's.
fn beyond(call: &Trapped<'_>, wanted: &Wanted) -> io::Result<Verdict> {
    let router = call.router;
    let flow = router.next_flow();
    let verdict = router.peers.open(wanted.at.host, flow, wanted.client, wanted.server, None);
    if let Verdict::Accepted(ours) = &verdict {
        furnish(call, wanted, ours, Path::Tcp, flow)?;
    }
    Ok(verdict)
}

/// Makes a new socket what the program's own was.
fn furnish(call: &Trapped<'_>, wanted: &Wanted, ours: &OwnedFd, path: Path, flow: u64) -> io::Result<()> {
    carry(&wanted.socket, ours)?;
    let options = Options::of(&wanted.socket);
    if path == Path::Tcp {
        options.apply(ours)?;
    }
    fcntl_setfl(ours, if wanted.nonblocking { OFlags::NONBLOCK } else { OFlags::empty() })?;
    let [local, peer] = [wanted.client, wanted.server].map(|address| shown(address, wanted.ipv6));
    call.router.notes.put(ours, &Note { path, flow, local, peer, told: !wanted.nonblocking, options })
}

/// Puts the connected socket into the program, where its own was: at its numbers, in its epoll instances.
fn replace(call: &Trapped<'_>, own: OwnedFd, ours: &OwnedFd, epolls: &mut Epolls) -> Result<(), Answer> {
    let inode = rustix::fs::fstat(&own)?.st_ino;
    replace_at(call, call.int(0), ours, epolls)?;
    // Copies that were made before it was connected. Those of other processes are out of reach.
    if originals::others_have(own)? {
        for number in originals::numbers(call.call.tid, inode)? {
            replace_at(call, number, ours, epolls)?;
        }
    }
    Ok(())
}

fn replace_at(call: &Trapped<'_>, number: i32, ours: &OwnedFd, epolls: &mut Epolls) -> Result<(), Answer> {
    let tid = call.call.tid;
    let entries = epolls.entries(tid, &call.caller, number)?;
    let close_on_exec = call.caller.closes_on_exec(number)?;
    match call.listener.install(call.call.id, ours.as_fd(), Some(number), close_on_exec) {
        Ok(_) => {}
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => return Err(Answer::Done),
        Err(error) => return Err(error.into()),
    }
    if !entries.is_empty() {
        call.router.registrar.register(tid, number, entries)?;
    }
    Ok(())
}
