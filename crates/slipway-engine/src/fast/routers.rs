//! All routers of a lab, as its anchor holds them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::wait::WaitStatus;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use slipway_fast::control::{Order, Report};
use slipway_fast::filter;
use slipway_fast::flows::{Flow, Scope};
use slipway_fast::note::Path;
use slipway_fast::policy::{Decision, Policy};
use slipway_fast::reason::Reason;
use slipway_fast::revoke::revoke;
use slipway_fast::status::Status;
use slipway_fast::walk;
use slipway_lab::model::Lab;
use slipway_lab::policy::Rule;
use slipway_sys::bpf::SocketGuard;
use slipway_sys::cgroup::Group;
use slipway_sys::clone::SingleThread;
use slipway_sys::ns::with_net;

use super::process::{Ground, Process};
use super::setup::{Shared, hosts};
use super::{FastReport, RouterReport, RouterState, says};
use crate::state::LabDir;

/// Sockets to knock with that a node is given at a time, of each family: as many as connections wait to be accepted at once
/// before more are asked for.
const KNOCKERS: usize = 16;

/// Before a router is replaced that ended soon: the first time, and at most.
const SOON: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(5);
/// Before hidden connections are looked for again: the first time, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// A router that ran so long did not end because of how it began.
const RAN_WELL: Duration = Duration::from_secs(10);

/// What an anchor holds of its lab's fast path: nothing, where no network is fast.
#[derive(Debug, Default)]
pub(crate) struct Routers {
    fast: Option<Fast>,
}

#[derive(Debug)]
struct Fast {
    shared: Shared,
    seats: BTreeMap<usize, Seat>,
    /// Copies of all listeners under which programs run.
    held: Vec<Held>,
    /// Nodes whose links are under conditions.
    altered: BTreeSet<usize>,
    /// Connections may live that may not be any more, and could not be found: they are looked for again.
    again: Option<Again>,
    /// Sockets of nodes that were ended without a word, so that their peers do not hear of it.
    kept: BTreeMap<usize, Vec<Kept>>,
    log: File,
}

/// When something is done again, and how long is waited for that.
#[derive(Debug, Clone, Copy)]
struct Again {
    due: Instant,
    pause: Duration,
}

/// A host's router, or the place for one.
#[derive(Debug, Default)]
struct Seat {
    process: Option<Process>,
    /// Nodes that it has sockets of, to knock with.
    knocking: BTreeSet<usize>,
    group: Option<Group>,
    /// Keeps programs from connecting anew, binding or setting up otherwise what a router of this group made and handed out.
    _guard: Option<SocketGuard>,
    began: Option<Instant>,
    /// When the next is made, where there is none.
    due: Option<Instant>,
    pause: Duration,
    restarts: u32,
    trouble: Option<String>,
    /// Connections that were ended because they may not be any more, by reason.
    revoked: BTreeMap<Reason, u64>,
}

/// A socket of a node that was ended without a word.
#[derive(Debug)]
struct Kept {
    socket: OwnedFd,
    path: Path,
}

impl Kept {
    /// Ends it, as the node would that knows nothing of it any more: by a reset. A pair's other end reads one where something
    /// had not been read here, else an end.
    fn end(self) {
        if self.path == Path::Tcp {
            // It cannot fail on a socket of TCP (`sk_setsockopt`, `net/core/sock.c`).
            let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
        }
    }
}

/// A tree of programs whose calls wait for an answer.
#[derive(Debug)]
struct Held {
    node: usize,
    listener: OwnedFd,
}

/// What routers need of their surroundings.
pub(crate) struct Near<'a> {
    pub(crate) alone: SingleThread,
    pub(crate) lab: &'a Lab,
    /// The lab's lock, which goes when the last of its processes does.
    pub(crate) lock: BorrowedFd<'a>,
    /// A host's network namespace.
    pub(crate) host_net: &'a dyn Fn(usize) -> BorrowedFd<'a>,
    /// A node's; `None` for one that has never been started.
    pub(crate) net: &'a dyn Fn(usize) -> Option<BorrowedFd<'a>>,
    /// The first process of a node; `None` for one that does not run.
    pub(crate) init: &'a dyn Fn(usize) -> Option<i32>,
    /// Stops a node's programs for a moment.
    pub(crate) halt: &'a dyn Fn(usize) -> Result<(), String>,
}

