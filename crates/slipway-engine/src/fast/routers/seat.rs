//! The place of a host's router: who fills it, what it is told and what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use slipway_fast::control::{Order, Report};
use slipway_fast::reason::Reason;
use slipway_fast::status::Status;
use slipway_fast::walk;
use slipway_lab::id::{HostId, NodeId};
use slipway_lab::model::Lab;
use slipway_sys::bpf::SocketGuard;
use slipway_sys::cgroup::Group;
use slipway_sys::ns::with_net;
use slipway_sys::process;

use super::{HeldListener, Routers};
use crate::bypass::Near;
use crate::fast::process::{Ground, Process};
use crate::fast::{RouterReport, RouterState};

/// Sockets of a family to knock with that a node is given at a time: as many as connections wait to be accepted at once
/// before more are asked for.
const WAKEUP_SOCKETS: usize = 16;

/// Before a router is replaced that ended soon: the first time, and at most.
const SOON: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(5);
/// A router that ran so long did not end because of how it began.
const RAN_WELL: Duration = Duration::from_secs(10);

/// A host's router, or the place for one.
#[derive(Debug, Default)]
pub(super) struct Seat {
    pub(super) process: Option<Process>,
    /// Descriptors of the routers before it, each by its inode, until one has taken all of them over.
    pub(super) left: BTreeMap<u64, Order>,
    /// Nodes that it has sockets of, to knock with.
    pub(super) equipped: BTreeSet<NodeId>,
    pub(super) group: Option<Group>,
    /// Keeps programs from connecting anew, binding or setting up otherwise what a router of this group made and handed out.
    pub(super) _guard: Option<SocketGuard>,
    /// As [`RouterState::free_options`].
    pub(super) free_options: bool,
    /// As [`RouterState::told_again`].
    pub(super) told_again: bool,
    pub(super) began: Option<Instant>,
    /// When the next is made, where there is none.
    pub(super) due: Option<Instant>,
    pub(super) pause: Duration,
    pub(super) restarts: u32,
    pub(super) trouble: Option<String>,
    /// Connections that were ended because they may not be any more, by reason.
    pub(super) revoked: BTreeMap<Reason, u64>,
}

impl Seat {
    pub(super) fn state(&self, host: HostId) -> RouterState {
        RouterState {
            host,
            pid: self.process.as_ref().map(|process| process.helper.number()),
            restarts: self.restarts,
            trouble: self.trouble.clone(),
            free_options: self.free_options,
            told_again: self.told_again,
        }
    }
}

impl Routers {
    /// Makes a host's router, and tells it all that it needs to go on where another ended.
    pub(super) fn fill(&mut self, near: &Near<'_>, host: HostId) -> io::Result<()> {
        let Some(seat) = self.seats.get_mut(&host) else { return Ok(()) };
        seat.due = None;
        let (net, group, log) = ((near.host_net)(host), seat.group.as_ref(), self.log.as_fd());
        let Near { alone, lab, lock, .. } = *near;
        let ground = Ground { alone, lab, host, lock, net, group, log };
        let process = Process::start(ground, &self.shared)?;
        let mut aside = Vec::new();
        let conditions = Order::Conditions { nodes: self.altered.iter().copied().collect() };
        process.have_heeded(&conditions, |report| aside.push(report))?;
        let held: Vec<_> = self.holds.keys().copied().filter(|&node| lab.nodes[node].host == host).collect();
        if !held.is_empty() {
            process.have_heeded(&Order::Hold { nodes: held }, |report| aside.push(report))?;
        }
        let silent: Vec<_> = self.muted.keys().copied().filter(|&node| lab.nodes[node].host == host).collect();
        if !silent.is_empty() {
            process.have_heeded(&Order::Silence { nodes: silent }, |report| aside.push(report))?;
        }
        let pid = process.helper.number();
        (seat.process, seat.began) = (Some(process), Some(Instant::now()));
        seat.equipped.clear();
        let here: Vec<usize> =
            (0..self.held.len()).filter(|&at| near.lab.nodes[self.held[at].node].host == host).collect();
        self.pass_on(near, host, &here, |report| aside.push(report))?;
        here.iter().try_for_each(|&at| self.introduce(near, host, at))?;
        self.note(near.lab, host, &format!("runs as process {pid}"));
        self.recall(near, host, &here, |report| aside.push(report))?;
        self.serve(host)?;
        for report in aside {
            self.take(near, host, report);
        }
        Ok(())
    }

    /// Passes on what the routers before this one had in hand, before programs come for it. Then it is this router's: its journal
    /// has it all. If the router ends before that, what was left is still here.
    fn pass_on(&mut self, near: &Near<'_>, host: HostId, held: &[usize], aside: impl FnMut(Report)) -> io::Result<()> {
        let left = self.seats.get_mut(&host).map(|seat| std::mem::take(&mut seat.left)).unwrap_or_default();
        let passed = self.pass_on_all(near, host, held, &left, aside);
        if passed.is_err()
            && let Some(seat) = self.seats.get_mut(&host)
        {
            seat.left = left;
        }
        passed
    }

