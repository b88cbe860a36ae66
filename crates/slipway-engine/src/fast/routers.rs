//! All routers of a lab, as its anchor holds them.

mod bypass;
mod holds;
mod muted;
mod revoke;
mod seat;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use slipway_fast::filter;
use slipway_fast::pairs;
use slipway_fast::setup::Outside;
use slipway_fast::walk;
use slipway_lab::id::{HostId, NodeId};
use slipway_lab::model::Lab;
use slipway_sys::cgroup::Group;

use self::holds::Holds;
use self::muted::MutedSocket;
use self::revoke::Again;
use self::seat::Seat;
use super::error::{FastError, says};
use super::setup::{Shared, hosts};
use super::{RouterReport, RouterState};
use crate::bypass::Near;
use crate::state::LabDir;

/// An anchor's part of its lab's fast path.
#[derive(Debug)]
pub(crate) struct Routers {
    shared: Shared,
    seats: BTreeMap<HostId, Seat>,
    /// Copies of all listeners under which programs run.
    held: Vec<HeldListener>,
    /// How many there have been.
    trees: u64,
    /// Nodes whose links are under conditions.
    altered: BTreeSet<NodeId>,
    /// Connections may live that may not be any more, and could not be found: they are looked for again.
    again: Option<Again>,
    /// Sockets of nodes that were ended without a word, so that their peers do not hear of it.
    muted: BTreeMap<NodeId, Vec<MutedSocket>>,
    /// Nodes whose programs get no answers for a while.
    holds: Holds,
    log: File,
}

/// A tree of programs whose calls wait for an answer.
#[derive(Debug)]
struct HeldListener {
    node: NodeId,
    /// Its own number.
    tree: u64,
    listener: OwnedFd,
}

impl Near<'_> {
    /// The PID namespaces of these nodes, as far as they run.
    fn namespaces(&self, of: impl Fn(NodeId) -> bool) -> BTreeSet<u64> {
        let inits = self.lab.nodes.ids().filter(|&node| of(node)).filter_map(|node| (self.init)(node));
        inits.filter_map(|init| walk::namespace(init).ok()).collect()
    }
}

impl Routers {
    /// Makes the routers of a lab, and waits until they run. `None` where no network is fast.
    pub(crate) fn start(near: &Near<'_>, dir: &LabDir, outside: Option<Outside>) -> Result<Option<Self>, FastError> {
        let lab = near.lab;
        let hosts: Vec<HostId> = hosts(lab).into_iter().filter(|&host| lab.is_here(host)).collect();
        if hosts.is_empty() {
            return Ok(None);
        }
        let shared = Shared::new(lab, outside).map_err(says("prepare the fast path"))?;
        let log = File::options().create(true).append(true).open(dir.join("fast.log"));
        let log = log.map_err(says("open the log of the fast path"))?;
        let mut fast = Self {
            shared,
            seats: BTreeMap::new(),
            held: Vec::new(),
            trees: 0,
            altered: BTreeSet::new(),
            again: None,
            muted: BTreeMap::new(),
            holds: Holds::new(),
            log,
        };
        fast.open_listeners(near, &hosts)?;
        hosts.into_iter().try_for_each(|host| fast.settle(near, host))?;
        Ok(Some(fast))
    }

    /// Opens the sockets at which the routers of these hosts accept others.
    fn open_listeners(&mut self, near: &Near<'_>, hosts: &[HostId]) -> Result<(), FastError> {
        hosts.iter().try_for_each(|&host| {
            let opened = self.shared.listen(near.lab, host, (near.host_net)(host));
            opened.map_err(says(format!("listen for other routers on {}", near.lab.hosts[host].name)))
        })
    }