impl Near<'_> {
    /// The PID namespaces of these nodes, as far as they run.
    fn namespaces(&self, of: impl Fn(usize) -> bool) -> BTreeSet<u64> {
        let inits = (0..self.lab.nodes.len()).filter(|&node| of(node)).filter_map(|node| (self.init)(node));
        inits.filter_map(|init| walk::namespace(init).ok()).collect()
    }
}

/// What an anchor waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The router of this host has something to say, or is gone.
    Said(usize),
    /// No program runs any more under this one of the listeners.
    Deserted(usize),
}

impl Routers {
    /// Makes the routers of a lab, and waits until they run. `group` makes a control group by that name; `None` where there are
    /// none.
    pub(crate) fn start(
        near: &Near<'_>,
        dir: &LabDir,
        group: &dyn Fn(&str) -> Result<Option<Group>, String>,
    ) -> Result<Self, String> {
        let lab = near.lab;
        let hosts = hosts(lab);
        if hosts.is_empty() {
            return Ok(Self::default());
        }
        let shared = Shared::new(lab).map_err(says("prepare the fast path"))?;
        let log = File::options().create(true).append(true).open(dir.join("fast.log"));
        let log = log.map_err(says("open the log of the fast path"))?;
        let mut fast = Fast {
            shared,
            seats: BTreeMap::new(),
            held: Vec::new(),
            altered: BTreeSet::new(),
            again: None,
            kept: BTreeMap::new(),
            log,
        };
        for host in hosts {
            // No name of a node begins so.
            let group = group(&format!("_router.{}", host + 1))?;
            let guard = group.as_ref().and_then(Group::clone_target);
            let guard = guard.map(|folder| SocketGuard::attach(folder, filter::guarded())).transpose();
            let guard = guard.map_err(|error| format!("guard sockets of the fast path: {error}"))?;
            if guard.is_none() {
                fast.note(
                    lab,
                    host,
                    "has no control group of version 2: sockets that it hands out are guarded by itself alone",
                );
            }
            fast.seats.insert(host, Seat { group, _guard: guard, ..Seat::default() });
            fast.fill(near, host).map_err(says(&format!("start the router of {}", lab.hosts[host].name)))?;
        }
        Ok(Self { fast: Some(fast) })
    }

    /// Everything to wait for. A listener is never waited for to be readable: that is the routers' own.
    pub(crate) fn waits_for(&self) -> Vec<(BorrowedFd<'_>, Event)> {
        let Some(fast) = &self.fast else { return Vec::new() };
        let seats = fast.seats.iter();
        let said = seats.filter_map(|(&host, seat)| Some((seat.process.as_ref()?.as_fd(), Event::Said(host))));
        let held = fast.held.iter().enumerate();
        said.chain(held.map(|(at, held)| (held.listener.as_fd(), Event::Deserted(at)))).collect()
    }

    /// How long to wait at most.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let seats = self.fast.iter().flat_map(|fast| fast.seats.values()).filter_map(|seat| seat.due);
        let again = self.fast.iter().filter_map(|fast| fast.again.map(|again| again.due));
        seats.chain(again).min().map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Acts on what was waited for, and makes routers that are due. True where any came or went.
    pub(crate) fn tend(&mut self, near: &Near<'_>, events: &[Event]) -> bool {
        let Some(fast) = &mut self.fast else { return false };
        let mut changed = false;
        for event in events {
            if let Event::Said(host) = event {
                changed |= fast.listen(near, *host);
            }
        }
        let deserted = |at: usize| events.contains(&Event::Deserted(at));
        let mut at = 0..;
        fast.held.retain(|_| !at.next().is_some_and(deserted));
        let now = Instant::now();
        let due: Vec<usize> = fast
            .seats
            .iter()
            .filter(|(_, seat)| seat.due.is_some_and(|due| due <= now))
            .map(|(&host, _)| host)
            .collect();
        for host in due {
            changed = true;
            if let Err(error) = fast.fill(near, host) {
                fast.vacate(near.lab, host, Some(&format!("cannot be started: {error}")));
            }
        }
        if fast.again.is_some_and(|again| again.due <= now) {
            // What goes wrong is in the log.
            let _ = fast.revoke(near);
        }
        changed
    }

