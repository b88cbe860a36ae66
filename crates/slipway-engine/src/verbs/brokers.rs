//! An anchor's part of its lab's RDMA: files of devices, listeners of nodes, and a broker for each virtual host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::wait::WaitStatus;
use rustix::event::PollFd;
use slipway_fast::channel::{Hello, Key, KeyFile};
use slipway_fast::filter;
use slipway_lab::id::{HostId, NodeId};
use slipway_lab::model::Lab;
use slipway_lab::policy::Rule;
use slipway_sys::bpf::SocketGuard;
use slipway_sys::cgroup::Group;

use super::broker::{Elsewhere, Ground, Process, Seat};
use super::carrier::{CarriedBy, Carrier};
use super::far;
use super::gateway::{Entrance, Gateway};
use super::orders::{BrokerStatus, Counts, Order};
use super::rules::Networks;
use super::{GATEWAY, SOCKET, device, has_device, plugin};
use crate::bypass::{Altered, Bypass, BypassError, Near};
use crate::state::LabDir;

/// Time between the end of a broker and the start of the next, so that one that fails at once takes no processor.
const PAUSE: Duration = Duration::from_millis(100);

/// The broker of a virtual host.
#[derive(Debug, Default)]
struct Place {
    nodes: BTreeMap<NodeId, Seat>,
    group: Option<Group>,
    /// Keeps programs from connecting anew what a broker of this group made and handed out. Without it, a broker reaches no other
    /// host.
    guard: Option<SocketGuard>,
    process: Option<Process>,
    /// When the next broker is started, where there is none.
    due: Option<Instant>,
}

/// The RDMA of a lab.
#[derive(Debug)]
pub(crate) struct Brokers {
    places: BTreeMap<HostId, Place>,
    policy: Vec<Rule>,
    altered: Altered,
    log: File,
    /// The brokers' own key, and the lab's number among all whose brokers might meet.
    key: KeyFile,
    number: u64,
    /// The way to other machines by a device, or why there is none.
    carrier: Option<Result<Carrier, String>>,
    /// The way to peers outside of the lab, where a network has any.
    gateway: Option<Gateway>,
}

/// An action on a lab's RDMA that failed. It fits "failed to …".
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {source}")]
pub(crate) struct VerbsError {
    doing: String,
    source: io::Error,
}

fn says(doing: impl Into<String>) -> impl FnOnce(io::Error) -> VerbsError {
    move |source| VerbsError { doing: doing.into(), source }
}

impl Brokers {
    /// Writes the files of all devices, and starts the brokers. `None` where no node has a device.
    pub(crate) fn start(near: &Near<'_>, dir: &LabDir, entrance: Option<Entrance>) -> Result<Option<Self>, VerbsError> {
        let lab = near.lab;
        let with_device: Vec<NodeId> =
            lab.nodes_here().into_iter().filter(|&node| has_device(lab, &lab.nodes[node])).collect();
        if with_device.is_empty() {
            return Ok(None);
        }
        plugin::share(dir).map_err(says("copy the RDMA plug-in"))?;
        // Nodes share a folder that none may write to: their own sockets are bound over this file.
        fs::write(dir.join("node").join(SOCKET), "").map_err(says("make a place for sockets of RDMA"))?;
        let log = File::options().create(true).append(true).open(dir.join("verbs.log"));
        let log = log.map_err(says("open the log of RDMA"))?;
        let (key, number) = identity(lab).map_err(says("make a key for RDMA"))?;
        let (places, policy, altered) = (BTreeMap::new(), lab.policy.clone(), Altered::default());
        let carrier = lab.is_spread().then(|| Carrier::start(lab.machines[lab.part.machine].address, &log));
        let mut brokers = Self { places, policy, altered, log, key, number, carrier, gateway: None };
        for node in with_device {
            let made =
                seat(dir, lab, node).map_err(says(format!("make the RDMA device of {}", lab.nodes[node].name)))?;
            brokers.places.entry(lab.nodes[node].host).or_default().nodes.insert(node, made);
        }
        let gateway = entrance.map(|entrance| open_gateway(entrance, dir, &brokers.log)).transpose();
        brokers.gateway = gateway.map_err(says("start the gateway to `rdma_peers`"))?;
        let hosts: Vec<HostId> = brokers.places.keys().copied().collect();
        for host in hosts {
            brokers.guard(near, host).map_err(says("guard sockets of RDMA"))?;
            brokers.fill(near, host).map_err(says(format!("start the RDMA broker of {}", lab.hosts[host].name)))?;
        }
        Ok(Some(brokers))
    }

