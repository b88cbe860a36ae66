//! All routers of a lab, as its anchor holds them.

mod muted;
mod revoke;
mod seat;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::wait::WaitStatus;
use slipway_fast::control::Order;
use slipway_fast::filter;
use slipway_fast::pairs;
use slipway_fast::policy::Policy;
use slipway_fast::walk;
use slipway_lab::model::Lab;
use slipway_lab::policy::Rule;
use slipway_sys::cgroup::{CgroupError, Group};
use slipway_sys::clone::SingleThread;

use self::muted::MutedSocket;
use self::revoke::Again;
use self::seat::Seat;
use super::error::{FastError, says};
use super::setup::{Shared, hosts};
use super::{FastReport, RouterState};
use crate::state::LabDir;

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
    held: Vec<HeldListener>,
    /// How many there have been.
    trees: u64,
    /// Nodes whose links are under conditions.
    altered: BTreeSet<usize>,
    /// Connections may live that may not be any more, and could not be found: they are looked for again.
    again: Option<Again>,
    /// Sockets of nodes that were ended without a word, so that their peers do not hear of it.
    muted: BTreeMap<usize, Vec<MutedSocket>>,
    log: File,
}

/// A tree of programs whose calls wait for an answer.
#[derive(Debug)]
struct HeldListener {
    node: usize,
    /// Its own number.
    tree: u64,
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
    pub(crate) halt: &'a dyn Fn(usize) -> Result<(), CgroupError>,
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
        group: &dyn Fn(&str) -> Result<Option<Group>, CgroupError>,
    ) -> Result<Self, FastError> {
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
            trees: 0,
            altered: BTreeSet::new(),
            again: None,
            muted: BTreeMap::new(),
            log,
        };
        // A kernel that has pairs has all that the guard needs to write on them.
        let is_paired = pairs::are_supported();
        for host in hosts {
            // No name of a node begins so.
            let group = group(&format!("_router.{}", host + 1))?;
            let guard = group.as_ref().and_then(Group::clone_target);
            let notes = is_paired.then(|| fast.shared.metadata.storage());
            let guard = guard.map(|folder| filter::guard(folder, notes)).transpose()?;
            if guard.is_none() {
                fast.note(
                    lab,
                    host,
                    "has no control group of version 2: sockets that it hands out are guarded by itself alone",
                );
            }
            let free_options = guard.is_some() && is_paired;
            let told_again = fast.shared.interruptions.is_ok();
            if let Err(why) = &fast.shared.interruptions {
                let lost = "a connection is lost where a signal keeps a program from hearing of it";
                fast.note(lab, host, &format!("{lost}: {why}"));
            }
            fast.seats.insert(host, Seat { group, _guard: guard, free_options, told_again, ..Seat::default() });
            fast.fill(near, host).map_err(says(format!("start the router of {}", lab.hosts[host].name)))?;
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
        let is = |seat: &Seat| seat.process.as_ref().is_some_and(|one| one.helper.number() == pid);
        let Some(host) = fast.seats.iter().find(|(_, seat)| is(seat)).map(|(&host, _)| host) else { return false };
        let how = match status {
            WaitStatus::Signaled(_, signal, _) => Some(signal.as_str()),
            _ => None,
        };
        fast.vacate(lab, host, how);
        true
    }

    /// Has calls of a node's programs heard by its host's router, now or, where that is being replaced, by the next.
    #[tracing::instrument(level = "debug", skip_all, fields(node), err(level = "debug"))]
    pub(crate) fn hear(&mut self, near: &Near<'_>, node: usize, listener: OwnedFd) -> Result<(), FastError> {
        let model = near.lab.nodes.get(node).ok_or(FastError::UnknownNode(node))?;
        let fast = self.fast.as_mut().filter(|fast| fast.seats.contains_key(&model.host));
        let fast = fast.ok_or_else(|| FastError::NoRouter(model.name.clone()))?;
        fast.trees += 1;
        fast.held.push(HeldListener { node, tree: fast.trees, listener });
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
    pub(crate) fn alter(&mut self, near: &Near<'_>, altered: BTreeSet<usize>) -> Result<u64, FastError> {
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
    pub(crate) fn set_policy(&mut self, near: &Near<'_>, rules: &[Rule]) -> Result<u64, FastError> {
        let Some(fast) = &mut self.fast else { return Ok(0) };
        fast.shared.policy = Policy::new(rules, near.lab.nodes.len());
        fast.have_all_heed(near, |process, aside| process.set_policy(rules, aside));
        fast.revoke(near)
    }

    /// Keeps sockets of these nodes, whose programs are stopped, so that nobody hears how they end.
    pub(crate) fn silence(&mut self, near: &Near<'_>, nodes: &[usize]) {
        let Some(fast) = &mut self.fast else { return };
        // Before they end, or a router that is late would take it for the end of any program.
        fast.have_heeded(near, || Order::Silence { nodes: nodes.to_vec() });
        for &node in nodes {
            if let Err(error) = fast.mute(near, node) {
                let what = format!("could not keep sockets of {}: {error}", near.lab.nodes[node].name);
                fast.note(near.lab, near.lab.nodes[node].host, &what);
            }
        }
    }

    /// These nodes start anew: connections with those that they were are reset.
    pub(crate) fn wake(&mut self, nodes: &[usize]) {
        let Some(fast) = &mut self.fast else { return };
        let woken: Vec<usize> = nodes.iter().copied().filter(|node| fast.muted.contains_key(node)).collect();
        if !woken.is_empty() {
            fast.order(|| Order::Wake { nodes: woken.clone() });
        }
        for node in woken {
            fast.muted.remove(&node).into_iter().flatten().for_each(MutedSocket::end);
        }
    }

    /// These nodes have ended.
    pub(crate) fn forget(&mut self, nodes: &[usize]) {
        for seat in self.fast.iter_mut().flat_map(|fast| fast.seats.values_mut()) {
            let nodes: Vec<usize> = nodes.iter().copied().filter(|node| seat.equipped.remove(node)).collect();
            if let Some(process) = seat.process.as_ref().filter(|_| !nodes.is_empty()) {
                let _ = process.order::<OwnedFd>(&Order::Forget { nodes });
            }
        }
    }

    /// What is written on sockets that routers handed out.
    pub(crate) fn notes(&self) -> Result<OwnedFd, FastError> {
        let fast = self.fast.as_ref().ok_or(FastError::NoNetwork)?;
        fast.shared.metadata_file().map_err(says("look at sockets of the fast path"))
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

impl Fast {
    /// Writes down what became of a router. A full disk is no reason to end the lab.
    fn note(&mut self, lab: &Lab, host: usize, what: &str) {
        tracing::info!(host = %lab.hosts[host].name, "router {what}");
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        let _ = writeln!(self.log, "{now} router of {}: {what}", lab.hosts[host].name);
    }
}