    /// Notes that a child ended. True where it was a router.
    pub(crate) fn ended(&mut self, lab: &Lab, status: WaitStatus) -> bool {
        let (Some(fast), Some(pid)) = (&mut self.fast, status.pid().map(nix::unistd::Pid::as_raw)) else {
            return false;
        };
        let is = |seat: &Seat| seat.process.as_ref().is_some_and(|one| one.pid.as_raw_nonzero().get() == pid);
        let Some(host) = fast.seats.iter().find(|(_, seat)| is(seat)).map(|(&host, _)| host) else { return false };
        let how = match status {
            WaitStatus::Signaled(_, signal, _) => Some(signal.as_str()),
            _ => None,
        };
        fast.vacate(lab, host, how);
        true
    }

    /// Has calls of a node's programs heard by its host's router, now or, where that is being replaced, by the next.
    pub(crate) fn hear(&mut self, near: &Near<'_>, node: usize, listener: OwnedFd) -> Result<(), String> {
        let model = near.lab.nodes.get(node).ok_or_else(|| format!("find node number {node}: the lab has none"))?;
        let fast = self.fast.as_mut().filter(|fast| fast.seats.contains_key(&model.host));
        let fast =
            fast.ok_or_else(|| format!("have a router hear programs of {}: it is on no fast network", model.name))?;
        fast.held.push(Held { node, listener });
        let at = fast.held.len() - 1;
        // One that cannot be told is being replaced, and the next is told.
        let _ = fast.introduce(near, model.host, at);
        Ok(())
    }

    /// Says which nodes' links are under conditions from now on, and ends what is fast and may not be any more. Gives how many
    /// connections these were.
    ///
    /// # Errors
    /// When some may not have been ended.
    pub(crate) fn alter(&mut self, near: &Near<'_>, altered: BTreeSet<usize>) -> Result<u64, String> {
        let Some(fast) = self.fast.as_mut().filter(|fast| fast.altered != altered) else { return Ok(0) };
        let grows = !altered.is_subset(&fast.altered);
        fast.altered = altered;
        let nodes: Vec<usize> = fast.altered.iter().copied().collect();
        fast.have_heeded(near, || Order::Conditions { nodes: nodes.clone() });
        if grows { fast.revoke(near) } else { Ok(0) }
    }

    /// Puts other rules in the place of those that there were, and ends what is fast and may not be any more, or not as it is.
    /// Gives how many connections these were.
    ///
    /// # Errors
    /// When some may not have been ended.
    pub(crate) fn set_policy(&mut self, near: &Near<'_>, rules: &[Rule]) -> Result<u64, String> {
        let Some(fast) = &mut self.fast else { return Ok(0) };
        fast.shared.policy = Policy::new(rules, near.lab.nodes.len());
        fast.have_all_heed(near, |process, aside| process.set_policy(rules, aside));
        fast.revoke(near)
    }

    /// Keeps sockets of these nodes, whose programs are stopped, so that nobody hears how they end.
    pub(crate) fn silence(&mut self, near: &Near<'_>, nodes: &[usize]) {
        let Some(fast) = &mut self.fast else { return };
        fast.order(|| Order::Silence { nodes: nodes.to_vec() });
        for &node in nodes {
            if let Err(error) = fast.keep(near, node) {
                let what = format!("could not keep sockets of {}: {error}", near.lab.nodes[node].name);
                fast.note(near.lab, near.lab.nodes[node].host, &what);
            }
        }
    }

    /// These nodes start anew: connections with those that they were are reset.
    pub(crate) fn wake(&mut self, nodes: &[usize]) {
        let Some(fast) = &mut self.fast else { return };
        let woken: Vec<usize> = nodes.iter().copied().filter(|node| fast.kept.contains_key(node)).collect();
        if !woken.is_empty() {
            fast.order(|| Order::Wake { nodes: woken.clone() });
        }
        for node in woken {
            fast.kept.remove(&node).into_iter().flatten().for_each(Kept::end);
        }
    }

    /// These nodes have ended.
    pub(crate) fn forget(&mut self, nodes: &[usize]) {
        for seat in self.fast.iter_mut().flat_map(|fast| fast.seats.values_mut()) {
            let nodes: Vec<usize> = nodes.iter().copied().filter(|node| seat.knocking.remove(node)).collect();
            if let Some(process) = seat.process.as_ref().filter(|_| !nodes.is_empty()) {
                let _ = process.order::<OwnedFd>(&Order::Forget { nodes });
            }
        }
    }

