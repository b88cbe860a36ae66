//! Waiting for what the kernel does a little later: IPv6 addresses that become usable, devices that go.
//!
//! The kernel accepts an IPv6 address at once. It takes packets for it only after some work a little later, even
//! without duplicate address detection (`addrconf_dad_work`, net/ipv6/addrconf.c). It announces the address when that
//! is done. A namespace that nobody is in any more ends later too, and its devices with it (`cleanup_net`,
//! `net/core/net_namespace.c`).

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Link, Netlink, NetlinkError, RECEIVE_BYTES};

/// `RTNLGRP_LINK` (include/uapi/linux/rtnetlink.h).
const LINKS: u32 = 1;
/// `RTNLGRP_IPV6_IFADDR` (include/uapi/linux/rtnetlink.h).
const IPV6_ADDRESSES: u32 = 9;
/// How long to wait for the kernel's own worker.
const PATIENCE: Duration = Duration::from_secs(30);

/// Hears of IPv6 addresses becoming usable, from when it is opened, in the namespace that it is opened in.
#[derive(Debug)]
pub struct AddressWatch {
    socket: Socket,
}

impl AddressWatch {
    /// Starts to listen, in the calling thread's network namespace.
    ///
    /// # Errors
    /// As `socket(2)`.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.add_membership(IPV6_ADDRESSES)?;
        Ok(Self { socket })
    }

    /// Waits until all of `addresses`, added since this was opened, are usable.
    ///
    /// # Errors
    /// When the socket fails, or one is not usable after half a minute.
    pub fn wait(self, mut addresses: Vec<Ipv6Addr>) -> Result<(), NetlinkError> {
        let until = Instant::now() + PATIENCE;
        let mut buffer = vec![0; RECEIVE_BYTES];
        while !addresses.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            if poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)).map_err(io::Error::from)? == 0 {
                let late = format!("the kernel has not made {} usable", addresses[0]);
                return Err(NetlinkError::Socket(io::Error::new(io::ErrorKind::TimedOut, late)));
            }
            let received = self.socket.recv(&mut &mut buffer[..], 0)?;
            // Announcements come one to a datagram.
            if let Some(usable) = usable(&buffer[..received]) {
                addresses.retain(|&address| address != usable);
            }
        }
        Ok(())
    }
}

/// Waits until no device of the calling thread's network namespace is one of those meant, and gives the names of those that
/// are there still after `patience`.
///
/// # Errors
/// When a socket fails.
pub fn wait_until_gone(is_meant: impl Fn(&Link) -> bool, patience: Duration) -> Result<Vec<String>, NetlinkError> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.add_membership(LINKS)?;
    // Listed after this listens: none goes unheard.
    let mut netlink = Netlink::open()?;
    let until = Instant::now() + patience;
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        let left: Vec<Link> = netlink.links()?.into_iter().filter(&is_meant).collect();
        let patience = Timespec::try_from(until.saturating_duration_since(Instant::now())).map_err(io::Error::other)?;
        let is_over = || poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&patience)).map(|ready| ready == 0);
        if left.is_empty() || is_over().map_err(io::Error::from)? {
            return Ok(left.into_iter().map(|link| link.name).collect());
        }
        // All are listed again, so its words do not matter, nor that the socket could not hold every message.
        match socket.recv(&mut &mut buffer[..], 0) {
            Err(error) if error.raw_os_error() != Some(libc::ENOBUFS) => return Err(error.into()),
            _ => {}
        }
    }
}

/// The address that an announcement says is usable.
fn usable(announcement: &[u8]) -> Option<Ipv6Addr> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(announcement).ok()?;
    let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(AddressMessage { attributes, .. })) =
        message.payload
    else {
        return None;
    };
    let tentative = |attribute: &AddressAttribute| matches!(attribute, AddressAttribute::Flags(flags) if flags.contains(AddressFlags::Tentative));
    if attributes.iter().any(tentative) {
        return None;
    }
    attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(IpAddr::V6(address)) => Some(*address),
        _ => None,
    })
}
