//! Wake-up sockets: how a listener notices a connection that no packet announces.
//!
//! A program's listening socket stays the one that it made. To make it readable, the router connects a wake-up socket to
//! the client's very target address, from a socket of the same node over its loopback. This wakes programs that wait, and
//! counts in the listener's queue as any connection does. The kernel picks the listener (`SO_REUSEPORT`, wildcard
//! addresses) and refuses where there is none. When the program accepts, the router recognises the wake-up socket by its
//! address, which no other socket of the node can have.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::net::sockopt::{set_socket_keepalive, set_socket_reuseaddr, set_tcp_keepidle, socket_error};

use slipway_lab::id::NodeId;

use crate::sync::{lock, timespec, whole};

/// Ports of wake-up sockets, above the range of ephemeral ports (`ip_local_port_range`).
const PORTS: std::ops::Range<u16> = 61000..65535;

/// Longest wait for room in a listener's full queue.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// Time after which the kernel asks whether the listener still holds a wake-up, and asks again.
///
/// A listener that closes can lose a wake-up without a word. The kernel drops the last packet of its handshake where the port
/// was just given up (`__inet_inherit_port`, `net/ipv4/inet_hashtables.c`). No reset follows. The probe is answered by one.
const PROBE_AFTER: Duration = Duration::from_secs(1);

/// Time after which the router requests others in place of missing ones.
const AGAIN: Duration = Duration::from_secs(1);

/// A socket within a node, bound for good to an address of its own. It connects again and again.
#[derive(Debug)]
pub struct WakeupSocket {
    /// A socket made in the node's network namespace.
    pub socket: OwnedFd,
    /// The address that it is bound to.
    pub address: SocketAddr,
}