    /// What is written on sockets that routers handed out.
    pub(crate) fn notes(&self) -> Result<OwnedFd, String> {
        let fast = self.fast.as_ref().ok_or("look at sockets of the fast path: no network of the lab is fast")?;
        fast.shared.notes().map_err(says("look at sockets of the fast path"))
    }

    /// How the routers are, as the anchor sees it.
    pub(crate) fn states(&self) -> Vec<RouterState> {
        self.fast.iter().flat_map(|fast| &fast.seats).map(|(&host, seat)| seat.state(host)).collect()
    }

    /// How everything is.
    pub(crate) fn report(&mut self, near: &Near<'_>) -> FastReport {
        let Some(fast) = &mut self.fast else { return FastReport::default() };
        let hosts: Vec<usize> = fast.seats.keys().copied().collect();
        FastReport { routers: hosts.into_iter().map(|host| fast.report(near, host)).collect() }
    }

    /// Ends all, and waits for their ends, so that whoever waits for the anchor finds nothing left.
    pub(crate) fn end(&mut self) {
        for seat in self.fast.iter_mut().flat_map(|fast| fast.seats.values_mut()) {
            seat.due = None;
            if let Some(process) = seat.process.take() {
                let _ = process.stop();
            }
        }
    }
}

impl Seat {
    fn state(&self, host: usize) -> RouterState {
        RouterState {
            host,
            pid: self.process.as_ref().map(|process| process.pid.as_raw_nonzero().get()),
            restarts: self.restarts,
            trouble: self.trouble.clone(),
        }
    }
}

impl Fast {
    /// Makes a host's router, and tells it all that it needs to go on where another ended.
    fn fill(&mut self, near: &Near<'_>, host: usize) -> io::Result<()> {
        let Some(seat) = self.seats.get_mut(&host) else { return Ok(()) };
        seat.due = None;
        let (net, group, log) = ((near.host_net)(host), seat.group.as_ref(), self.log.as_fd());
        let Near { alone, lab, lock, .. } = *near;
        let ground = Ground { alone, lab, host, lock, net, group, log };
        let process = Process::start(ground, &self.shared)?;
        let mut aside = Vec::new();
        let conditions = Order::Conditions { nodes: self.altered.iter().copied().collect() };
        process.have_heeded(&conditions, |report| aside.push(report))?;
        let pid = process.pid.as_raw_nonzero();
        (seat.process, seat.began) = (Some(process), Some(Instant::now()));
        seat.knocking.clear();
        let here: Vec<usize> =
            (0..self.held.len()).filter(|&at| near.lab.nodes[self.held[at].node].host == host).collect();
        here.iter().try_for_each(|&at| self.introduce(near, host, at))?;
        self.note(near.lab, host, &format!("runs as process {pid}"));
        self.recall(near, host, &here);
        for report in aside {
            self.take(near, host, report);
        }
        Ok(())
    }

    /// Has programs make those calls again that the router before this one had taken and not answered: nobody else can take
    /// them. A program that is stopped leaves its call, and when it goes on the kernel has it call again (`signal(7)`,
    /// "Interruption of system calls and library functions by stop signals"; `cgroups(7)` stops it without a signal).
    fn recall(&mut self, near: &Near<'_>, host: usize, held: &[usize]) {
        if self.seats.get(&host).is_none_or(|seat| seat.restarts == 0) {
            return;
        }
        let nodes: BTreeSet<usize> = held.iter().map(|&at| self.held[at].node).collect();
        for node in nodes {
            if let Err(error) = (near.halt)(node) {
                self.note(
                    near.lab,
                    host,
                    &format!("could not have programs of {} call again: {error}", near.lab.nodes[node].name),
                );
            }
        }
    }