    /// State of each broker.
    pub(crate) fn report(&mut self) -> Vec<BrokerStatus> {
        let altered = &self.altered;
        let carried = self.carrier.as_ref().map(|carrier| match carrier {
            Ok(carrier) => carrier.state(),
            Err(why) => CarriedBy::HostNetwork(why.clone()),
        });
        let gateway = self.gateway.as_ref().map(Gateway::state);
        let of = |(&host, place): (&HostId, &Place)| {
            let outside = gateway.as_ref().map(|gateway| gateway.of(|node| place.nodes.contains_key(&node)));
            let counts = place.process.as_ref().and_then(|process| process.status().ok());
            let pid = place.process.as_ref().map(|process| process.helper.number());
            let Counts { nodes, refused, revoked } = counts.unwrap_or_default();
            let conditioned = place.nodes.keys().copied().filter(|node| altered.shaped.contains(node)).collect();
            let (parted, carried) = (altered.parted.clone(), carried.clone());
            BrokerStatus { host, pid, nodes, refused, revoked, conditioned, parted, carried, outside }
        };
        self.places.iter().filter(|(_, place)| !place.nodes.is_empty()).map(of).collect()
    }

    /// Guards what the broker of a host will hand out, where the lab has several hosts.
    fn guard(&mut self, near: &Near<'_>, host: HostId) -> io::Result<()> {
        let lab = near.lab;
        let Some(place) = self.places.get_mut(&host).filter(|_| lab.hosts.len() > 1) else { return Ok(()) };
        // No name of a node begins so.
        place.group = (near.group)(&format!("_verbs.{}", host.index() + 1)).map_err(io::Error::other)?;
        let folder = place.group.as_ref().and_then(Group::clone_target);
        let guard = folder.map(|folder| filter::guard(folder, None)).transpose();
        place.guard = guard.map_err(io::Error::other)?;
        if place.guard.is_none() {
            self.note(lab, host, "has no control group of version 2, so its nodes reach no other host by RDMA");
        }
        Ok(())
    }

    /// The rest of the lab, as the broker of a host is told.
    fn elsewhere(&self, lab: &Lab, host: HostId) -> io::Result<Option<Elsewhere>> {
        let number = |index: usize| u32::try_from(index).map_err(io::Error::other);
        let at = |host: HostId| lab.hosts[host].ipv4.map(|ip| SocketAddr::new(ip.into(), far::PORT));
        let (Some(own), true) = (at(host), self.places.get(&host).is_some_and(|it| it.guard.is_some())) else {
            return Ok(None);
        };
        // Nodes of other machines too, which the lab knows.
        let others = lab.nodes.enumerate().filter(|(_, node)| node.host != host && has_device(lab, node));
        let others: Vec<(NodeId, HostId)> = others.map(|(id, node)| (id, node.host)).collect();
        let hosts: BTreeSet<HostId> = others.iter().map(|(_, host)| *host).collect();
        let peers = hosts.into_iter().filter_map(|other| at(other).map(|at| Ok((number(other.index())?, at))));
        let nodes = others.into_iter().map(|(node, host)| {
            let addresses = device::addresses(lab, node).into_iter().map(|(address, _)| address).collect();
            Ok((number(node.index())?, number(host.index())?, addresses))
        });
        let elsewhere = lab.hosts.enumerate().filter(|(_, there)| there.machine != lab.hosts[host].machine);
        let machines = elsewhere.map(|(id, there)| Ok((number(id.index())?, lab.machines[there.machine].address)));
        let setup = far::Setup {
            hello: Hello::new(self.number, number(host.index())?),
            at: own,
            peers: peers.collect::<io::Result<_>>()?,
            ferry: self.carrier.as_ref().and_then(|carrier| carrier.as_ref().ok()).map(Carrier::ferry),
            machines: machines.collect::<io::Result<_>>()?,
        };
        let nodes = nodes.collect::<io::Result<_>>()?;
        Ok(Some(Elsewhere { setup, hosts: number(lab.hosts.len())?, nodes }))
    }