    fn pass_on_all(
        &mut self,
        near: &Near<'_>,
        host: HostId,
        held: &[usize],
        left: &BTreeMap<u64, Order>,
        aside: impl FnMut(Report),
    ) -> io::Result<()> {
        for order in left.values() {
            let (mut unaccepted, sockets) = match order {
                Order::Unaccepted { unaccepted, sockets } => (*unaccepted, sockets),
                Order::Recorded { record, descriptor } => {
                    let order = Order::Recorded { record: *record, descriptor: descriptor.as_fd() };
                    self.process(host).map_or(Ok(()), |process| process.order(&order))?;
                    continue;
                }
                _ => continue,
            };
            // A router writes of nodes of its host.
            if near.lab.nodes.get(unaccepted.node).is_none_or(|node| node.host != host) {
                continue;
            }
            // Connections to a node that has ended end here, unless it is silent.
            if (near.net)(unaccepted.node).is_none() && !self.muted.contains_key(&unaccepted.node) {
                continue;
            }
            // Calls of programs that have all ended are nobody's.
            unaccepted.handoff =
                unaccepted.handoff.filter(|handoff| held.iter().any(|&at| self.held[at].tree == handoff.tree));
            self.equip(near, host, unaccepted.node)?;
            let sockets = sockets.iter().map(AsFd::as_fd).collect();
            self.process(host).map_or(Ok(()), |process| process.order(&Order::Unaccepted { unaccepted, sockets }))?;
        }
        // A router obeys orders one after the other.
        match self.process(host) {
            Some(process) if !left.is_empty() => process.status(aside).map(drop),
            _ => Ok(()),
        }
    }

    /// Has programs make those calls again that the router before this one had taken and not answered: nobody else can take
    /// them. A program that is stopped leaves its call, and when it goes on the kernel has it call again (`signal(7)`,
    /// "Interruption of system calls and library functions by stop signals"; `cgroups(7)` stops it without a signal).
    ///
    /// First the router has to go on with all handoffs: a call that it is to answer looks answered once its program has left it. A
    /// router obeys orders one after the other, so it tells its status after that. It serves nobody yet, for the same reason: if it
    /// ended meanwhile, the next one would take its calls for answered.
    fn recall(&mut self, near: &Near<'_>, host: HostId, held: &[usize], aside: impl FnMut(Report)) -> io::Result<()> {
        if self.seats.get(&host).is_none_or(|seat| seat.restarts == 0) {
            return Ok(());
        }
        if let Some(process) = self.process(host) {
            process.status(aside)?;
        }
        let nodes: BTreeSet<NodeId> = held.iter().map(|&at| self.held[at].node).collect();
        for node in nodes {
            if let Err(error) = (near.halt)(node) {
                self.note(
                    near.lab,
                    host,
                    &format!("could not have programs of {} call again: {error}", near.lab.nodes[node].name),
                );
            }
        }
        Ok(())
    }

    /// A host's router is gone. Another comes at once, or after a while where this one did not last.
    pub(super) fn vacate(&mut self, lab: &Lab, host: HostId, why: Option<&str>) {
        let Some(seat) = self.seats.get_mut(&host) else { return };
        let ended = seat.process.take().map(|process| process.leave(self.shared.journals.get(&host)));
        let (end, left) = ended.unwrap_or_else(|| ("none runs".to_owned(), Vec::new()));
        // A descriptor that this router had taken over replaces the copy that it was given.
        seat.left.extend(left.into_iter().filter_map(|order| Some((inode_of_end(&order)?, order))));
        let why = why.map_or_else(|| end.clone(), |why| format!("{end}: {why}"));
        let lasted = seat.began.take().is_some_and(|began| began.elapsed() >= RAN_WELL);
        let pause = if lasted { Duration::ZERO } else { seat.pause };
        seat.pause = if lasted { SOON } else { (seat.pause * 2).clamp(SOON, LATEST) };
        (seat.due, seat.restarts) = (Some(Instant::now() + pause), seat.restarts + 1);
        seat.trouble = Some(why.clone());
        self.note(lab, host, &format!("{why}; programs' calls wait for another, {} ms from now", pause.as_millis()));
    }

    /// A host's router; `None` while it is being replaced.
    fn process(&self, host: HostId) -> Option<&Process> {
        self.seats.get(&host)?.process.as_ref()
    }