    /// A host's router is gone. Another comes at once, or after a while where this one did not last.
    fn vacate(&mut self, lab: &Lab, host: usize, why: Option<&str>) {
        let Some(seat) = self.seats.get_mut(&host) else { return };
        let end = seat.process.take().map_or_else(|| "none runs".to_owned(), Process::stop);
        let why = why.map_or_else(|| end.clone(), |why| format!("{end}: {why}"));
        let lasted = seat.began.take().is_some_and(|began| began.elapsed() >= RAN_WELL);
        let pause = if lasted { Duration::ZERO } else { seat.pause };
        seat.pause = if lasted { SOON } else { (seat.pause * 2).clamp(SOON, LATEST) };
        (seat.due, seat.restarts) = (Some(Instant::now() + pause), seat.restarts + 1);
        seat.trouble = Some(why.clone());
        self.note(lab, host, &format!("{why}; programs' calls wait for another, {} ms from now", pause.as_millis()));
    }

    /// Hands a listener to a host's router, and before the first of a node sockets to knock with there.
    fn introduce(&mut self, near: &Near<'_>, host: usize, at: usize) -> io::Result<()> {
        let node = self.held[at].node;
        let Some(seat) = self.seats.get_mut(&host) else { return Ok(()) };
        if seat.process.is_some() && seat.knocking.insert(node) {
            self.give_knockers(near, host, node)?;
        }
        let Some(process) = self.seats.get(&host).and_then(|seat| seat.process.as_ref()) else { return Ok(()) };
        // Programs of a node that has ended need nobody to hear them.
        let Some(namespace) = (near.init)(node).and_then(|init| walk::namespace(init).ok()) else { return Ok(()) };
        process.order(&Order::Listener { node, namespace, listener: self.held[at].listener.as_fd() })
    }

    /// Gives a router sockets made within a node.
    fn give_knockers(&self, near: &Near<'_>, host: usize, node: usize) -> io::Result<()> {
        let Some(process) = self.seats.get(&host).and_then(|seat| seat.process.as_ref()) else { return Ok(()) };
        let (Some(model), Some(net)) = (near.lab.nodes.get(node), (near.net)(node)) else { return Ok(()) };
        let ipv6 = model.fast_networks(near.lab).any(|network| network.ipv6.is_some());
        let families = [Some(AddressFamily::INET), ipv6.then_some(AddressFamily::INET6)];
        let make = |family| socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let families = families.into_iter().flatten().flat_map(|family| std::iter::repeat_n(family, KNOCKERS));
        let sockets = with_net(net, || families.map(make).collect::<Result<Vec<OwnedFd>, _>>())??;
        process.order(&Order::Knockers { node, sockets })
    }

    /// Takes what a router says. True where it is gone.
    fn listen(&mut self, near: &Near<'_>, host: usize) -> bool {
        let Some(process) = self.seats.get(&host).and_then(|seat| seat.process.as_ref()) else { return false };
        let report = match process.hear() {
            Ok(Some(report)) => report,
            Ok(None) => {
                self.vacate(near.lab, host, None);
                return true;
            }
            Err(error) => {
                self.vacate(near.lab, host, Some(&format!("it said what cannot be understood: {error}")));
                return true;
            }
        };
        self.take(near, host, report)
    }

    fn take(&mut self, near: &Near<'_>, host: usize, report: Report) -> bool {
        match report {
            Report::MoreKnockers { node } if near.lab.nodes.get(node).is_some_and(|node| node.host == host) => {
                if let Err(error) = self.give_knockers(near, host, node) {
                    self.note(near.lab, host, &format!("could not be given sockets of a node: {error}"));
                }
                false
            }
            Report::Failed(account) => {
                self.vacate(near.lab, host, Some(&account));
                true
            }
            Report::MoreKnockers { .. } | Report::Heeded | Report::Ready | Report::Status { .. } => false,
        }
    }

    fn report(&mut self, near: &Near<'_>, host: usize) -> RouterReport {
        let mut aside = Vec::new();
        let seat = &self.seats[&host];
        let status = seat.process.as_ref().and_then(|process| process.status(|report| aside.push(report)).ok());
        for report in aside {
            self.take(near, host, report);
        }
        let seat = &self.seats[&host];
        let mut status: Option<Status> = status.and_then(|status| serde_json::from_str(&status).ok());
        if let Some(status) = &mut status {
            for (reason, count) in &seat.revoked {
                *status.connections.revoked.entry(*reason).or_default() += count;
            }
        }
        RouterReport {
            router: seat.state(host),
            listeners: self.held.iter().filter(|held| near.lab.nodes[held.node].host == host).count(),
            status,
        }
    }

