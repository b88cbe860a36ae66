//! The process of a broker: made in its virtual host, and without privileges before it hears of anything.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use nix::sched::{CloneFlags, setns};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use sha2::Sha256;
use slipway_fast::channel::{Key, KeyFile};
use slipway_lab::id::NodeId;
use slipway_lab::model::DeviceCaps;
use slipway_sys::cgroup::Group;
use slipway_sys::clone::SingleThread;
use slipway_sys::helper::{Birth, Helper, Newborn};
use slipway_sys::{caps, sched};
use slipway_verbs::broker::{Broker, Caps, Hosts, Kind, NodeConfig, NodeStatus, PeerTraffic, Seal};
use slipway_verbs::wire::Proof;

use super::carrier::Ferry;
use super::confine;
use super::far::{self, Links};
use super::orders::{Answer, Counts, LinkOfNode, NodeVerbs, Order, PeerOfNode, receive, send};
use super::rules::{Networks, Refused, Rules};

/// Longest wait for an answer. A broker answers in microseconds; after this time it is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// A node with a device.
#[derive(Debug)]
pub(super) struct Seat {
    /// Held by the anchor too, so that it outlives a broker.
    pub(super) listener: OwnedFd,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) caps: DeviceCaps,
}

/// The surroundings that a broker is made in.
pub(super) struct Ground<'a> {
    pub(super) alone: SingleThread,
    /// The lab's, held by all of its processes.
    pub(super) lock: BorrowedFd<'a>,
    /// The host's network namespace.
    pub(super) net: BorrowedFd<'a>,
    /// A control group of its own, where sockets that it hands out are guarded.
    pub(super) group: Option<&'a Group>,
    /// The rest of the lab; `None` where the broker may not reach it, or there is none.
    pub(super) elsewhere: Option<Elsewhere>,
    /// A key that the brokers of a host have one after the other, and no program has.
    pub(super) key: &'a KeyFile,
    /// A file for its standard error.
    pub(super) log: BorrowedFd<'a>,
    /// Its nodes: each has a listener, and addresses.
    pub(super) nodes: &'a BTreeMap<NodeId, Seat>,
    /// The networks of all nodes of the lab.
    pub(super) networks: Networks,
}

/// The rest of the lab, for one broker.
pub(super) struct Elsewhere {
    pub(super) setup: far::Setup,
    /// Number of the lab's hosts.
    pub(super) hosts: u32,
    /// Nodes of other hosts: number, host, and addresses.
    pub(super) nodes: Vec<(u32, u32, Vec<IpAddr>)>,
}

impl Elsewhere {
    /// Has a broker accept others, and reach them.
    fn open(&self, broker: &mut Broker, key: Key) -> io::Result<Links> {
        let (own, ferry) = (self.setup.hello.host, self.setup.ferry.clone());
        let (links, way) = Links::start(self.setup.clone(), key)?;
        broker.reach(Hosts { own, count: self.hosts, nodes: self.nodes.clone(), way, still: far::still(ferry) });
        Ok(links)
    }
}

/// A broker that runs.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) helper: Helper,
    control: UnixStream,
}

impl Process {
    /// Makes a broker that keeps these rules, and waits until it runs.
    pub(super) fn start(ground: &Ground<'_>, rules: Order) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        ours.set_write_timeout(Some(PATIENCE))?;
        let group = ground.group.and_then(Group::clone_target);
        let birth = Birth { alone: ground.alone, name: c"slipway-verbs", group, log: Some(ground.log) };
        let (helper, _) = Helper::fork(birth, |newborn| live(ground, rules, &theirs, newborn))?;
        Ok(Self { helper, control: ours })
    }

