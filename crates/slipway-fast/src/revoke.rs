//! Connections that live, ended from outside, because they may not be any more.
//!
//! # Nothing slips through
//! First the routers learn what is forbidden from now on, then what lives is ended. A connection that was admitted before, and whose
//! client's end is being handed out meanwhile, is looked at once more by its router afterwards (`Router::confirm`). So what is
//! not found here is either new, and was asked, or on its way, and will be. The server's end, handed out or waiting to be
//! accepted, ends with the client's.
//!
//! Programs may hide ends of pairs while they are looked for, by passing them about. So it is looked again until nothing new is
//! found; the kernel's own list (`unix_diag`) tells whether there are pairs then that nobody was seen to have ([`Revoked`]).
//! Ends of TCP cannot hide: the kernel lists them whoever has them.
//!
//! # What programs see
//! Of TCP what a reset looks like: `ECONNRESET`, or `ECONNABORTED` at the end that was cut. Of a pair an end in both directions:
//! what has arrived can be read, then reading gives 0, and writing fails with `EPIPE`. There is no way to have a pair of unix
//! sockets say `ECONNRESET` from outside: it does so only when an end is closed that has not read all, and these descriptors
//! are the programs'.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt::socket_cookie;
use rustix::net::{Shutdown, getpeername, getsockname, shutdown};
use slipway_sys::ns::with_net;
use slipway_sys::sock_diag::{destroy_tcp, unix_sockets};

use crate::flows::{Flow, Scope};
use crate::metadata::Path;
use crate::reason::Reason;

/// How often it is looked again while there is more.
const PASSES: usize = 8;

/// The connections that were ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revoked {
    /// The connections' numbers, and why each was.
    pub flows: BTreeMap<u64, Reason>,
    /// Pairs that live and that no program was seen to have: their ends were moved about all the time, or are in messages that
    /// nobody has received. To be looked for again.
    pub hidden: usize,
}

/// Ends all connections of a host that `why` gives a reason for. The scope's nodes are all that the host has, or others' pairs
/// look hidden.
///
/// # Errors
/// When `/proc` cannot be read, or the kernel does not list sockets; takes root's capabilities.
pub fn revoke(scope: Scope<'_>, why: impl Fn(&Flow) -> Option<Reason>) -> io::Result<Revoked> {
    let mut revoked = Revoked::default();
    let mut seen = BTreeSet::new();
    // Where some cannot be looked at, all others are ended nevertheless.
    let mut looked = Ok(());
    for _ in 0..PASSES {
        let before = seen.len();
        looked = scope.pairs(&mut seen, |held| {
            let flow = Flow::of(&held.metadata);
            if let Some(reason) = why(&flow)
                && cut(&held.socket, Path::Pair).is_ok()
            {
                revoked.flows.insert(flow.number, reason);
            }
        });
        if seen.len() == before {
            break;
        }
    }
    for (socket, metadata) in scope.tcp()? {
        let flow = Flow::of(&metadata);
        let destroy = || with_net(scope.net, || destroy_tcp(socket.local, socket.remote, socket.cookie));
        // One that has ended by now is as good.
        if let Some(reason) = why(&flow)
            && destroy()?.is_ok()
        {
            revoked.flows.insert(flow.number, reason);
        }
    }
    looked?;
    revoked.hidden = hidden(scope, &seen)?;
    Ok(revoked)
}

/// Ends a connection, of which this is an end, made in the caller's network namespace.
///
/// # Errors
/// `ENOENT` or `ENOTCONN` where it has ended.
pub(crate) fn cut(end: impl AsFd, path: Path) -> io::Result<()> {
    match path {
        // One end is shut as the other (`unix_shutdown`, `net/unix/af_unix.c`).
        Path::Pair => Ok(shutdown(end, Shutdown::Both)?),
        Path::Tcp => {
            let of_ip = |address: rustix::net::SocketAddrAny| address.try_into().map_err(io::Error::from);
            let local = of_ip(getsockname(&end)?)?;
            let peer = getpeername(&end)?.ok_or(io::ErrorKind::NotConnected)?;
            destroy_tcp(local, of_ip(peer)?, socket_cookie(&end)?)
        }
    }
}

/// Pairs of the host that live, of which neither end is among `seen`.
fn hidden(scope: Scope<'_>, seen: &BTreeSet<u64>) -> io::Result<usize> {
    let all = with_net(scope.net, unix_sockets)??;
    let is_hidden = |inode: u32| !seen.contains(&u64::from(inode));
    let connected = all.iter().filter(|socket| socket.state == 1 && !socket.named && !socket.shut);
    let pairs = connected.filter_map(|socket| Some((socket.inode, socket.peer_inode?)));
    // Each is listed at both ends.
    Ok(pairs.filter(|&(end, other)| end < other && is_hidden(end) && is_hidden(other)).count())
}
