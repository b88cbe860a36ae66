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
    let wishes = wishes(call)?;
    let listening = call.socket()?;
    let protocol = sockopt::int(&listening, PROTOCOL)?;
    let is_ours = [libc::IPPROTO_TCP, libc::IPPROTO_MPTCP].contains(&protocol);
    // A socket that does not listen is refused by the kernel in its own words. One that was handed out never does.
    if !is_ours || sockopt::int(&listening, ACCEPTS)? == 0 {
        return Ok(Answer::GoOn);
    }
    let blocks = !fcntl_getfl(&listening)?.contains(OFlags::NONBLOCK);
    let parker = &call.router.parker;
    if let Some(answer) = take(call, &listening, wishes)? {
        return Ok(answer);
    }
    if !blocks {
        return Err(Errno::AGAIN.into());
    }
    parker.park(call, &listening, socket_timeout(&listening, Timeout::Recv)?)?;
    // What came in between was told to nobody.
    if is_readable(&listening)? && parker.take_back(call, &listening)? {
        if let Some(answer) = take(call, &listening, wishes)? {
            return Ok(answer);
        }
        // Another acceptor was quicker.
        parker.park(call, &listening, socket_timeout(&listening, Timeout::Recv)?)?;
    }
    Ok(Answer::Parked)
}

fn wishes(call: &Trapped<'_>) -> Result<Wishes, Answer> {
    let flags = if call.call.number == libc::SYS_accept4 { call.int(3) } else { 0 };
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(Errno::INVAL.into());
    }
    Ok(Wishes { nonblocking: flags & libc::SOCK_NONBLOCK != 0, close_on_exec: flags & libc::SOCK_CLOEXEC != 0 })
}

/// Accepts the first that there is; `None` where there is none.
fn take(call: &Trapped<'_>, listening: &OwnedFd, wishes: Wishes) -> Result<Option<Answer>, Answer> {
    loop {
        let Some((accepted, peer)) = first(call, listening)? else { return Ok(None) };
        let peer = SocketAddr::try_from(peer).map_err(|_| Errno::IO)?;
        let knock = call.router.take_pending(call.node, canonical(peer));
        let (end, peer) = match knock {
            Some(pending) => {
                let made = furnish(call, &accepted, &pending);
                let client = shown(pending.client, peer.is_ipv6());
                // Only now, so that the listener's queue counts it for as long as it is in it.
                call.router.rest(call.node, pending.knocker);
                match (made, pending.end) {
                    (Ok(()), Some(end)) => (end, client),
                    // Its client sees it end.
                    _ => continue,
                }
            }
            None => (accepted, peer),
        };
        fcntl_setfl(&end, if wishes.nonblocking { OFlags::NONBLOCK } else { OFlags::empty() })?;
        if call.call.args[1] != 0 {
            call.write(1, &write(peer), false)?;
        }
        return match call.listener.install_as_answer(call.call.id, end.as_fd(), wishes.close_on_exec) {
            Ok(_) => Ok(Some(Answer::Done)),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => Ok(Some(Answer::Done)),
            Err(error) => Err(error.into()),
        };
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
fn furnish(call: &Trapped<'_>, accepted: &OwnedFd, pending: &Pending) -> Result<(), Answer> {
    let ipv6 = sockopt::int(accepted, Name { level: libc::SOL_SOCKET, name: libc::SO_DOMAIN })? == libc::AF_INET6;
    let Some(end) = &pending.end else { return Ok(()) };
    carry(accepted, end)?;
    let options = Options::of(accepted);
    if pending.path == Path::Tcp {
        options.apply(end)?;
    }
    let [local, peer] = [pending.server, pending.client].map(|address| shown(address, ipv6));
    let note = Note { path: pending.path, flow: pending.flow, local, peer, told: true, options };
    Ok(call.router.notes.put(end, &note)?)
}
