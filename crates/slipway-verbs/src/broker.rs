//! The broker of a virtual host: it names queue pairs and regions, and joins queue pairs that the policy allows to talk.
//!
//! Each node has a listener of its own, so a connection's node is certain. A process that runs a broker waits for its descriptor
//! ([`AsFd`]) and calls [`Broker::turn`], or leaves that to [`Broker::run`].

mod counts;
mod far;
mod groups;
mod limits;
mod made;
mod members;
mod objects;
mod questions;
mod relay;
mod reply;
mod requests;
mod resume;
mod silence;
mod tables;
mod unnamed;

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with};

use crate::untrusted::{Untrusted, untrusted};
use crate::wire::{self, Answer, Gid, Request, WireError};
pub use counts::Traffic;
pub use far::Hosts;
pub use limits::{Limits, Terms};
pub use objects::{Kind, Seal, Silence, Still};
pub use questions::{Join, Membership, Name, Question, Way};
use reply::Done;
use tables::Tables;

/// Bounds of each node. The next of a kind is refused with the error that is named here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Programs with the device open. Another is not accepted: it reads `ECONNRESET`.
    pub programs: usize,
    /// Queue pairs: `ENOMEM`.
    pub queue_pairs: usize,
    /// Regions of memory: `ENOMEM`.
    pub regions: usize,
    /// Connections, among them a datagram queue pair's peers: `ENOBUFS`.
    pub links: usize,
}

impl Default for Caps {
    /// Enough for 1,024 queue pairs and a large program's registrations.
    fn default() -> Self {
        Self { programs: 256, queue_pairs: 1024, regions: 4096, links: 2048 }
    }
}

/// A node of the broker's.
#[derive(Debug)]
pub struct NodeConfig {
    /// Its number, which the policy is asked with.
    pub id: u32,
    /// Its addresses on networks with `rdma: true`. Peers name it by them.
    pub addresses: Vec<IpAddr>,
    /// A listening `SOCK_SEQPACKET` socket, at `/run/slipway/verbs.sock` in the node ([`listen`]).
    pub listener: OwnedFd,
}

/// Whether a node may join a queue pair with one of another node: the first asks. The error is what its program reads.
pub type Policy = Box<dyn FnMut(u32, u32) -> Result<(), Errno> + Send>;

/// State of one node, for `slipway fast status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// The node.
    pub node: u32,
    /// Programs that have the device open.
    pub programs: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Regions.
    pub regions: usize,
    /// Bytes of the regions in all.
    pub registered: u64,
    /// Connections of its queue pairs, and the nodes at their other ends.
    pub links: Vec<LinkStatus>,
    /// Traffic with each peer, with that of connections which have ended.
    pub totals: Vec<PeerTraffic>,
}

/// Traffic of a node with one other, since the broker began, as the node itself says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerTraffic {
    /// The other node; `None` for all that share one count.
    pub peer_node: Option<u32>,
    /// The traffic.
    pub traffic: Traffic,
}

/// A connection, as one of its nodes sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkStatus {
    /// The node's queue pair.
    pub queue_pair: u32,
    /// The node at the other end.
    pub peer_node: u32,
    /// Its queue pair.
    pub peer: u32,
    /// Whether both ends have the memory.
    pub joined: bool,
    /// Whether the broker relays it, because a rule limits it.
    pub relayed: bool,
    /// Whether a carrier has it, and so RDMA devices of two machines.
    pub by_device: bool,
    /// Its traffic, as the node itself says.
    pub traffic: Traffic,
}

/// Errors of a broker. They fit "failed to …".
#[derive(Debug, thiserror::Error)]
#[error("wait for programs of nodes: {0}")]
pub struct BrokerError(#[from] Errno);

/// Binds a listener for a node's programs at a path that the node will see as `/run/slipway/verbs.sock`.
///
/// # Errors
/// When the socket cannot be made or bound.
pub fn listen(path: &std::path::Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 64)?;
    Ok(socket)
}

