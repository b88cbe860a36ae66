//! Ends live connections from outside, because they are no longer allowed.
//!
//! # Nothing slips through
//! First the routers learn the new rules, then live connections end. A router checks a connection again whose client's end
//! it hands out meanwhile (`Router::confirm`). So each connection that this does not find is new and already decided by the
//! new rules, or its router will check it. The server's end, handed out or waiting, ends with the client's.
//!
//! Programs may hide ends of pairs during the search, by passing them about. So the search repeats until it finds nothing
//! new. The kernel's own list (`unix_diag`) then shows whether there are pairs that no program was seen to have
//! ([`Revoked`]). TCP's ends cannot hide: the kernel lists them whoever has them.
//!
//! # What programs see
//! A TCP connection looks reset: `ECONNRESET`, or `ECONNABORTED` at the end that was cut. A pair ends in both directions:
//! programs can read data that has arrived, then reading gives 0, and writing fails with `EPIPE`. Nothing outside can make
//! a pair of Unix sockets report `ECONNRESET`. It does so only when an end closes before it has read all, and the ends are
//! the programs'.

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

/// Most repetitions of the search while it finds more.
const PASSES: usize = 8;

/// The connections that were ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revoked {
    /// The connections' numbers, each with its reason.
    pub flows: BTreeMap<u64, Reason>,
    /// Live pairs that no program was seen to have: programs moved their ends all the time, or they are in messages that
    /// nobody has received. Look for them again.
    pub hidden: usize,
}

/// Ends all connections of a host for which `why` gives a reason. The scope must hold all nodes of the host, or other
/// nodes' pairs look hidden.
///
/// # Errors
/// When `/proc` cannot be read, or the kernel does not list sockets; takes root's capabilities.
pub fn revoke(scope: Scope<'_>, why: impl Fn(&Flow) -> Option<Reason>) -> io::Result<Revoked> {
    let mut revoked = Revoked::default();
    let mut seen = BTreeSet::new();
    // If some programs cannot be looked at, this ends all others nevertheless.
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
        // The connection may have ended by now.
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

/// Ends a connection by one of its ends, made in the caller's network namespace.
///
/// # Errors
/// `ENOENT` or `ENOTCONN` where it has ended.
pub(crate) fn cut(end: impl AsFd, path: Path) -> io::Result<()> {
    match path {
        // To shut one end down shuts the other (`unix_shutdown`, `net/unix/af_unix.c`).
        Path::Pair => Ok(shutdown(end, Shutdown::Both)?),
        Path::Tcp => {
            let of_ip = |address: rustix::net::SocketAddrAny| address.try_into().map_err(io::Error::from);
            let local = of_ip(getsockname(&end)?)?;
            let peer = getpeername(&end)?.ok_or(io::ErrorKind::NotConnected)?;
            destroy_tcp(local, of_ip(peer)?, socket_cookie(&end)?)
        }
    }
}

/// Live pairs of the host of which neither end is among `seen`.
fn hidden(scope: Scope<'_>, seen: &BTreeSet<u64>) -> io::Result<usize> {
    let all = with_net(scope.net, unix_sockets)??;
    let is_hidden = |inode: u32| !seen.contains(&u64::from(inode));
    let connected = all.iter().filter(|socket| socket.state == 1 && !socket.named && !socket.shut);
    let pairs = connected.filter_map(|socket| Some((socket.inode, socket.peer_inode?)));
    // The kernel lists each at both ends.
    Ok(pairs.filter(|&(end, other)| end < other && is_hidden(end) && is_hidden(other)).count())
}