    /// Hands a listener to a host's router, and before the first of a node sockets to knock with there.
    pub(super) fn introduce(&mut self, near: &Near<'_>, host: HostId, at: usize) -> io::Result<()> {
        let HeldListener { node, tree, .. } = self.held[at];
        self.equip(near, host, node)?;
        let Some(process) = self.process(host) else { return Ok(()) };
        // Programs of a node that has ended need nobody to hear them.
        let Some(namespace) = (near.init)(node).and_then(|init| walk::namespace(init).ok()) else { return Ok(()) };
        process.order(&Order::Listener { node, tree, namespace, listener: self.held[at].listener.as_fd() })
    }

    /// Has a host's router serve all listeners that it was handed.
    pub(super) fn serve(&self, host: HostId) -> io::Result<()> {
        self.process(host).map_or(Ok(()), |process| process.order::<OwnedFd>(&Order::Serve))
    }

    /// Gives a router sockets to knock with in a node, where it has had none.
    fn equip(&mut self, near: &Near<'_>, host: HostId, node: NodeId) -> io::Result<()> {
        let Some(seat) = self.seats.get_mut(&host) else { return Ok(()) };
        if seat.process.is_none() || !seat.equipped.insert(node) {
            return Ok(());
        }
        let has_ipv6 = near.lab.nodes[node]
            .networks(near.lab)
            .any(|network| network.bypasses.tcp.is_some() && network.ipv6.is_some());
        let families = if has_ipv6 { &[false, true][..] } else { &[false] };
        families.iter().try_for_each(|&ipv6| self.give_wakeup_sockets(near, host, node, ipv6))
    }

    /// Gives a router sockets of a family that are made within a node.
    fn give_wakeup_sockets(&self, near: &Near<'_>, host: HostId, node: NodeId, ipv6: bool) -> io::Result<()> {
        let (Some(process), Some(net)) = (self.process(host), (near.net)(node)) else { return Ok(()) };
        let family = if ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let make = |_| socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let sockets = with_net(net, || (0..WAKEUP_SOCKETS).map(make).collect::<Result<Vec<OwnedFd>, _>>())??;
        process.order(&Order::WakeupSockets { node, ipv6, sockets })
    }

    /// Takes what a router says. True where it is gone.
    pub(super) fn listen(&mut self, near: &Near<'_>, host: HostId) -> bool {
        let Some(process) = self.process(host) else { return false };
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

    fn take(&mut self, near: &Near<'_>, host: HostId, report: Report) -> bool {
        match report {
            Report::MoreWakeupSockets { node, ipv6 }
                if near.lab.nodes.get(node).is_some_and(|node| node.host == host) =>
            {
                if let Err(error) = self.give_wakeup_sockets(near, host, node, ipv6) {
                    self.note(near.lab, host, &format!("could not be given sockets of a node: {error}"));
                }
                false
            }
            Report::Failed(account) => {
                self.vacate(near.lab, host, Some(&account));
                true
            }
            Report::MoreWakeupSockets { .. } | Report::Heeded | Report::Ready | Report::Status { .. } => false,
        }
    }

    pub(super) fn report_router(&mut self, near: &Near<'_>, host: HostId) -> RouterReport {
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
            memory: seat.process.as_ref().and_then(|process| memory(process.helper.number())),
        }
    }

    /// Gives all routers an order. One that cannot be told is being replaced.
    pub(super) fn order(&self, order: impl Fn() -> Order) {
        for process in self.seats.values().filter_map(|seat| seat.process.as_ref()) {
            let _ = process.order(&order());
        }
    }

    /// Gives all routers an order that they answer, and waits until it holds everywhere. One that is being replaced admits
    /// nothing; the next begins with what is admitted now.
    pub(super) fn have_heeded(&mut self, near: &Near<'_>, order: impl Fn() -> Order) {
        self.have_all_heed(near, |process, aside| process.have_heeded(&order(), aside));
    }

    /// The same, however they are told. What else they report meanwhile is given to the second argument.
    pub(super) fn have_all_heed(
        &mut self,
        near: &Near<'_>,
        tell: impl Fn(&Process, &mut dyn FnMut(Report)) -> io::Result<()>,
    ) {
        let hosts: Vec<HostId> = self.seats.keys().copied().collect();
        for host in hosts {
            let mut aside = Vec::new();
            let _ = self.process(host).map(|process| tell(process, &mut |report| aside.push(report)));
            for report in aside {
                self.take(near, host, report);
            }
        }
    }
}

/// The inode of a connection's end, which tells connections apart while they are here.
fn inode_of_end(order: &Order) -> Option<u64> {
    let end = match order {
        Order::Unaccepted { sockets, .. } => sockets.first()?,
        Order::Recorded { descriptor, .. } => descriptor,
        _ => return None,
    };
    Some(fstat(end).ok()?.st_ino)
}

/// Memory of a process, bytes (`VmRSS`, `proc_pid_status(5)`).
fn memory(pid: i32) -> Option<u64> {
    let kib: u64 = process::status(pid, "VmRSS").ok()?.strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}
