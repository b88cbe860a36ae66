//! The gateway of a lab's part, as the anchor holds it. Queue pairs of nodes reach RDMA peers outside of the lab by a device of the
//! machine (`docs/adr/0082-peers-outside-of-the-lab.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::Ipv4Net;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use slipway_document::units::Bytes;
use slipway_fast::setup::Outside;
use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_verbs::gateway::{BARRED, Counted, Order};
use slipway_verbs::wire::{self, WireError};

use super::has_device;
use super::servant::{Orders, Servant, devices};
use crate::bypass::Altered;

/// The program's file.
const PROGRAM: &str = "slipway-gateway";
/// Longest wait for what the gateway tells.
const PATIENCE: Duration = Duration::from_secs(1);

/// State of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// The device of the machine.
    pub device: String,
    /// Whether it runs. One that has ended is followed by another.
    pub is_up: bool,
    /// Queue pairs with peers outside of the lab.
    pub queue_pairs: Vec<OutsideLink>,
}

impl GatewayStatus {
    /// This state, with queue pairs of these nodes alone.
    pub(super) fn of(&self, is_theirs: impl Fn(NodeId) -> bool) -> Self {
        let mut these = self.clone();
        these.queue_pairs.retain(|link| is_theirs(link.node));
        these
    }
}

/// A queue pair with a peer outside of the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideLink {
    /// Index of the node in the lab.
    pub node: NodeId,
    /// Its queue pair.
    pub queue_pair: u32,
    /// The peer's address and port.
    pub peer: SocketAddr,
    /// Requests that have completed.
    pub requests: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Messages that have been received.
    pub received: u64,
    /// Bytes of these.
    pub received_bytes: u64,
}

/// The peers outside of the lab that each node of this machine may reach.
fn peers(lab: &Lab) -> Vec<Vec<Ipv4Net>> {
    let of = |node: NodeId| {
        let is_here = lab.is_here(lab.nodes[node].host) && has_device(lab, &lab.nodes[node]);
        let networks = lab.nodes[node].networks(lab).filter(|_| is_here);
        networks.flat_map(|network| network.rdma_peers.iter().copied()).collect()
    };
    lab.nodes.ids().map(of).collect()
}

/// The way to a gateway, made before the routers, which begin before it.
#[derive(Debug)]
pub(crate) struct Entrance {
    orders: Orders,
    peers: Arc<Vec<Vec<Ipv4Net>>>,
    memory: BTreeMap<NodeId, u64>,
}

impl Entrance {
    /// Makes the way; none where no node of this machine may reach a peer outside.
    ///
    /// # Errors
    /// As `socketpair(2)`.
    pub(crate) fn new(lab: &Lab) -> io::Result<Option<Self>> {
        let peers = peers(lab);
        if peers.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        // A node without a limit has as much as the machine.
        let info = rustix::system::sysinfo();
        let machine = info.totalram.saturating_mul(info.mem_unit.into());
        let of = |node: NodeId| (node, lab.nodes[node].limits.memory.map_or(machine, |Bytes(bytes)| bytes));
        let memory = lab.nodes.ids().map(of).collect();
        Ok(Some(Self { orders: Orders::new()?, peers: Arc::new(peers), memory }))
    }

    /// The way for routers.
    pub(crate) fn outside(&self) -> io::Result<Outside> {
        Ok(Outside { gateway: self.orders.to.try_clone()?, peers: Arc::clone(&self.peers) })
    }
}

/// The gateway of a machine. It is started anew when it ends.
#[derive(Debug)]
pub(super) struct Gateway {
    own: Ipv4Addr,
    device: String,
    servant: Servant,
    /// Listeners of nodes, which outlive it.
    listeners: BTreeMap<NodeId, OwnedFd>,
    /// Most bytes of each node's memory that are registered at once.
    memory: BTreeMap<NodeId, u64>,
    /// Nodes that reach nobody.
    barred: BTreeSet<NodeId>,
}

impl Gateway {
    /// Starts a gateway for the device that reaches the peers. `listener` makes a node's.
    ///
    /// # Errors
    /// Where no device reaches them all, or the program is missing.
    pub(super) fn start(
        entrance: Entrance,
        log: &File,
        mut listener: impl FnMut(NodeId) -> io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        let Entrance { orders, peers, memory } = entrance;
        let own = address(&peers).map_err(io::Error::other)?;
        let with_peers = peers.iter().enumerate().filter(|(_, of_node)| !of_node.is_empty());
        let nodes: Vec<NodeId> = with_peers.map(|(node, _)| NodeId(node)).collect();
        let listeners = nodes.into_iter().map(|node| Ok((node, listener(node)?))).collect::<io::Result<_>>()?;
        let (servant, device, barred) = (Servant::new(PROGRAM, orders), String::new(), BTreeSet::new());
        let mut gateway = Self { own, device, servant, listeners, memory, barred };
        gateway.device = gateway.servant.execute(&own.to_string(), log)?;
        gateway.tell_all()?;
        Ok(gateway)
    }

    /// Tells a gateway of its nodes. Those that reach nobody come first: programs of the others call at once.
    fn tell_all(&self) -> io::Result<()> {
        self.tell_barred()?;
        for (&node, listener) in &self.listeners {
            let memory = self.memory.get(&node).copied().unwrap_or(0);
            self.give(&Order::Node { node: number(node)?, memory }, &[listener.as_fd()])?;
        }
        Ok(())
    }