    /// Gives an order, and waits until it holds. Gives how many connections ended. A broker that does not answer is stuck, and ended.
    pub(super) fn have_heeded(&self, order: &Order) -> io::Result<u64> {
        match self.ask(order)? {
            Answer::Heeded(ended) => Ok(ended),
            Answer::Status(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Asks how it is.
    pub(super) fn status(&self) -> io::Result<Counts> {
        match self.ask(&Order::Status)? {
            Answer::Status(counts) => Ok(counts),
            Answer::Heeded(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn ask(&self, order: &Order) -> io::Result<Answer> {
        let answer = send(&self.control, order).and_then(|()| receive(&self.control));
        answer
            .and_then(|answer| answer.ok_or_else(|| io::ErrorKind::BrokenPipe.into()))
            .inspect_err(|_| self.helper.kill())
    }
}

/// The life of a broker. Programs of the broker before it may call already, so it has the rules from its start.
fn live(ground: &Ground<'_>, rules: Order, control: &UnixStream, newborn: &mut Newborn) -> io::Result<()> {
    limit(ground, control, newborn)?;
    // Before there are other threads: those of the way to other hosts begin below.
    confine::confine(ground.elsewhere.is_some())?;
    let refused = Refused::default();
    let none = Rules::default().into_policy(Arc::clone(&refused));
    let mut broker = Broker::new(Caps::default(), none).map_err(io::Error::other)?;
    let key = ground.key.read()?;
    let seal = seal(key.derived("numbers of nodes"));
    let mut links = ground.elsewhere.as_ref().map(|it| it.open(&mut broker, key)).transpose()?;
    broker.succeed(seal).map_err(io::Error::other)?;
    for (node, seat) in ground.nodes {
        let id = u32::try_from(node.index()).map_err(io::Error::other)?;
        let listener = seat.listener.try_clone()?;
        let addresses = seat.addresses.clone();
        broker.add(NodeConfig { id, addresses, listener }).map_err(io::Error::other)?;
        broker.cap(id, seat.caps.queue_pairs, seat.caps.regions);
    }
    let mut revoked = 0;
    obey(&mut broker, links.as_ref(), rules, &ground.networks, &refused, &mut revoked);
    newborn.ready("")?;
    loop {
        let mut waiting = vec![PollFd::new(control, PollFlags::IN), PollFd::new(&broker, PollFlags::IN)];
        waiting.extend(links.iter().map(|links| PollFd::new(links, PollFlags::IN)));
        let patience = broker.patience().and_then(|patience| patience.try_into().ok());
        let is_late = match poll(&mut waiting, patience.as_ref()) {
            Err(Errno::INTR) => continue,
            polled => polled? == 0,
        };
        let [ordered, called] = [0, 1].map(|at| waiting.get(at).is_some_and(|it| !it.revents().is_empty()));
        if called || is_late {
            broker.turn(Some(Duration::ZERO)).map_err(io::Error::other)?;
        }
        if let Some(links) = &mut links {
            links.serve(&mut broker);
        }
        if ordered {
            // An anchor that is gone ends the broker.
            let Some(order) = receive(control)? else { return Ok(()) };
            let answer = obey(&mut broker, links.as_ref(), order, &ground.networks, &refused, &mut revoked);
            send(control, &answer)?;
        }
    }
}

fn obey(
    broker: &mut Broker,
    links: Option<&Links>,
    order: Order,
    networks: &Networks,
    refused: &Refused,
    revoked: &mut u64,
) -> Answer {
    let ended = match order {
        Order::Rules { policy, conditioned, parted } => {
            let node = |number: u32| NodeId(usize::try_from(number).unwrap_or(usize::MAX));
            broker.set_silence(Box::new(move |one, other| parted.parts(node(one), node(other))));
            let rules = Rules::new(&policy, networks.clone(), conditioned);
            // Looking for connections that are forbidden now is no refusal.
            let before = refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let ended = broker.set_rules(rules.clone().into_policy(Arc::clone(refused)), rules.into_limits());
            *refused.lock().unwrap_or_else(PoisonError::into_inner) = before;
            ended
        }
        Order::Died { nodes } => {
            let numbers = nodes.iter().filter_map(|node| u32::try_from(node.index()).ok());
            numbers.map(|node| broker.end_programs(node)).sum()
        }
        Order::Carrier { is_up } => {
            if let Some(links) = links {
                links.set_carrier(is_up);
            }
            0
        }
        Order::Status => {
            let nodes = broker.status().into_iter().map(told).collect();
            let refused = refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
            return Answer::Status(Counts { nodes, refused, revoked: *revoked });
        }
    };
    let ended = u64::try_from(ended).unwrap_or(u64::MAX);
    *revoked = revoked.saturating_add(ended);
    Answer::Heeded(ended)
}

fn told(status: NodeStatus) -> NodeVerbs {
    let node = |number: u32| NodeId(usize::try_from(number).unwrap_or(usize::MAX));
    let NodeStatus { node: number, programs, queue_pairs, regions, registered, links, totals } = status;
    let links = links.into_iter().map(|link| LinkOfNode {
        queue_pair: link.queue_pair,
        peer_node: node(link.peer_node),
        peer: link.peer,
        joined: link.joined,
        relayed: link.relayed,
        by_device: link.by_device,
        traffic: link.traffic,
    });
    let with = |peer: PeerTraffic| PeerOfNode { peer_node: peer.peer_node.map(node), traffic: peer.traffic };
    let (links, totals) = (links.collect(), totals.into_iter().map(with).collect());
    NodeVerbs { node: node(number), programs, queue_pairs, regions, registered, links, totals }
}

/// Proofs for numbers of nodes, which the next broker makes alike: HMAC-SHA-256 (RFC 2104), shortened.
fn seal(key: Key) -> Seal {
    Box::new(move |node, kind, number| {
        let keyed = Hmac::<Sha256>::new_from_slice(key.bytes()).expect("HMAC takes keys of every length");
        let kind = [u8::from(kind == Kind::Region)];
        let mac = keyed.chain_update(node.to_le_bytes()).chain_update(kind).chain_update(number.to_le_bytes());
        let mut proof = Proof::default();
        proof.iter_mut().zip(mac.finalize().into_bytes()).for_each(|(to, from)| *to = from);
        proof
    })
}

/// Enters the host, and gives up all privileges: a broker needs none.
fn limit(ground: &Ground<'_>, control: &UnixStream, newborn: &Newborn) -> io::Result<()> {
    ground.group.map_or(Ok(()), Group::join_others).map_err(io::Error::other)?;
    setns(ground.net, CloneFlags::CLONE_NEWNET)?;
    let listeners = ground.nodes.values().map(|seat| seat.listener.as_fd());
    let own = [ground.lock, control.as_fd(), newborn.maker().as_fd(), ground.key.as_fd()];
    let ferry = ground.elsewhere.as_ref().and_then(|it| it.setup.ferry.as_ref()).map(Ferry::orders);
    let keep: Vec<_> = own.into_iter().chain(listeners).chain(ferry).collect();
    newborn.keep_only(&keep)?;
    // The anchor may be real-time while a scenario plays.
    let _ = sched::set_usual();
    caps::bound(CapabilitySet::empty())?;
    caps::limit(CapabilitySet::empty())?;
    Ok(rustix::thread::set_no_new_privs(true)?)
}