/// The address as a port's identifier.
#[must_use]
pub fn gid(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The source of an event.
const LISTENER: u64 = 1 << 63;

struct Program {
    node: u32,
    socket: Untrusted,
}

/// The broker of one virtual host.
pub struct Broker {
    epoll: OwnedFd,
    listeners: BTreeMap<u32, OwnedFd>,
    programs: BTreeMap<u64, Program>,
    next_program: u64,
    tables: Tables,
    policy: Policy,
    way: Way,
    /// The number of this host, and how many there are.
    host: (u32, u32),
    limits: Limits,
}

impl AsFd for Broker {
    /// Readable where [`Broker::turn`] has work.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Broker {
    /// Makes a broker without nodes.
    ///
    /// # Errors
    /// When the kernel has no descriptor left.
    pub fn new(caps: Caps, policy: Policy) -> Result<Self, BrokerError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let (listeners, programs) = Default::default();
        Ok(Self {
            epoll,
            listeners,
            programs,
            next_program: 0,
            tables: Tables::new(caps),
            policy,
            way: far::none(),
            host: (0, 1),
            limits: limits::none(),
        })
    }

    /// Takes a node on. One with the same number is removed first.
    ///
    /// # Errors
    /// When its listener cannot be waited for.
    pub fn add(&mut self, node: NodeConfig) -> Result<(), BrokerError> {
        self.remove(node.id);
        rustix::io::ioctl_fionbio(&node.listener, true)?;
        epoll::add(&self.epoll, &node.listener, EventData::new_u64(LISTENER | u64::from(node.id)), EventFlags::IN)?;
        self.listeners.insert(node.id, node.listener);
        self.tables.add(node.id, node.addresses.into_iter().map(gid).collect());
        Ok(())
    }

    /// Gives a node caps of its own. `None`: as the broker's.
    pub fn cap(&mut self, node: u32, queue_pairs: Option<u32>, regions: Option<u32>) {
        self.tables.cap(node, queue_pairs, regions);
    }

    /// Forgets a node: its programs lose the device, and its peers see connections that have ended.
    pub fn remove(&mut self, node: u32) {
        self.end_programs(node);
        // Closing the descriptor takes it out of the epoll set: nobody else has it (`epoll(7)`, question 6).
        self.listeners.remove(&node);
        self.tables.remove(node);
    }

    /// Revokes all connections of a node: both ends' queue pairs fail, and their work requests are flushed. Gives how many.
    pub fn revoke(&mut self, node: u32) -> usize {
        self.revoke_where(|from, to| from == node || to == node)
    }

    /// Puts another policy in the place of the old one, without limits. Otherwise as [`set_rules`](Self::set_rules).
    pub fn set_policy(&mut self, policy: Policy) -> usize {
        self.set_rules(policy, limits::none())
    }

    /// Puts another policy and other limits in the place of the old ones. It revokes connections that they forbid, and those
    /// through shared memory that they limit: programs connect anew. Gives how many connections. Other limits of a relayed
    /// connection hold at once.
    pub fn set_rules(&mut self, policy: Policy, limits: Limits) -> usize {
        (self.policy, self.limits) = (policy, limits);
        let mut forbidden = Vec::new();
        for (from, to) in self.tables.pairs() {
            if (self.policy)(from, to).is_err() || (self.policy)(to, from).is_err() {
                forbidden.push((from, to));
            }
        }
        let unkept = self.tables.limit_anew(&mut self.limits);
        let ended = self.revoke_where(|from, to| forbidden.contains(&(from, to)) || unkept.contains(&(from, to)));
        self.tables.repace();
        self.tables.groups.change_all();
        self.tell_of_groups();
        ended
    }

    fn revoke_where(&mut self, is_due: impl Fn(u32, u32) -> bool) -> usize {
        let (links, queue_pairs) = self.tables.revoke(is_due);
        for (program, number) in queue_pairs {
            self.tell(program, &Answer::Revoked { number }, &[]);
        }
        links
    }

    /// The queue pairs and regions of each node.
    #[must_use]
    pub fn status(&self) -> Vec<NodeStatus> {
        let mut all = self.tables.status();
        for status in &mut all {
            status.programs = self.programs.values().filter(|it| it.node == status.node).count();
        }
        all
    }

    /// Serves programs until the descriptors fail.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn run(&mut self) -> Result<(), BrokerError> {
        loop {
            self.turn(None)?;
        }
    }

    /// Waits for programs, at most for `patience`, and serves those that wait.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn turn(&mut self, patience: Option<Duration>) -> Result<(), BrokerError> {
        let timeout =
            patience.map(|it| Timespec { tv_sec: it.as_secs().cast_signed(), tv_nsec: it.subsec_nanos().into() });
        let mut events = [MaybeUninit::uninit(); 64];
        let happened = match epoll::wait(&self.epoll, events.as_mut_slice(), timeout.as_ref()) {
            Ok((happened, _)) => happened.iter().map(|event| event.data.u64()).collect::<Vec<_>>(),
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        for source in happened {
            if source & LISTENER == 0 {
                self.serve(source);
            } else if let Ok(node) = u32::try_from(source & !LISTENER) {
                self.accept(node);
            }
        }
        self.serve_unnamed();
        self.expire();
        self.tell_of_groups();
        Ok(())
    }

    fn accept(&mut self, node: u32) {
        let Some(listener) = self.listeners.get(&node) else { return };
        let Ok((socket, _)) = acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else { return };
        let socket = Untrusted::from(socket);
        let programs = self.programs.values().filter(|it| it.node == node).count();
        if programs >= self.tables.caps().programs {
            return;
        }
        let id = self.next_program;
        if epoll::add(&self.epoll, &socket, EventData::new_u64(id), EventFlags::IN).is_ok() {
            self.next_program += 1;
            self.programs.insert(id, Program { node, socket });
        }
    }

    /// Serves one request, so that no program holds others up by many.
    fn serve(&mut self, id: u64) {
        let Some(program) = self.programs.get(&id) else { return };
        match wire::receive_untrusted::<Request>(program.socket.as_fd(), RecvFlags::DONTWAIT) {
            Ok((Some(request), fds)) => self.answer(id, &request, fds),
            Err(WireError::Socket(Errno::AGAIN)) => {}
            Ok((None, _)) | Err(_) => self.forget(id),
        }
    }

    fn answer(&mut self, id: u64, request: &Request, fds: Vec<Untrusted>) {
        let Some(program) = self.programs.get(&id) else { return };
        let from = reply::From { program: id, node: program.node };
        let asked = (&mut self.policy, &mut self.limits, &mut self.way);
        let done = requests::answer(&mut self.tables, asked, from, request, fds);
        self.reply(id, done);
    }

    fn reply(&mut self, id: u64, done: Done) {
        for (program, note, fds) in done.notes {
            let fds = untrusted(fds);
            self.tell(program, &note, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
        }
        if let Some(reply) = done.reply {
            // The program has them from now on.
            let fds = untrusted(done.fds);
            self.tell(id, &Answer::Reply(reply), &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
        }
    }

    /// Sends a packet. A program that does not read its packets loses the device.
    fn tell(&mut self, id: u64, packet: &Answer, fds: &[BorrowedFd<'_>]) {
        let Some(program) = self.programs.get(&id) else { return };
        if wire::send(program.socket.as_fd(), packet, fds).is_err() {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u64) {
        if let Some(program) = self.programs.remove(&id) {
            // Its socket closes later.
            let _ = epoll::delete(&self.epoll, &program.socket);
        }
        self.tables.forget(id);
    }
}
