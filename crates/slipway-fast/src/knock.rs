//! Knocking: how a listener hears of a connection that no packet announces.
//!
//! A program's listening socket stays the one that it made. To have it become readable, wake who waits, and count in its
//! queue as any connection does, the router makes one: from a socket of the same node, over its loopback, to the very address
//! that is asked for. The kernel picks the listener (`SO_REUSEPORT`, wildcard addresses) and refuses where there is none. When
//! the program accepts, the knock is recognised by the address it comes from, which no other socket of the node can have.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_reuseaddr, set_socket_timeout};

use crate::sync::lock;

/// Where sockets that knock are bound: above the range of ephemeral ports (`ip_local_port_range`).
const PORTS: std::ops::Range<u16> = 61000..65535;

/// How long a listener whose queue is full may take to make room.
const PATIENCE: Duration = Duration::from_millis(50);

/// A socket within a node, bound for good to an address of its own. It can knock again and again.
#[derive(Debug)]
pub struct Knocker {
    /// Made in the node's network namespace.
    pub socket: OwnedFd,
    /// Where its knocks come from.
    pub address: SocketAddr,
}

impl Knocker {
    /// Makes a socket of the node's a knocker, bound to the node's address `ip` of its family.
    ///
    /// # Errors
    /// `EADDRINUSE` where no port is left.
    pub fn new(socket: OwnedFd, ip: IpAddr) -> io::Result<Self> {
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        // Or two could have the same port (`socket(7)`).
        set_socket_reuseaddr(&socket, false)?;
        // A port that is asked for by number stays with the socket when it disconnects (SOCK_BINDPORT_LOCK).
        for port in PORTS {
            let address = SocketAddr::new(ip, port);
            match rustix::net::bind(&socket, &address) {
                Err(Errno::ADDRINUSE) => {}
                other => return Ok(other.map(|()| Self { socket, address })?),
            }
        }
        Err(Errno::ADDRINUSE.into())
    }

    /// Knocks at a listener of the node.
    ///
    /// # Errors
    /// `ECONNREFUSED` where nobody listens, `EINPROGRESS` or `ETIMEDOUT` where its queue is full.
    pub fn knock(&self, at: SocketAddr) -> Result<(), Errno> {
        rustix::net::connect(&self.socket, &at)
    }

    /// Ends the knock, whether somebody has accepted it or not. Both ends are reset: nothing waits for late packets.
    pub fn rest(&self) {
        // It cannot fail on a socket of TCP (`tcp_disconnect`).
        let _ = rustix::net::connect_unspec(&self.socket);
    }
}

/// The knockers of a host's nodes, by node.
#[derive(Debug, Default)]
pub struct Knockers(Mutex<HashMap<usize, VecDeque<Arc<Knocker>>>>);

impl Knockers {
    /// Adds one, or brings one back.
    pub fn put(&self, node: usize, knocker: Arc<Knocker>) {
        lock(&self.0).entry(node).or_default().push_back(knocker);
    }

    /// Takes one of this family; `None` where all are out.
    pub fn take(&self, node: usize, ipv6: bool) -> Option<Arc<Knocker>> {
        let mut all = lock(&self.0);
        let of_node = all.get_mut(&node)?;
        let at = of_node.iter().position(|knocker| knocker.address.is_ipv6() == ipv6)?;
        // The one that rested longest comes first.
        of_node.remove(at)
    }

    /// One of this family that rests, and stays here: to ask it what only a socket of the node knows.
    pub fn look(&self, node: usize, ipv6: bool) -> Option<Arc<Knocker>> {
        let all = lock(&self.0);
        all.get(&node)?.iter().find(|knocker| knocker.address.is_ipv6() == ipv6).cloned()
    }

    /// Drops those of a node that has ended.
    pub fn forget(&self, node: usize) {
        lock(&self.0).remove(&node);
    }
}
