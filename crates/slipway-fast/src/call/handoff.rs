//! The handoff of an accepted connection: the router puts it into its program, and then answers with the descriptor. A
//! signal or the router's end in between leaves the program with an unknown descriptor. The program learns of it when it
//! calls again, or from the next router.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_setfl, fstat};
use rustix::io::Errno;

use slipway_lab::id::NodeId;

use super::{Answer, Trapped};
use crate::address::{canonical, shown, write};
use crate::blocked_accepts::{BlockedAccepts, ReadyConnection};
use crate::delivery::{Announced, Handoff};
use crate::journal::{Entry, HandoffCall};
use crate::metadata::Path;
use crate::parts::Parts;
use crate::pending::{Connection, ServerEnd};
use crate::replaced_sockets;
use crate::reply_tracker::{AcceptedSocket, Moment, Reply};
use crate::shares::Share;
use crate::sync::lock;
use crate::tree::Tree;

/// A connection on its way to the program.
pub(super) struct Accepted {
    /// A share of connections in hand, as [`Connection::share`].
    pub(super) share: Option<Share>,
    /// As [`Connection::entry`].
    pub(super) entry: Option<Entry>,
    pub(super) end: OwnedFd,
    pub(super) path: Option<Path>,
    /// As [`Connection::flow`].
    pub(super) flow: u64,
    /// The address in the form of the program's socket.
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    /// As [`Connection::number`].
    pub(super) number: Option<i32>,
}

impl Accepted {
    /// `None` where its end is not here.
    pub(super) fn of(connection: Connection, ipv6: bool) -> Option<Self> {
        let Connection { share, entry, end: ServerEnd::There(end), path, flow, client, server, number } = connection
        else {
            return None;
        };
        let [client, server] = [client, server].map(|address| shown(address, ipv6));
        Some(Self { share, entry, end, path, flow, client, server, number })
    }

    /// Makes this a connection to accept anew, and to write down anew as one that waits. Its program had no descriptor for
    /// it, or does not know of its descriptor `number`.
    pub(super) fn anew(self, number: Option<i32>) -> Connection {
        let Self { share, entry: _, end, path, flow, client, server, number: _ } = self;
        let [client, server] = [client, server].map(canonical);
        Connection { share, entry: None, end: ServerEnd::There(end), path, flow, client, server, number }
    }
}

/// Flags that the program asked for on the new descriptor.
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

/// The program does not know of the connection, which is still to be accepted.
pub(super) struct NotHandedOff {
    /// The result of the call.
    pub(super) answer: Answer,
    /// The descriptor at which the program has it all the same.
    pub(super) number: Option<i32>,
}

/// Puts a connection into the program and answers the call. The program may have it already, at this `number`.
pub(super) fn hand_off(call: &Trapped<'_>, accepted: &Accepted) -> Result<Answer, NotHandedOff> {
    let Accepted { entry, end, client, number, .. } = accepted;
    // A program that has the connection keeps it.
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
        entry.begin_handoff(call.tree.number, call.call.id, call.call.tid, call.int(0));
    }
    let listener = &call.tree.listener;
    let known = number.filter(|number| has(call, *number, end).unwrap_or(false));
    let number = match known {
        Some(number) => number,
        None => match listener.install(call.call.id, end.as_fd(), None, wishes.close_on_exec) {
            Ok(number) => number,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    // An interrupted program calls again. If it was killed, its listener may be another program's too.
                    Some(Errno::NOENT) => Err(not_handed_off(Answer::Done)),
                    Some(Errno::MFILE) => Err(not_handed_off(Errno::MFILE.into())),
                    _ => Ok(error.into()),
                };
            }
        },
    };
    // The note that the call is being answered stands only while it is.
    call.tree.answer_by(|listener| {
        let now = call.counted_moment();
        if let Some(entry) = entry {
            entry.report(now.map(|now| now.interrupted));
        }
        let claim = reply(call, accepted, number).zip(now).map(|(reply, now)| call.track_reply(reply, now));
        match listener.answer(call.call.id, Ok(number.into())) {
            // A later call gets the answer.
            Err(_) if claim.is_none_or(|claim| claim.take()) => {
                Err(NotHandedOff { answer: Answer::Done, number: Some(number) })
            }
            _ => Ok(Answer::Done),
        }
    })
}