    /// Makes a host's router, with what it needs around it.
    fn settle(&mut self, near: &Near<'_>, host: HostId) -> Result<(), FastError> {
        let lab = near.lab;
        // A kernel that has pairs has all that the guard needs to write on them.
        let is_paired = pairs::are_supported();
        // No name of a node begins so.
        let group = (near.group)(&format!("_router.{}", host.index() + 1))?;
        let guard = group.as_ref().and_then(Group::clone_target);
        let notes = is_paired.then(|| self.shared.metadata.storage());
        let guard = guard.map(|folder| filter::guard(folder, notes)).transpose()?;
        if guard.is_none() {
            let what = "has no control group of version 2: sockets that it hands out are guarded by itself alone";
            self.note(lab, host, what);
        }
        let free_options = guard.is_some() && is_paired;
        let told_again = self.shared.interruptions.is_ok();
        if let Err(why) = &self.shared.interruptions {
            let lost = "a connection is lost where a signal keeps a program from hearing of it";
            self.note(lab, host, &format!("{lost}: {why}"));
        }
        self.seats.insert(host, Seat { group, _guard: guard, free_options, told_again, ..Seat::default() });
        self.fill(near, host).map_err(says(format!("start the router of {}", lab.hosts[host].name)))
    }

    /// Has every router begin anew with the places that nodes have now, and makes those that are missing. Connections that
    /// live go on: programs hold their sockets.
    fn replace_all(&mut self, near: &Near<'_>) -> Result<(), FastError> {
        self.shared.relocate(near.lab).map_err(says("prepare the fast path of another host"))?;
        let seated: Vec<HostId> = self.seats.keys().copied().collect();
        let is_new = |host: &HostId| near.lab.is_here(*host) && !seated.contains(host);
        let new: Vec<HostId> = hosts(near.lab).into_iter().filter(is_new).collect();
        self.open_listeners(near, &new)?;
        for &host in &seated {
            self.vacate(near.lab, host, Some("a node moved"));
        }
        for host in new {
            self.settle(near, host)?;
        }
        for host in seated {
            if let Err(error) = self.fill(near, host) {
                self.vacate(near.lab, host, Some(&error.to_string()));
            }
        }
        Ok(())
    }

    /// Has calls of a node's programs heard by its host's router, now or, where that is being replaced, by the next.
    #[tracing::instrument(level = "debug", skip_all, fields(node), err(level = "debug"))]
    pub(crate) fn hear(&mut self, near: &Near<'_>, node: NodeId, listener: OwnedFd) -> Result<(), FastError> {
        let model = near.lab.nodes.get(node).ok_or(FastError::UnknownNode(node))?;
        if !self.seats.contains_key(&model.host) {
            return Err(FastError::NoRouter(model.name.clone()));
        }
        self.trees += 1;
        self.held.push(HeldListener { node, tree: self.trees, listener });
        let at = self.held.len() - 1;
        // One that cannot be told is being replaced, and the next is told.
        let _ = self.introduce(near, model.host, at).and_then(|()| self.serve(model.host));
        Ok(())
    }

    /// What is written on sockets that routers handed out.
    pub(crate) fn notes(&self) -> Result<OwnedFd, FastError> {
        self.shared.metadata_file().map_err(says("look at sockets of the fast path"))
    }

    /// How the routers are, as the anchor sees it.
    pub(crate) fn states(&self) -> Vec<RouterState> {
        self.seats.iter().map(|(&host, seat)| seat.state(host)).collect()
    }

    /// State and counts of each router.
    pub(crate) fn report(&mut self, near: &Near<'_>) -> Vec<RouterReport> {
        let hosts: Vec<HostId> = self.seats.keys().copied().collect();
        hosts.into_iter().map(|host| self.report_router(near, host)).collect()
    }
}

impl Routers {
    /// Writes down what became of a router. A full disk is no reason to end the lab.
    fn note(&mut self, lab: &Lab, host: HostId, what: &str) {
        tracing::info!(host = %lab.hosts[host].name, "router {what}");
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        let _ = writeln!(self.log, "{now} router of {}: {what}", lab.hosts[host].name);
    }
}
