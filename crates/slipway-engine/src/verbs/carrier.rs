//! The carrier of a lab's part, as the anchor holds it and as brokers use it. Queue pairs of two machines go by the machines' RDMA
//! devices where both have one (`docs/adr/0081-a-device-carries-queue-pairs.md`).

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType, recv, shutdown, socketpair, sockopt};
use serde::{Deserialize, Serialize};
use slipway_fast::channel::Key;
use slipway_verbs::carrier::{Invitation, Order, Token};
use slipway_verbs::wire;

use super::servant::{DEVICES, Orders, Servant, devices};

/// The program's file.
const PROGRAM: &str = "slipway-carrier";
/// Longest wait for the device of another machine. A device gives up after some seconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// The way of queue pairs to other machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CarriedBy {
    /// By this device of the machine, where the other machine has one too.
    Device(String),
    /// By connections of the hosts' network, for this reason.
    HostNetwork(String),
}

/// The carrier of a machine. It is started anew when it ends.
#[derive(Debug)]
pub(super) struct Carrier {
    at: SocketAddrV4,
    device: String,
    servant: Servant,
}

impl Carrier {
    /// Starts a carrier for the device that has the machine's address. The error says why there is none.
    pub(super) fn start(own: Ipv4Addr, log: &File) -> Result<Self, String> {
        if devices().is_empty() {
            return Err("this machine has no RDMA device".to_owned());
        }
        let orders = Orders::new().map_err(|error| format!("make a socket for orders: {error}"))?;
        let (servant, at) = (Servant::new(PROGRAM, orders), SocketAddrV4::new(own, 0));
        let mut carrier = Self { at, device: device(own), servant };
        let port = carrier.servant.execute(&carrier.at.to_string(), log).map_err(|error| error.to_string())?;
        // A later one has the port of the first, which brokers know.
        carrier.at.set_port(port.parse().map_err(|_| format!("{PROGRAM} says `{port}` for its port"))?);
        Ok(carrier)
    }

    /// The way to it, for brokers.
    pub(super) fn ferry(&self) -> Ferry {
        let is_up = Arc::new(AtomicBool::new(self.servant.is_up()));
        Ferry { orders: Arc::clone(&self.servant.orders.to), port: self.at.port(), is_up }
    }

    /// The way of queue pairs now.
    pub(super) fn state(&self) -> CarriedBy {
        if self.servant.is_up() {
            CarriedBy::Device(self.device.clone())
        } else {
            CarriedBy::HostNetwork("the carrier is being replaced".to_owned())
        }
    }

    /// When the next one is to start.
    pub(super) fn due(&self) -> Option<Instant> {
        self.servant.due()
    }

    /// Whether a process is the carrier. Then it has ended, and its connections with it.
    pub(super) fn ended(&mut self, pid: i32) -> bool {
        self.servant.ended(pid)
    }

    /// Starts the next one, where that is due. Gives whether it did.
    pub(super) fn tend(&mut self, log: &File) -> io::Result<bool> {
        self.servant.tend(&self.at.to_string(), log).map(|begun| begun.is_some())
    }
}

/// The device with this address: devices of Ethernet have the addresses of their network cards.
pub(super) fn device(own: Ipv4Addr) -> String {
    let own = own.to_ipv6_mapped().segments().map(|part| format!("{part:04x}")).join(":");
    let has_it = |device: &String| {
        let gids = fs::read_dir(Path::new(DEVICES).join(device).join("ports/1/gids"));
        gids.into_iter().flatten().flatten().any(|gid| fs::read_to_string(gid.path()).is_ok_and(|it| it.trim() == own))
    };
    devices().into_iter().find(has_it).unwrap_or_else(|| "a device".to_owned())
}

/// The way to a carrier, for a broker.
#[derive(Debug, Clone)]
pub(super) struct Ferry {
    orders: Arc<OwnedFd>,
    port: u16,
    /// The anchor says so. A carrier that hears no order counts as none, until there is the next.
    is_up: Arc<AtomicBool>,
}

impl Ferry {
    /// One whose carrier is a test.
    #[cfg(test)]
    pub(super) fn to_nobody(port: u16) -> (Self, OwnedFd) {
        let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (orders, end) = ends.expect("a pair");
        (Self { orders: Arc::new(orders), port, is_up: Arc::new(AtomicBool::new(true)) }, end)
    }

