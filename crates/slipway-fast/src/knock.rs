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
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::net::sockopt::{Timeout, set_socket_reuseaddr, set_socket_timeout};

use crate::sync::{lock, whole};

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

    /// One that another router had, where its knock is still to be accepted.
    ///
    /// # Errors
    /// `ENOTCONN` where it does not knock, or was accepted.
    pub fn still_knocking(socket: OwnedFd) -> io::Result<Self> {
        let mut knock = [PollFd::new(&socket, PollFlags::RDHUP)];
        // Its other end was closed with the router that had accepted it.
        if poll(&mut knock, Some(&Timespec::default()))? > 0 {
            return Err(Errno::NOTCONN.into());
        }
        let address = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        Ok(Self { socket, address })
    }

    /// Knocks at a listener of the node.
    ///
    /// # Errors
    /// `ECONNREFUSED` where nobody listens, `EINPROGRESS` or `ETIMEDOUT` where its queue is full.
    pub fn knock(&self, at: SocketAddr) -> Result<(), Errno> {
        rustix::net::connect(&self.socket, &at)
    }

    /// Says something, which nobody reads: a listener that defers (`TCP_DEFER_ACCEPT`) has heard nothing before.
    pub fn speak(&self) {
        // One that has ended meanwhile has nothing to say.
        let _ = rustix::net::send(&self.socket, b"?", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Ends the knock, whether somebody has accepted it or not. Both ends are reset: nothing waits for late packets.
    pub fn rest(&self) {
        // It cannot fail on a socket of TCP (`tcp_disconnect`).
        let _ = rustix::net::connect_unspec(&self.socket);
    }
}

/// The knockers of a host's nodes.
#[derive(Debug, Default)]
pub struct Knockers {
    resting: Mutex<Resting>,
    /// One came while somebody waited.
    came: Condvar,
}

#[derive(Debug, Default)]
struct Resting {
    by_node: HashMap<usize, VecDeque<Arc<Knocker>>>,
    /// Threads that wait for one.
    waiting: usize,
}

impl Knockers {
    /// Adds one, or brings one back.
    pub fn put(&self, node: usize, knocker: Arc<Knocker>) {
        let mut resting = lock(&self.resting);
        resting.by_node.entry(node).or_default().push_back(knocker);
        if resting.waiting > 0 {
            self.came.notify_all();
        }
    }

    /// Takes one of this family; `None` where all are out.
    pub fn take(&self, node: usize, ipv6: bool) -> Option<Arc<Knocker>> {
        lock(&self.resting).take(node, ipv6)
    }

    /// The same, once one comes, or `None` when none has come for so long.
    pub fn wait(&self, node: usize, ipv6: bool, patience: Duration) -> Option<Arc<Knocker>> {
        let mut resting = lock(&self.resting);
        resting.waiting += 1;
        let all_out = |resting: &mut Resting| resting.at(node, ipv6).is_none();
        let (mut resting, _) = whole(self.came.wait_timeout_while(resting, patience, all_out));
        resting.waiting -= 1;
        resting.take(node, ipv6)
    }

    /// One of this family that rests, and stays here: to ask it what only a socket of the node knows.
    pub fn look(&self, node: usize, ipv6: bool) -> Option<Arc<Knocker>> {
        let resting = lock(&self.resting);
        resting.by_node.get(&node)?.iter().find(|knocker| knocker.address.is_ipv6() == ipv6).cloned()
    }

    /// Drops those of a node that has ended.
    pub fn forget(&self, node: usize) {
        lock(&self.resting).by_node.remove(&node);
    }
}

impl Resting {
    fn at(&self, node: usize, ipv6: bool) -> Option<usize> {
        self.by_node.get(&node)?.iter().position(|knocker| knocker.address.is_ipv6() == ipv6)
    }

    /// The one that rested longest comes first.
    fn take(&mut self, node: usize, ipv6: bool) -> Option<Arc<Knocker>> {
        let at = self.at(node, ipv6)?;
        self.by_node.get_mut(&node)?.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_none_gets_the_next_that_comes_of_its_family() {
        let knockers = &Knockers::default();
        let put = |address: &str| {
            let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
            let address = address.parse().expect("an address");
            knockers.put(1, Arc::new(Knocker { socket: socket.expect("a socket"), address }));
        };
        let ports = std::thread::scope(|scope| {
            let waiting =
                [false, true].map(|ipv6| scope.spawn(move || knockers.wait(1, ipv6, Duration::from_secs(30))));
            put("[::1]:6");
            put("127.0.0.1:4");
            waiting.map(|one| one.join().expect("it does not panic").expect("one came").address.port())
        });
        assert_eq!(ports, [4, 6]);
        assert!(knockers.wait(1, false, Duration::ZERO).is_none());
    }
}