    fn fill(&mut self, near: &Near<'_>, host: HostId) -> io::Result<()> {
        if let Some(place) = self.places.get_mut(&host) {
            place.due = None;
        }
        let elsewhere = self.elsewhere(near.lab, host)?;
        let Some(place) = self.places.get(&host) else { return Ok(()) };
        let ground = Ground {
            alone: near.alone,
            lock: near.lock,
            net: (near.host_net)(host),
            key: &self.key,
            log: self.log.as_fd(),
            nodes: &place.nodes,
            networks: Networks::of(near.lab),
            group: place.group.as_ref(),
            elsewhere,
        };
        let process = Process::start(&ground, self.rules())?;
        let pid = process.helper.number();
        if let Some(place) = self.places.get_mut(&host) {
            place.process = Some(process);
        }
        self.note(near.lab, host, &format!("runs as process {pid}"));
        Ok(())
    }

    /// Gives an order to all brokers, and gives how many connections ended. A broker that fails is replaced, and its
    /// successor knows the rules from its start.
    fn have_heeded(&self, order: &Order) -> u64 {
        let processes = self.places.values().filter_map(|place| place.process.as_ref());
        processes.filter_map(|process| process.have_heeded(order).ok()).sum()
    }

    fn rules(&self) -> Order {
        let Altered { shaped, parted, .. } = &self.altered;
        Order::Rules { policy: self.policy.clone(), conditioned: shaped.clone(), parted: parted.clone() }
    }

    fn note(&mut self, lab: &Lab, host: HostId, what: &str) {
        self.say(&format!("broker of {}: {what}", lab.hosts[host].name));
    }

    fn say(&mut self, what: &str) {
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        // A full disk is no reason to end the lab.
        let _ = writeln!(self.log, "{now} {what}");
    }
}

/// The brokers' own key, and the lab's number. Brokers of several machines derive the key from the secret of the lab.
fn identity(lab: &Lab) -> io::Result<(KeyFile, u64)> {
    if let Some(secret) = lab.part.secret {
        return Ok((KeyFile::of(&Key::from(secret).derived("brokers"))?, lab.part.number));
    }
    let number = Key::draw()?.bytes().first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    Ok((KeyFile::draw()?, number))
}

/// Makes a node's files, and its listener.
fn seat(dir: &LabDir, lab: &Lab, node: NodeId) -> io::Result<Seat> {
    device::write(dir, lab, node)?;
    let listener = listener(dir, node, SOCKET)?;
    let addresses = device::addresses(lab, node).into_iter().map(|(address, _)| address).collect();
    Ok(Seat { listener, addresses, caps: lab.nodes[node].rdma })
}

