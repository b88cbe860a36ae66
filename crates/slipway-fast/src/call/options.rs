//! `getsockopt(2)` and `setsockopt(2)`, for the options on which a socket that was handed out differs from the one that the
//! program asked for. The filter passes all others by.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use slipway_sys::sockopt::{self, Name};

use super::accept::DEFERS;
use super::{Answer, Trapped};
use crate::address::write;
use crate::note::{Note, Path, Written};
use crate::personality::HEARD;
use crate::sync::lock;
use crate::timestamps;

/// The longest value that is read from a program, bytes; options of TCP are shorter.
const LONGEST: usize = 256;

pub(super) fn get(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let socket = call.socket()?;
    let Some(note) = call.router.notes.of(&socket)? else { return on_own(call, socket.as_fd()) };
    let value = value(&note, socket.as_fd(), asked(call))?;
    if asked(call).name == libc::SO_PEERNAME && asked(call).level == libc::SOL_SOCKET && call.room(4)? > value.len() {
        return Err(Errno::INVAL.into());
    }
    // The length is the value-result argument after the value.
    call.write(3, &value, true)?;
    Ok(Answer::Result(Ok(0)))
}

/// Of a program's own socket. What would give away more than a number of the host's is answered on the copy, in whose place the
/// program cannot put another; the rest the kernel answers as it is due to the caller.
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
    let mut note = match call.router.notes.on(&socket)? {
        Written::Note(note) => note,
        own @ (Written::Nothing | Written::Changed) => {
            if own == Written::Nothing {
                call.router.notes.mark_changed(&socket)?;
            }
            // Some take it back first thing; what is not read here is seen at the first `accept`.
            if name == DEFERS && call.read(3, 4).is_ok_and(|seconds| seconds != [0; 4]) {
                call.tree.parker.defer();
            }
            return Ok(Answer::GoOn);
        }
    };
    let len = usize::try_from(call.int(4)).map_err(|_| Errno::INVAL)?.min(LONGEST);
    let bytes = call.read(3, len)?;
    if name.level == libc::SOL_SOCKET {
        match name.name {
            libc::SO_LINGER => sockopt::set(&socket, name, &bytes)?,
            libc::SO_MAX_PACING_RATE | libc::SO_PRIORITY => {
                if !call.router.may_set(&note, name.name, number(&bytes).ok_or(Errno::INVAL)?) {
                    return Err(Errno::PERM.into());
                }
                sockopt::set(&socket, name, &bytes)?;
            }
            other if timestamps::NAMES.contains(&other) => timestamps::set(&socket, other, &bytes)?,
            // As on any socket. What a program may set them to depends on its capabilities, not on the router's.
            name if HEARD.contains(&name) => return Ok(Answer::GoOn),
            // It marks packets, of which there are none; on the hosts' own network it is not the program's to say.
            libc::SO_MARK => {}
            _ => return Err(Errno::PERM.into()),
        }
    } else {
        if !belongs(name.level, note.local) {
            return Err(Errno::NOPROTOOPT.into());
        }
        note.options.set(name, &bytes)?;
        if note.path == Path::Tcp {
            sockopt::set(&socket, name, &bytes)?;
            // The type of service has a priority of its own (`rt_tos2priority`).
            call.router.keep_priority(&socket, &note)?;
        }
        call.router.notes.put(&socket, &note)?;
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

fn value(note: &Note, socket: BorrowedFd<'_>, name: Name) -> Result<Vec<u8>, Answer> {
    let int = |value: i32| Ok(value.to_ne_bytes().to_vec());
    match name {
        Name { level: libc::SOL_SOCKET, name } => match name {
            libc::SO_DOMAIN => int(if note.local.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET }),
            libc::SO_PROTOCOL => int(libc::IPPROTO_TCP),
            libc::SO_PEERNAME => Ok(write(note.peer)),
            libc::SO_PEERGROUPS => Err(Errno::NODATA.into()),
            // As of a socket that has no credentials (`cred_to_ucred`, `net/core/sock.c`): no process, nobody, no group.
            libc::SO_PEERCRED => Ok([0_i32, -1, -1].iter().flat_map(|id| id.to_ne_bytes()).collect()),
            libc::SO_NETNS_COOKIE | libc::SO_BINDTOIFINDEX | libc::SO_BINDTODEVICE | libc::SO_MARK => int(0),
            _ => Err(Errno::NOPROTOOPT.into()),
        },
        _ if note.path == Path::Tcp && name.level == libc::IPPROTO_TCP => {
            let mut bytes = vec![0; LONGEST];
            let len = sockopt::get(socket, name, &mut bytes)?;
            bytes.truncate(len);
            Ok(bytes)
        }
        _ if belongs(name.level, note.local) => Ok(note.options.get(name, is_open(socket))?),
        _ => Err(Errno::NOPROTOOPT.into()),
    }
}

/// A socket of IPv4 has no options of IPv6; one of IPv6 has both.
fn belongs(level: i32, local: SocketAddr) -> bool {
    level != libc::IPPROTO_IPV6 || local.is_ipv6()
}

/// False where the peer has closed its direction, and all that it sent has been read.
fn is_open(socket: BorrowedFd<'_>) -> bool {
    let mut byte = [0; 1];
    !matches!(recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT), Ok((_, 0)))
}
