//! `bind(2)` and `listen(2)`: a socket that was handed out has its name, and cannot become a listener of the host.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::socket_domain;
use rustix::net::{AddressFamily, getsockname};
use slipway_sys::sockopt;

use super::accept::{PROTOCOL, is_ours};
use super::{Answer, Trapped};
use crate::metadata::Stored;
use crate::unsupported_options::PathSupport;

/// Longest time to close copies of listeners; usually it is less than a millisecond.
const PATIENCE: Duration = Duration::from_millis(250);

pub(super) fn bind(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let socket = call.socket()?;
    // TCP answers so for a socket that has a name. A pair's socket could otherwise get a name of Unix sockets.
    if call.parts.metadata.of(&socket)?.is_some() {
        return Err(Errno::INVAL.into());
    }
    // The address may be that of a listener that the program has closed.
    if is_ours(sockopt::int(&socket, PROTOCOL)?) {
        call.blocked_accepts.copies.settle(PATIENCE);
    }
    Ok(Answer::GoOn)
}

/// The port that a socket is bound to.
pub(super) fn port(socket: impl AsFd) -> Option<u16> {
    SocketAddr::try_from(getsockname(socket).ok()?).ok().map(|address| address.port())
}

pub(super) fn listen(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let socket = call.socket()?;
    let stored = call.parts.metadata.on(&socket)?;
    if matches!(stored, Stored::Metadata(_)) {
        return Err(Errno::INVAL.into());
    }
    // A listener's credentials are those of the caller of `listen(2)` (`unix(7)`).
    if socket_domain(&socket)? == AddressFamily::UNIX {
        return Ok(Answer::GoOn);
    }
    rustix::net::listen(&socket, call.int(1))?;
    // The kernel may give this listener what another had.
    call.parts.delivery.listener_cache.forget(call.node());
    call.parts.unsupported.listens(call.node(), || port(&socket), PathSupport::of(&socket, &stored));
    Ok(Answer::Result(Ok(0)))
}