    /// Gives all routers an order. One that cannot be told is being replaced.
    fn order(&self, order: impl Fn() -> Order) {
        for process in self.seats.values().filter_map(|seat| seat.process.as_ref()) {
            let _ = process.order(&order());
        }
    }

    /// Gives all routers an order that changes what is admitted, and waits until it holds everywhere. One that is being replaced
    /// admits nothing; the next begins with it.
    fn have_heeded(&mut self, near: &Near<'_>, order: impl Fn() -> Order) {
        self.have_all_heed(near, |process, aside| process.have_heeded(&order(), aside));
    }

    /// The same, however they are told. What else they report meanwhile is given to the second argument.
    fn have_all_heed(&mut self, near: &Near<'_>, tell: impl Fn(&Process, &mut dyn FnMut(Report)) -> io::Result<()>) {
        let hosts: Vec<usize> = self.seats.keys().copied().collect();
        for host in hosts {
            let mut aside = Vec::new();
            let process = self.seats.get(&host).and_then(|seat| seat.process.as_ref());
            let _ = process.map(|process| tell(process, &mut |report| aside.push(report)));
            for report in aside {
                self.take(near, host, report);
            }
        }
    }

    /// Why a connection that lives may not, as things stand now.
    fn forbidden(&self, flow: &Flow) -> Option<Reason> {
        let node = |address: SocketAddr| self.shared.places.of(address.ip()).map(|place| place.node);
        let (client, server) = (node(flow.client)?, node(flow.server)?);
        if self.altered.contains(&client) || self.altered.contains(&server) {
            return Some(Reason::Conditions);
        }
        match self.shared.policy.decide(client, server, flow.server.port()) {
            // It cannot be held back as it is.
            Decision::Allow(terms) if flow.path == Path::Pair && terms.need_packets() => Some(Reason::Policy),
            Decision::Allow(_) => None,
            Decision::Deny(_) => Some(Reason::Policy),
        }
    }

    /// Ends what lives and may not, on all hosts, and gives how many connections these were.
    fn revoke(&mut self, near: &Near<'_>) -> Result<u64, String> {
        let hosts: Vec<usize> = self.seats.keys().copied().collect();
        let (mut ended, mut hidden, mut outcome) = (BTreeSet::new(), 0, Ok(()));
        for host in hosts {
            let namespaces = near.namespaces(|node| near.lab.nodes[node].host == host);
            let scope = Scope { notes: &self.shared.notes, namespaces: &namespaces, net: (near.host_net)(host) };
            match revoke(scope, |flow| self.forbidden(flow)) {
                Ok(revoked) => {
                    hidden += revoked.hidden;
                    let counts = &mut self.seats.entry(host).or_default().revoked;
                    // Of one between two hosts each has an end.
                    for (_, reason) in revoked.flows.into_iter().filter(|&(number, _)| ended.insert(number)) {
                        *counts.entry(reason).or_default() += 1;
                    }
                }
                Err(error) => {
                    let what = format!("end fast connections on {}: {error}", near.lab.hosts[host].name);
                    self.note(near.lab, host, &format!("failed to {what}"));
                    outcome = Err(what);
                }
            }
        }
        let pause = self.again.map_or(AGAIN.0, |again| (again.pause * 2).min(AGAIN.1));
        self.again = (hidden > 0).then(|| Again { due: Instant::now() + pause, pause });
        outcome.map(|()| ended.len() as u64)
    }

    /// Keeps the sockets of a node that were handed out to it.
    fn keep(&mut self, near: &Near<'_>, node: usize) -> io::Result<()> {
        let namespaces = near.namespaces(|other| other == node);
        let kept = self.kept.entry(node).or_default();
        let mut seen = BTreeSet::new();
        walk::handed_out(&walk::processes(&namespaces)?, &self.shared.notes, &mut seen, |held| {
            kept.push(Kept { socket: held.socket, path: held.note.path });
        });
        Ok(())
    }

    /// Writes down what became of a router. A full disk is no reason to end the lab.
    fn note(&mut self, lab: &Lab, host: usize, what: &str) {
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        let _ = writeln!(self.log, "{now} router of {}: {what}", lab.hosts[host].name);
    }
}