    fn tell_barred(&self) -> io::Result<()> {
        let nodes = self.barred.iter().map(|&node| number(node)).collect::<io::Result<Vec<u32>>>()?;
        let mut parts = nodes.chunks(BARRED);
        let first = parts.next().unwrap_or_default().to_vec();
        self.give(&Order::Barred { nodes: first, is_first: true }, &[])?;
        parts.try_for_each(|part| self.give(&Order::Barred { nodes: part.to_vec(), is_first: false }, &[]))
    }

    /// Gives an order. A gateway that takes none within a second is stuck.
    fn give(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let orders = self.servant.orders.to.as_fd();
        loop {
            wait(orders, PollFlags::OUT)?;
            match wire::send(orders, order, fds) {
                // Routers give orders too, and were faster.
                Err(WireError::Socket(Errno::AGAIN)) => {}
                given => return given.map_err(io::Error::from),
            }
        }
    }

    /// Has nodes whose links are altered reach nobody: nothing keeps conditions there. Connections that they have end.
    pub(super) fn bar(&mut self, altered: &Altered) {
        let barred: BTreeSet<NodeId> = altered.shaped.union(&altered.parted.cut).copied().collect();
        if std::mem::replace(&mut self.barred, barred) != self.barred && self.tell_barred().is_err() {
            // The next one hears of it from its start.
            self.servant.end();
        }
    }

    /// Its state, with its queue pairs as far as it tells.
    pub(super) fn state(&self) -> GatewayStatus {
        let (device, is_up) = (self.device.clone(), self.servant.is_up());
        let queue_pairs = if is_up { self.queue_pairs().unwrap_or_default() } else { Vec::new() };
        GatewayStatus { device, is_up, queue_pairs }
    }

    fn queue_pairs(&self) -> io::Result<Vec<OutsideLink>> {
        let (own, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        self.give(&Order::Status, &[theirs.as_fd()])?;
        drop(theirs);
        let mut all = Vec::new();
        while wait(own.as_fd(), PollFlags::IN).is_ok() {
            let Ok((counted, _)) = wire::receive::<Counted>(own.as_fd(), RecvFlags::DONTWAIT) else { break };
            let Counted { node, number: queue_pair, peer, requests, sent_bytes, received, received_bytes } = counted;
            let node = NodeId(usize::try_from(node).map_err(io::Error::other)?);
            all.push(OutsideLink { node, queue_pair, peer, requests, sent_bytes, received, received_bytes });
        }
        Ok(all)
    }

    /// When the next one is to start.
    pub(super) fn due(&self) -> Option<Instant> {
        self.servant.due()
    }

    /// Whether a process is the gateway. Then it has ended, and its connections with it.
    pub(super) fn ended(&mut self, pid: i32) -> bool {
        self.servant.ended(pid)
    }

    /// Starts the next one, where that is due. Gives whether it did.
    pub(super) fn tend(&mut self, log: &File) -> io::Result<bool> {
        let begun = self.servant.tend(&self.own.to_string(), log)?.is_some();
        if begun {
            // One that knows only a part of it is of no use.
            self.tell_all().inspect_err(|_| self.servant.end())?;
        }
        Ok(begun)
    }
}

fn number(node: NodeId) -> io::Result<u32> {
    u32::try_from(node.index()).map_err(io::Error::other)
}

fn wait(socket: BorrowedFd<'_>, events: PollFlags) -> io::Result<()> {
    let patience = PATIENCE.try_into().map_err(io::Error::other)?;
    match poll(&mut [PollFd::from_borrowed_fd(socket, events)], Some(&patience))? {
        0 => Err(Errno::TIMEDOUT.into()),
        _ => Ok(()),
    }
}

/// The machine's address towards all of these peers: one device has it.
fn address(peers: &[Vec<Ipv4Net>]) -> Result<Ipv4Addr, String> {
    if devices().is_empty() {
        return Err("this machine has no RDMA device to reach `rdma_peers` by; where its kernel has `rdma_rxe`, \
                    `rdma link add rxe0 type rxe netdev eth0` makes one of a network card"
            .to_owned());
    }
    let all: BTreeSet<Ipv4Net> = peers.iter().flatten().copied().collect();
    let mut found: Option<(Ipv4Addr, Ipv4Net)> = None;
    for net in all {
        let own =
            towards(net).map_err(|error| format!("this machine has no route to `rdma_peers` in {net}: {error}"))?;
        match found {
            Some((other, theirs)) if other != own => {
                return Err(format!(
                    "`rdma_peers` in {net} and {theirs} are reached by two addresses, {own} and {other}: one device serves a lab"
                ));
            }
            _ => found = Some((own, net)),
        }
    }
    found.map(|(own, _)| own).ok_or_else(|| "there is no peer".to_owned())
}

/// The source address of packets to a subnet: the kernel looks its route up, and sends nothing (udp(7)).
fn towards(net: Ipv4Net) -> io::Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((net.hosts().next().unwrap_or(net.addr()), 9))?;
    match socket.local_addr()?.ip() {
        IpAddr::V4(own) => Ok(own),
        IpAddr::V6(_) => Err(Errno::AFNOSUPPORT.into()),
    }
}