/// A listener for a node's programs.
fn listener(dir: &LabDir, node: NodeId, name: &str) -> io::Result<OwnedFd> {
    let path = device::folder(dir, node).join(name);
    let listener = slipway_verbs::broker::listen(&path)?;
    // Programs of any user may have the device open.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Starts the gateway, with a listener in each node that has peers outside of the lab.
fn open_gateway(entrance: Entrance, dir: &LabDir, log: &File) -> io::Result<Gateway> {
    fs::write(dir.join("node").join(GATEWAY), "")?;
    Gateway::start(entrance, log, |node| listener(dir, node, GATEWAY))
}

impl Bypass for Brokers {
    /// Nothing: the anchor hears of a broker's end as of any child's.
    fn waits_for(&self) -> Vec<PollFd<'_>> {
        Vec::new()
    }

    fn patience(&self) -> Option<Duration> {
        let carrier = self.carrier.as_ref().and_then(|carrier| carrier.as_ref().ok()?.due());
        let gateway = self.gateway.as_ref().and_then(Gateway::due);
        let due = self.places.values().filter_map(|place| place.due).chain(carrier).chain(gateway).min();
        due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    fn tend(&mut self, near: &Near<'_>, _: &[bool]) -> bool {
        let now = Instant::now();
        let is_due = |place: &Place| place.due.is_some_and(|due| due <= now);
        let due: Vec<HostId> = self.places.iter().filter(|(_, place)| is_due(place)).map(|(&host, _)| host).collect();
        if let Some(Ok(carrier)) = &mut self.carrier {
            match carrier.tend(&self.log) {
                Ok(false) => {}
                Ok(true) => drop(self.have_heeded(&Order::Carrier { is_up: true })),
                Err(error) => self.say(&format!("carrier: cannot be started: {error}")),
            }
        }
        if let Some(gateway) = &mut self.gateway
            && let Err(error) = gateway.tend(&self.log)
        {
            self.say(&format!("gateway: cannot be started: {error}"));
        }
        for host in due {
            if let Err(error) = self.fill(near, host) {
                self.note(near.lab, host, &format!("cannot be started: {error}"));
                if let Some(place) = self.places.get_mut(&host) {
                    place.due = Some(now + PAUSE);
                }
            }
        }
        false
    }

    fn helper_ended(&mut self, lab: &Lab, status: WaitStatus) -> bool {
        let Some(pid) = status.pid().map(nix::unistd::Pid::as_raw) else { return false };
        if let Some(Ok(carrier)) = &mut self.carrier
            && carrier.ended(pid)
        {
            self.have_heeded(&Order::Carrier { is_up: false });
            self.say(&format!(
                "carrier: ended ({status:?}): its queue pairs fail, and new ones go by the hosts' network"
            ));
            return true;
        }
        if self.gateway.as_mut().is_some_and(|gateway| gateway.ended(pid)) {
            self.say(&format!("gateway: ended ({status:?}): its queue pairs fail"));
            return true;
        }
        let is = |place: &Place| place.process.as_ref().is_some_and(|one| one.helper.number() == pid);
        let Some((&host, place)) = self.places.iter_mut().find(|(_, place)| is(place)) else { return false };
        place.process = None;
        place.due = Some(Instant::now() + PAUSE);
        self.note(lab, host, &format!("ended ({status:?}): queue pairs go on, and new ones wait for the next"));
        true
    }

    fn born(&mut self, _: &[NodeId]) {}

    /// Nothing: peers hear of no end in any case. Their plug-ins see the connection closed, and try for the retry time of the
    /// queue pair, as a device would. Then their requests fail.
    fn silence(&mut self, _: &Near<'_>, _: &[NodeId]) {}

    fn died(&mut self, nodes: &[NodeId]) {
        let those = |place: &Place| nodes.iter().any(|node| place.nodes.contains_key(node));
        for place in self.places.values().filter(|place| those(place)) {
            if let Some(process) = &place.process {
                // A broker that fails is replaced.
                let _ = process.have_heeded(&Order::Died { nodes: nodes.to_vec() });
            }
        }
    }

    /// All brokers begin anew, since each is told at its start where nodes are. Queue pairs that live go on.
    fn relocated(&mut self, near: &Near<'_>, node: NodeId, from: HostId) -> Result<(), BypassError> {
        let Some(seat) = self.places.get_mut(&from).and_then(|place| place.nodes.remove(&node)) else { return Ok(()) };
        let to = near.lab.nodes[node].host;
        let is_known = self.places.contains_key(&to);
        self.places.entry(to).or_default().nodes.insert(node, seat);
        if !is_known {
            self.guard(near, to).map_err(says("guard sockets of RDMA")).map_err(BypassError::of)?;
        }
        for place in self.places.values_mut() {
            (place.process, place.due) = (None, None);
        }
        // A host without nodes keeps its control group, for nodes that come back.
        let inhabited = self.places.iter().filter(|(_, place)| !place.nodes.is_empty());
        for host in inhabited.map(|(host, _)| *host).collect::<Vec<_>>() {
            let doing = format!("start the RDMA broker of {}", near.lab.hosts[host].name);
            self.fill(near, host).map_err(says(doing)).map_err(BypassError::of)?;
        }
        Ok(())
    }

    fn set_conditions(&mut self, _: &Near<'_>, altered: &Altered) -> Result<u64, BypassError> {
        let is_same = self.altered.shaped == altered.shaped && self.altered.parted == altered.parted;
        self.altered.clone_from(altered);
        if let Some(gateway) = &mut self.gateway {
            gateway.bar(altered);
        }
        if is_same {
            return Ok(0);
        }
        Ok(self.have_heeded(&self.rules()))
    }

    fn set_policy(&mut self, _: &Near<'_>, rules: &[Rule]) -> Result<u64, BypassError> {
        self.policy = rules.to_vec();
        Ok(self.have_heeded(&self.rules()))
    }

    fn end(&mut self) {
        for place in self.places.values_mut() {
            place.due = None;
            place.process = None;
        }
        self.carrier = None;
        self.gateway = None;
    }
}