    /// Whether the carrier runs and takes orders.
    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    /// Notes that there is one, or none.
    pub(super) fn set(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    /// The carrier's socket, which the broker's process has to keep.
    pub(super) fn orders(&self) -> BorrowedFd<'_> {
        self.orders.as_fd()
    }

    /// Has the carrier wait for another machine's. Gives the end for a program, and the invitation for the broker whose
    /// connection this is.
    pub(super) fn expect(&self, asker: BorrowedFd<'_>) -> Result<(OwnedFd, Invitation), Errno> {
        let token = draw()?;
        let own = self.give(|cookie| Order::Expect { token, cookie }, Some(asker))?;
        Ok((own, Invitation::Device { port: self.port, token }))
    }

    /// Joins with the carrier of another machine. Gives the end for a program once bytes get there.
    pub(super) fn connect(&self, at: SocketAddrV4, token: Token) -> Result<OwnedFd, Errno> {
        let own = self.give(|cookie| Order::Connect { token, cookie, at }, None)?;
        let patience = Timespec::try_from(PATIENCE).map_err(|_| Errno::INVAL)?;
        let mut word = [0];
        match poll(&mut [PollFd::new(&own, PollFlags::IN)], Some(&patience)) {
            Ok(0) => Err(Errno::TIMEDOUT),
            Ok(_) => match recv(&own, &mut word[..], RecvFlags::DONTWAIT)? {
                (_, 1) => Ok(own),
                _ => Err(Errno::HOSTUNREACH),
            },
            Err(errno) => Err(errno),
        }
    }

    /// Has bytes of a program's end stand still, or go on.
    pub(super) fn hold(&self, own: BorrowedFd<'_>, is_held: bool) {
        let Ok(cookie) = sockopt::socket_cookie(own) else { return };
        let order = Order::Hold { cookie, is_held };
        let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
        while self.is_up() {
            match wire::send(self.orders.as_fd(), &order, &[]) {
                Ok(()) => return,
                // Many pairs are held at once.
                Err(wire::WireError::Socket(Errno::AGAIN))
                    if poll(&mut [PollFd::new(&self.orders, PollFlags::OUT)], Some(&patience)) == Ok(1) => {}
                // The broker has no time for others that would wait as long.
                Err(_) => self.set(false),
            }
        }
        // Rather no connection than one through a cut. It may have ended already.
        let _ = shutdown(own, Shutdown::Both);
    }

    fn give(&self, order: impl FnOnce(u64) -> Order, beside: Option<BorrowedFd<'_>>) -> Result<OwnedFd, Errno> {
        if !self.is_up() {
            return Err(Errno::HOSTUNREACH);
        }
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let order = order(sockopt::socket_cookie(&own)?);
        let fds: Vec<BorrowedFd<'_>> = std::iter::once(other.as_fd()).chain(beside).collect();
        wire::send(self.orders.as_fd(), &order, &fds).map_err(|_| Errno::HOSTUNREACH)?;
        Ok(own)
    }
}

fn draw() -> Result<Token, Errno> {
    let key = Key::draw().map_err(|_| Errno::AGAIN)?;
    key.bytes().first_chunk().copied().ok_or(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_held_is_shut_down() {
        let (ferry, orders) = Ferry::to_nobody(7);
        let (network, _) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let (own, _) = ferry.expect(network.as_fd()).unwrap();
        let (order, fds) = wire::receive::<Order>(orders.as_fd(), RecvFlags::DONTWAIT).unwrap();
        let Order::Expect { cookie, .. } = order else { panic!("{order:?}") };
        ferry.hold(own.as_fd(), true);
        let (order, _) = wire::receive::<Order>(orders.as_fd(), RecvFlags::DONTWAIT).unwrap();
        assert_eq!(order, Order::Hold { cookie, is_held: true });
        // The carrier ends before the next cut.
        ferry.set(false);
        ferry.hold(own.as_fd(), true);
        assert_eq!(recv(&fds[0], &mut [0; 1][..], RecvFlags::DONTWAIT).unwrap().1, 0);
        assert!(matches!(ferry.expect(network.as_fd()), Err(Errno::HOSTUNREACH)));
    }
}
