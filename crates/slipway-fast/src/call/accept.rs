//! `accept(2)` and `accept4(2)`: what is accepted is a connection of the container network, or a knock.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_timeout};
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use slipway_sys::sockopt::{self, Name};

use super::{Answer, Trapped};
use crate::address::{canonical, shown, write};
use crate::note::{Note, Path};
use crate::pending::Pending;
use crate::personality::{Options, carry};
use crate::sync::lock;

const PROTOCOL: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_PROTOCOL };
const ACCEPTS: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_ACCEPTCONN };

/// What the program asked of the new descriptor.
#[derive(Debug, Clone, Copy)]
struct Wishes {
    nonblocking: bool,
    close_on_exec: bool,
}

pub(super) fn accept(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let listening = call.socket()?;
    let wishes = wishes(call)?;
    let protocol = sockopt::int(&listening, PROTOCOL)?;
    let is_ours = [libc::IPPROTO_TCP, libc::IPPROTO_MPTCP].contains(&protocol);
    // A socket that does not listen is refused by the kernel in its own words. One that was handed out never does.
    if !is_ours || sockopt::int(&listening, ACCEPTS)? == 0 {
        return Ok(Answer::GoOn);
    }
    let blocks = !fcntl_getfl(&listening)?.contains(OFlags::NONBLOCK);
    let parker = &call.router.parker;
    let mut accepted = next(call, &listening)?;
    if accepted.is_none() {
        if !blocks {
            return Err(Errno::AGAIN.into());
        }
        let patience = socket_timeout(&listening, Timeout::Recv)?;
        parker.park(call, &listening, patience)?;
        // What came in between was told to nobody.
        if is_readable(&listening)? && parker.take_back(call, &listening)? {
            accepted = next(call, &listening)?;
            if accepted.is_none() {
                // Another acceptor was quicker.
                parker.park(call, &listening, patience)?;
            }
        }
    }
    // Before the program goes on: a listener that it closes next must be closed then.
    drop(listening);
    accepted.map_or(Ok(Answer::Parked), |accepted| give(call, accepted, wishes))
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

/// Puts a connection into the program.
fn give(call: &Trapped<'_>, accepted: Accepted, wishes: Wishes) -> Result<Answer, Answer> {
    let Accepted { end, path, client, server } = accepted;
    fcntl_setfl(&end, if wishes.nonblocking { OFlags::NONBLOCK } else { OFlags::empty() })?;
    if call.call.args[1] != 0 {
        call.write(1, &write(client), false)?;
    }
    match call.listener.install_as_answer(call.call.id, end.as_fd(), wishes.close_on_exec) {
        Ok(_) => Ok(Answer::Done),
        Err(error) => match Errno::from_io_error(&error) {
            // Interrupted, it asks again; killed, its listener may be another's too.
            Some(Errno::NOENT) => {
                call.router.put_back(call.node, end, path, client, server);
                Ok(Answer::Done)
            }
            Some(Errno::MFILE) => {
                call.router.put_back(call.node, end, path, client, server);
                Err(Errno::MFILE.into())
            }
            _ => Err(error.into()),
        },
    }
}

/// Accepts the first that there is; `None` where there is none.
fn next(call: &Trapped<'_>, listening: &OwnedFd) -> Result<Option<Accepted>, Answer> {
    loop {
        let Some((accepted, peer)) = first(call, listening)? else { return Ok(None) };
        let peer = SocketAddr::try_from(peer).map_err(|_| Errno::IO)?;
        let own = SocketAddr::try_from(rustix::net::getsockname(&accepted)?).map_err(|_| Errno::IO)?;
        let Some(pending) = call.router.take_pending(call.node, canonical(peer)) else {
            return Ok(Some(Accepted { end: accepted, path: None, client: peer, server: own }));
        };
        let [client, server] = [pending.client, pending.server].map(|address| shown(address, peer.is_ipv6()));
        let made = match pending.path {
            Some(path) => furnish(call, &accepted, &pending, path, [server, client]),
            None => Ok(()),
        };
        // Only now, so that the listener's queue counts it for as long as it is in it.
        call.router.rest(call.node, pending.knocker);
        if let (Ok(()), Some(end)) = (made, pending.end) {
            return Ok(Some(Accepted { end, path: pending.path, client, server }));
        }
        // Its client sees it end.
    }
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

/// Makes the server's end what the accepted knock would have been: it has inherited from its listener.
fn furnish(
    call: &Trapped<'_>,
    accepted: &OwnedFd,
    pending: &Pending,
    path: Path,
    [local, peer]: [SocketAddr; 2],
) -> Result<(), Answer> {
    let Some(end) = &pending.end else { return Ok(()) };
    carry(accepted, end)?;
    let options = Options::of(accepted);
    if path == Path::Tcp {
        options.apply(end)?;
    }
    Ok(call.router.notes.put(end, &Note { path, flow: pending.flow, local, peer, told: true, options })?)
}