fn reply(call: &Trapped<'_>, accepted: &Accepted, number: i32) -> Option<Reply> {
    let &Accepted { ref end, path, flow, client, server, .. } = accepted;
    let inode = fstat(end).ok()?.st_ino;
    Some(Reply::Accepted(AcceptedSocket { number, inode, listener: call.int(0), path, flow, client, server }))
}

/// Whether the caller has this socket at this descriptor.
fn has(call: &Trapped<'_>, number: i32, socket: &OwnedFd) -> io::Result<bool> {
    Ok(fstat(call.tree.found(call.call.tid, number)?.1)?.st_ino == fstat(socket)?.st_ino)
}

/// Continues the handoffs of the earlier router to the programs of a tree. It tells the programs of connections that they
/// have and do not know of.
pub(crate) fn finish(
    parts: &Parts,
    tree: &Tree,
    blocked_accepts: &BlockedAccepts,
    unaccepted: Vec<(HandoffCall, Connection)>,
) {
    // Calls after the reported one may be those that signals interrupted, so the tree counts from there.
    let reported = unaccepted.iter().map(|(handoff, _)| handoff).filter(|handoff| handoff.reported);
    tree.follow(reported.map(|handoff| handoff.call).min());
    for (handoff, mut connection) in unaccepted {
        let HandoffCall { call, tid, reported, .. } = handoff;
        let ServerEnd::There(end) = &connection.end else { continue };
        let numbers = fstat(end).map_err(Into::into).and_then(|stat| replaced_sockets::numbers(tid, stat.st_ino));
        // The earlier router takes nothing more by now.
        connection.number = numbers.ok().and_then(|numbers| numbers.first().copied());
        // Checked only now: if the call still waits, the searched descriptor table was its caller's.
        let waits = tree.listener.is_waiting(call);
        let answered = match connection.number {
            Some(number) if waits => tree.answer(call, Ok(number.into())).is_ok(),
            // A signal may have come before the answer. The thread's next call says so.
            Some(number) if reported => {
                let _ = track_again(parts, tree, &handoff, &connection, number);
                true
            }
            _ => !waits && reported,
        };
        if !answered {
            // The program calls again, and finds it. From now on it waits as any other.
            connection.entry = None;
            parts.delivery.record(tree.node, &mut connection);
            blocked_accepts.leave_connection(connection);
        }
    }
}

/// Tracks the answer that the earlier router was giving to a call.
fn track_again(
    parts: &Parts,
    tree: &Tree,
    handoff: &HandoffCall,
    connection: &Connection,
    number: i32,
) -> io::Result<()> {
    let &HandoffCall { tid, listener, interrupted: Some(interrupted), .. } = handoff else { return Ok(()) };
    let &Connection { end: ServerEnd::There(ref end), path, flow, client, server, .. } = connection else {
        return Ok(());
    };
    // The addresses in the form of the program's socket.
    let of_socket = parts.metadata.of(end)?.map(|metadata| (metadata.peer, metadata.local));
    let (client, server) = of_socket.unwrap_or((client, server));
    let inode = fstat(end)?.st_ino;
    let socket = AcceptedSocket { number, inode, listener, path, flow, client, server };
    let since = Moment { interrupted, missed: tree.missed() };
    lock(&tree.replies).track(tid, Reply::Accepted(socket), since);
    Ok(())
}

/// Hands a connection over to a blocked accept. If that call is gone, the router announces the connection anew. If nobody
/// can accept it, its client sees it end.
pub(crate) fn complete(parts: &Arc<Parts>, handoff: Handoff) {
    let mut handoff = handoff;
    loop {
        let Handoff { tree, blocked_accepts, call, ready: ReadyConnection { node, ipv6, connection, .. } } = handoff;
        let call = Trapped { parts, tree: &tree, blocked_accepts: &blocked_accepts, call };
        let Some(accepted) = Accepted::of(connection, ipv6) else { return };
        let number = match hand_off(&call, &accepted) {
            Ok(answer) => return call.answer(&answer),
            Err(NotHandedOff { answer, number }) => {
                call.answer(&answer);
                number
            }
        };
        match parts.delivery.announce(node, accepted.anew(number)) {
            Ok(Announced::For(again)) => handoff = again,
            _ => return,
        }
    }
}

/// Announces a connection, the first time or again, whose client has its end already. If nobody listens, or the queue is
/// full, the client sees it end.
pub(crate) fn redeliver(parts: &Arc<Parts>, node: NodeId, connection: Connection) {
    if let Ok(Announced::For(handoff)) = parts.delivery.announce(node, connection) {
        complete(parts, handoff);
    }
}
