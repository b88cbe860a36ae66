//! One path: a socket in the sender's network namespace, one in the receiver's.

use std::fs::File;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;

use nix::sys::socket::{setsockopt, sockopt};
use slipway_lab::model::Lab;
use slipway_sys::ns::with_net;

use super::{VerifyError, failed};
use crate::lab::Running;

/// Bytes of UDP payload of a packet in a train.
pub(super) const PACKET: usize = 100;
/// IPv4 and UDP headers, bytes.
pub(super) const HEADERS_IN_MTU: usize = 20 + 8;
/// The same and Ethernet's.
pub(super) const HEADERS: usize = 14 + HEADERS_IN_MTU;
/// Bytes that may wait at a receiver: seconds of a train while the machine is busy.
const BUFFER: usize = 8 << 20;

/// From where to where: a node and the position of one of its interfaces, twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Sender.
    pub from: (usize, usize),
    /// Receiver.
    pub to: (usize, usize),
}

impl Route {
    /// The way from one node to another on the first network that both are on.
    pub fn between(lab: &Lab, from: usize, to: usize) -> Result<Self, VerifyError> {
        let (sender, receiver) = (&lab.nodes[from], &lab.nodes[to]);
        let slot_of = |network: usize| receiver.interfaces.iter().position(|interface| interface.network == network);
        let slots = sender.interfaces.iter().enumerate();
        let found = slots.into_iter().find_map(|(slot, interface)| Some((slot, slot_of(interface.network)?)));
        match found {
            Some((out, into)) => Ok(Self { from: (from, out), to: (to, into) }),
            None => Err(VerifyError::NoRoute { from: sender.name.clone(), to: receiver.name.clone() }),
        }
    }
}

/// Sockets at both ends of a route. The sender's is connected, so that the receiver's takes from it alone.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) sender: UdpSocket,
    pub(super) receiver: UdpSocket,
    /// Bytes that the interface takes at once.
    pub(super) mtu: usize,
}

impl Path {
    pub(super) fn open(running: &Running, route: &Route) -> Result<Self, VerifyError> {
        let address = |(node, slot): (usize, usize)| IpAddr::V4(running.lab.nodes[node].interfaces[slot].ipv4);
        let receiver = bind(running, route.to, address(route.to))?;
        let sender = bind(running, route.from, address(route.from))?;
        let ends = || -> std::io::Result<()> {
            sender.connect(receiver.local_addr()?)?;
            receiver.connect(sender.local_addr()?)?;
            receiver.set_nonblocking(true)?;
            setsockopt(&receiver, sockopt::ReceiveTimestampns, &true)?;
            setsockopt(&receiver, sockopt::RcvBufForce, &BUFFER)
                .or_else(|_| setsockopt(&receiver, sockopt::RcvBuf, &BUFFER))?;
            Ok(())
        };
        ends().map_err(failed("join two sockets"))?;
        let network = running.lab.nodes[route.from.0].interfaces[route.from.1].network;
        let mtu = running.state.networks.get(network).map_or(1500, |made| made.mtu);
        Ok(Self { sender, receiver, mtu: mtu as usize })
    }
}

fn bind(running: &Running, (node, _): (usize, usize), address: IpAddr) -> Result<UdpSocket, VerifyError> {
    let pid = running.init(node)?.pid;
    let name = &running.lab.nodes[node].name;
    let net = File::open(format!("/proc/{pid}/ns/net")).map_err(failed(format!("enter node {name}")))?;
    let bound = with_net(net.as_fd(), || UdpSocket::bind(SocketAddr::new(address, 0)));
    bound.and_then(|bound| bound).map_err(failed(format!("open a socket in node {name}")))
}
