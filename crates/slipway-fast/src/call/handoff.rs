//! Putting an accepted connection into its program: it is given, and then told the number. What comes between the two, a signal or
//! the router's end, leaves it with a descriptor that it does not know of; it is told when it calls again, or by the next router.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_setfl, fstat};
use rustix::io::Errno;

use super::{Accepted, Answer, Trapped};
use crate::address::write;
use crate::journal::HandoffCall;
use crate::pending::{Connection, ServerEnd};
use crate::replaced_sockets;
use crate::reply_tracker::{AcceptedSocket, Reply};
use crate::router::Router;
use crate::tree::Tree;

/// What the program asked of the new descriptor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wishes {
    nonblocking: bool,
    close_on_exec: bool,
}

pub(super) fn wishes(call: &Trapped<'_>) -> Result<Wishes, Answer> {
    let flags = if call.call.number == libc::SYS_accept4 { call.int(3) } else { 0 };
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(Errno::INVAL.into());
    }
    Ok(Wishes { nonblocking: flags & libc::SOCK_NONBLOCK != 0, close_on_exec: flags & libc::SOCK_CLOEXEC != 0 })
}

/// The program does not know of it, so that it is still to be accepted.
pub(super) struct NotHandedOff {
    /// What becomes of the call.
    pub(super) answer: Answer,
    /// By which the program has it all the same.
    pub(super) number: Option<i32>,
}

/// Puts a connection into the program, unless it has it already, by this `number`, and tells it.
pub(super) fn hand_off(call: &Trapped<'_>, accepted: &Accepted) -> Result<Answer, NotHandedOff> {
    let Accepted { entry, end, client, number, .. } = accepted;
    // Where it has it, it keeps it.
    let not_handed_off = |answer| NotHandedOff { answer, number: *number };
    let wishes = match wishes(call) {
        Ok(wishes) => wishes,
        Err(answer) => return Ok(answer),
    };
    if let Err(error) = fcntl_setfl(end, if wishes.nonblocking { OFlags::NONBLOCK } else { OFlags::empty() }) {
        return Ok(error.into());
    }
    if call.call.args[1] != 0
        && let Err(answer) = call.write(1, &write(*client), false)
    {
        return if matches!(answer, Answer::Done) { Err(not_handed_off(answer)) } else { Ok(answer) };
    }
    if let Some(entry) = entry {
        entry.begin_handoff(call.tree.number, call.call.id, call.call.tid);
    }
    let listener = &call.tree.listener;
    let known = number.filter(|number| has(call, *number, end).unwrap_or(false));
    let number = match known {
        Some(number) => number,
        None => match listener.install(call.call.id, end.as_fd(), None, wishes.close_on_exec) {
            Ok(number) => number,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    // Interrupted, it asks again; killed, its listener may be another's too.
                    Some(Errno::NOENT) => Err(not_handed_off(Answer::Done)),
                    Some(Errno::MFILE) => Err(not_handed_off(Errno::MFILE.into())),
                    _ => Ok(error.into()),
                };
            }
        },
    };
    if let Some(entry) = entry {
        entry.report();
    }
    let claim = reply(call, accepted, number).and_then(|reply| call.track_reply(reply));
    match listener.answer(call.call.id, Ok(number.into())) {
        // It is told by a later call.
        Err(_) if claim.is_none_or(|claim| claim.take()) => {
            Err(NotHandedOff { answer: Answer::Done, number: Some(number) })
        }
        _ => Ok(Answer::Done),
    }
}

fn reply(call: &Trapped<'_>, accepted: &Accepted, number: i32) -> Option<Reply> {
    let &Accepted { ref end, path, flow, client, server, .. } = accepted;
    let inode = fstat(end).ok()?.st_ino;
    Some(Reply::Accepted(AcceptedSocket { number, inode, listener: call.int(0), path, flow, client, server }))
}

/// Whether the caller has this socket by this number.
fn has(call: &Trapped<'_>, number: i32, socket: &OwnedFd) -> io::Result<bool> {
    Ok(fstat(call.tree.found(call.call.tid, number)?.1)?.st_ino == fstat(socket)?.st_ino)
}

/// Goes on with what the router before this one was giving to programs of a tree. What they have by now, and do not know of,
/// they are told.
pub(crate) fn finish(router: &Arc<Router>, tree: &Tree, unaccepted: Vec<(HandoffCall, Connection)>) {
    for (HandoffCall { call, tid, reported, .. }, mut connection) in unaccepted {
        let ServerEnd::There(end) = &connection.end else { continue };
        let numbers = fstat(end).map_err(Into::into).and_then(|stat| replaced_sockets::numbers(tid, stat.st_ino));
        // What it had not taken by then it does not take any more.
        connection.number = numbers.ok().and_then(|numbers| numbers.first().copied());
        // Asked only now, so that it was its table that was looked at.
        let waits = tree.listener.is_waiting(call);
        let answered = match connection.number {
            Some(number) if waits => tree.listener.answer(call, Ok(number.into())).is_ok(),
            _ => !waits && reported,
        };
        if !answered {
            // The call is made again, and finds it.
            router.redeliver(tree.node, connection);
        }
    }
}