impl WakeupSocket {
    /// Makes a wake-up socket of a socket of the node's, bound to the node's address `ip` of its family.
    ///
    /// # Errors
    /// `EADDRINUSE` where no port is left.
    pub fn new(socket: OwnedFd, ip: IpAddr) -> io::Result<Self> {
        fcntl_setfl(&socket, OFlags::NONBLOCK)?;
        // Otherwise two sockets could have the same port (`socket(7)`).
        set_socket_reuseaddr(&socket, false)?;
        set_tcp_keepidle(&socket, PROBE_AFTER)?;
        set_socket_keepalive(&socket, true)?;
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

    /// A wake-up socket that another router had, whose wake-up no program has accepted yet.
    ///
    /// # Errors
    /// `ENOTCONN` where it is not connected, or was accepted.
    pub fn still_pending(socket: OwnedFd) -> io::Result<Self> {
        let mut wakeup = [PollFd::new(&socket, PollFlags::RDHUP)];
        // Its other end was closed with the router that had accepted it.
        if poll(&mut wakeup, Some(&Timespec::default()))? > 0 {
            return Err(Errno::NOTCONN.into());
        }
        fcntl_setfl(&socket, OFlags::NONBLOCK)?;
        let address = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        Ok(Self { socket, address })
    }

    /// Connects to a listener of the node, and waits this long for room in its queue. The kernel has carried a segment over
    /// loopback when it is sent, or soon after.
    ///
    /// # Errors
    /// `ECONNREFUSED` where nobody listens, `ECONNRESET` where the listener closes meanwhile, `EINPROGRESS` where its queue is
    /// full.
    pub fn wake(&self, at: SocketAddr, patience: Duration) -> Result<(), Errno> {
        match rustix::net::connect(&self.socket, &at) {
            Err(Errno::INPROGRESS) => {}
            done => return done,
        }
        let until = Instant::now() + patience;
        let mut wakeup = [PollFd::new(&self.socket, PollFlags::OUT)];
        loop {
            let left = timespec(until.saturating_duration_since(Instant::now()));
            match poll(&mut wakeup, Some(&left)) {
                Ok(0) => return Err(Errno::INPROGRESS),
                Ok(_) => return socket_error(&self.socket)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a byte that nobody reads: a listener that defers (`TCP_DEFER_ACCEPT`) has not noticed the connection before.
    pub fn send_byte(&self) {
        // The wake-up may have ended meanwhile.
        let _ = rustix::net::send(&self.socket, b"?", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Ends the wake-up, whether a program has accepted it or not. The kernel resets both ends: nothing waits for late
    /// packets.
    pub fn release(&self) {
        // It cannot fail on a socket of TCP (`tcp_disconnect`).
        let _ = rustix::net::connect_unspec(&self.socket);
    }
}

/// The wake-up sockets of a host's nodes.
#[derive(Debug)]
pub struct WakeupSockets {
    stocks: Mutex<Stocks>,
    /// Notified when sockets came while a thread waited.
    came: Condvar,
    /// Most resting sockets of all nodes when others come: each is a descriptor.
    most: usize,
}

#[derive(Debug, Default)]
struct Stocks {
    /// Sockets by node, and whether they are of IPv6.
    stocks: HashMap<(NodeId, bool), Stock>,
    /// Threads that wait for one.
    waiting: usize,
}

#[derive(Debug, Default)]
struct Stock {
    /// Resting sockets. The one that rested longest is the first.
    ready: VecDeque<Arc<WakeupSocket>>,
    requested: Request,
}

/// Whether more have been requested and are still to come. They come many at a time. A thread that requested again before
/// all are there would get many times as many as it needs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Request {
    #[default]
    No,
    Yes,
    /// The requested sockets did not come in time. No thread waits for them any more; from then on threads request others.
    InVain(Instant),
}

impl Request {
    fn in_vain() -> Self {
        Self::InVain(Instant::now() + AGAIN)
    }
}

impl WakeupSockets {
    /// No sockets, with room for this many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { stocks: Mutex::default(), came: Condvar::new(), most }
    }

    /// Adds the sockets of a request: all that come of it, if any.
    pub fn add(&self, node: NodeId, ipv6: bool, wakeup_sockets: Vec<WakeupSocket>) {
        self.change(|stocks| {
            let stock = stocks.stock(node, ipv6);
            stock.requested = if wakeup_sockets.is_empty() { Request::in_vain() } else { Request::No };
            stock.ready.extend(wakeup_sockets.into_iter().map(Arc::new));
            stocks.trim(self.most);
        });
    }

    /// Puts a socket back.
    pub fn put(&self, node: NodeId, wakeup_socket: Arc<WakeupSocket>) {
        self.change(|stocks| stocks.stock(node, wakeup_socket.address.is_ipv6()).ready.push_back(wakeup_socket));
    }

    fn change(&self, change: impl FnOnce(&mut Stocks)) {
        let mut stocks = lock(&self.stocks);
        change(&mut stocks);
        if stocks.waiting > 0 {
            self.came.notify_all();
        }
    }

    /// Takes a socket of this family. If all are in use, returns `None`, and `ask` requests more, unless earlier requested
    /// ones are still to come.
    pub fn take(&self, node: NodeId, ipv6: bool, ask: impl FnOnce()) -> Option<Arc<WakeupSocket>> {
        let mut stocks = lock(&self.stocks);
        let stock = stocks.stock(node, ipv6);
        if let taken @ Some(_) = stock.ready.pop_front() {
            return taken;
        }
        stock.requested = match stock.requested {
            Request::No => Request::Yes,
            Request::InVain(until) if until <= Instant::now() => Request::in_vain(),
            Request::Yes | Request::InVain(_) => return None,
        };
        drop(stocks);
        ask();
        None
    }

    /// Waits for requested sockets. False where they do not come until then; after that no thread waits, until they do.
    pub fn wait(&self, node: NodeId, ipv6: bool, until: Instant) -> bool {
        let mut stocks = lock(&self.stocks);
        stocks.waiting += 1;
        let to_come = |stocks: &mut Stocks| {
            let stock = stocks.stock(node, ipv6);
            stock.ready.is_empty() && stock.requested == Request::Yes
        };
        let patience = until.saturating_duration_since(Instant::now());
        let (mut stocks, waited) = whole(self.came.wait_timeout_while(stocks, patience, to_come));
        stocks.waiting -= 1;
        let stock = stocks.stock(node, ipv6);
        if waited.timed_out() {
            stock.requested = Request::in_vain();
        }
        !matches!(stock.requested, Request::InVain(_))
    }

    /// A resting socket of this family, which stays here, for queries that only a socket of the node answers.
    pub fn look(&self, node: NodeId, ipv6: bool) -> Option<Arc<WakeupSocket>> {
        lock(&self.stocks).stocks.get(&(node, ipv6))?.ready.front().cloned()
    }

    /// Drops the sockets of a node that has ended.
    pub fn forget(&self, node: NodeId) {
        lock(&self.stocks).stocks.retain(|(of, _), _| *of != node);
    }
}

impl Stocks {
    fn stock(&mut self, node: NodeId, ipv6: bool) -> &mut Stock {
        self.stocks.entry((node, ipv6)).or_default()
    }

    /// Drops surplus sockets, where most are.
    fn trim(&mut self, most: usize) {
        let count: usize = self.stocks.values().map(|stock| stock.ready.len()).sum();
        for _ in most..count {
            let fullest = self.stocks.values_mut().max_by_key(|stock| stock.ready.len());
            fullest.and_then(|stock| stock.ready.pop_front());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use slipway_sys::sockopt::{self, Name};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn some(addresses: &[&str]) -> Vec<WakeupSocket> {
        let wakeup_socket = |address: &&str| {
            let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
            WakeupSocket { socket: socket.expect("a socket"), address: address.parse().expect("an address") }
        };
        addresses.iter().map(wakeup_socket).collect()
    }

    /// The socket that was taken, and whether the router must ask for more.
    fn take(wakeup_sockets: &WakeupSockets, node: NodeId, ipv6: bool) -> (Option<u16>, bool) {
        let mut asks = false;
        let taken = wakeup_sockets.take(node, ipv6, || asks = true);
        (taken.map(|wakeup_socket| wakeup_socket.address.port()), asks)
    }

    #[test]
    fn who_finds_none_gets_the_next_that_comes_of_its_family() {
        let wakeup_sockets = &WakeupSockets::new(8);
        let ports = std::thread::scope(|scope| {
            let waiting = [false, true].map(|ipv6| {
                assert_eq!(take(wakeup_sockets, NodeId(1), ipv6), (None, true));
                scope.spawn(move || {
                    assert!(wakeup_sockets.wait(NodeId(1), ipv6, Instant::now() + LONG));
                    take(wakeup_sockets, NodeId(1), ipv6)
                })
            });
            wakeup_sockets.add(NodeId(1), true, some(&["[::1]:6"]));
            wakeup_sockets.add(NodeId(1), false, some(&["127.0.0.1:4"]));
            waiting.map(|one| one.join().expect("it does not panic"))
        });
        assert_eq!(ports, [(Some(4), false), (Some(6), false)]);
    }

    #[test]
    fn more_are_asked_for_once_all_that_were_asked_for_are_there() {
        let wakeup_sockets = WakeupSockets::new(8);
        assert_eq!(take(&wakeup_sockets, NodeId(1), false), (None, true));
        assert_eq!(take(&wakeup_sockets, NodeId(1), false), (None, false));
        // Neither those of other nodes and families, nor one that comes back, are what was asked for.
        wakeup_sockets.add(NodeId(1), true, some(&["[::1]:6"]));
        wakeup_sockets.add(NodeId(2), false, some(&["127.0.0.1:2"]));
        for back in some(&["127.0.0.1:3"]) {
            wakeup_sockets.put(NodeId(1), Arc::new(back));
        }
        assert_eq!(take(&wakeup_sockets, NodeId(1), false), (Some(3), false));
        assert_eq!(take(&wakeup_sockets, NodeId(1), false), (None, false));
        wakeup_sockets.add(NodeId(1), false, some(&["127.0.0.1:4"]));
        assert_eq!(take(&wakeup_sockets, NodeId(1), false), (Some(4), false));
        // Somebody else was quicker: who waits is to ask.
        assert!(wakeup_sockets.wait(NodeId(1), false, Instant::now() + LONG));
        assert_eq!(take(&wakeup_sockets, NodeId(1), false), (None, true));
    }

    #[test]
    fn nobody_waits_for_what_was_waited_for_in_vain() {
        let wakeup_sockets = WakeupSockets::new(8);
        for none_come in
            [|_: &WakeupSockets| (), |wakeup_sockets: &WakeupSockets| wakeup_sockets.add(NodeId(1), false, Vec::new())]
        {
            assert_eq!(take(&wakeup_sockets, NodeId(1), false), (None, true));
            none_come(&wakeup_sockets);
            assert!(!wakeup_sockets.wait(NodeId(1), false, Instant::now()));
            assert!(!wakeup_sockets.wait(NodeId(1), false, Instant::now() + LONG));
            assert_eq!(take(&wakeup_sockets, NodeId(1), false), (None, false));
            wakeup_sockets.add(NodeId(1), false, some(&["127.0.0.1:4"]));
            assert!(wakeup_sockets.wait(NodeId(1), false, Instant::now() + LONG));
            assert_eq!(take(&wakeup_sockets, NodeId(1), false), (Some(4), false));
        }
    }

    #[test]
    fn who_has_most_gives_up_what_is_too_many() {
        let wakeup_sockets = WakeupSockets::new(4);
        wakeup_sockets.add(NodeId(1), false, some(&["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4"]));
        wakeup_sockets.add(NodeId(2), false, some(&["127.0.0.1:5"]));
        wakeup_sockets.add(NodeId(2), true, some(&["[::1]:6"]));
        let left = |node, ipv6| std::iter::from_fn(|| take(&wakeup_sockets, node, ipv6).0).collect::<Vec<_>>();
        assert_eq!(
            [left(NodeId(1), false), left(NodeId(2), false), left(NodeId(2), true)],
            [vec![3, 4], vec![5], vec![6]]
        );
    }

    /// `TCP_REPAIR` closes the listener's end as the kernel loses one: the other end does not hear of it.
    #[test]
    fn a_wakeup_that_its_listener_lost_ends() {
        const REPAIR: Name = Name { level: libc::IPPROTO_TCP, name: libc::TCP_REPAIR };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
        let wakeup_socket = WakeupSocket::new(socket.expect("a socket"), Ipv4Addr::LOCALHOST.into()).expect("bound");
        // The second time, it is connected anew.
        for _ in 0..2 {
            wakeup_socket.wake(listener.local_addr().expect("an address"), LONG).expect("there is room");
            let (accepted, _) = listener.accept().expect("accepted");
            sockopt::set(&accepted, REPAIR, &1_i32.to_ne_bytes()).expect("these tests need root");
            drop(accepted);
            let mut wakeup = [PollFd::new(&wakeup_socket.socket, PollFlags::RDHUP)];
            assert_eq!(poll(&mut wakeup, Some(&timespec(LONG))), Ok(1), "it ends");
            wakeup_socket.release();
        }
    }
}
