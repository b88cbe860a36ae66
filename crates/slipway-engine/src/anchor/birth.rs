//! Nodes as their anchor holds them: born, ended, born again.

mod death;
mod spawner;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use rustix::event::PollFd;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open};
use slipway_lab::id::{HostId, List, NodeId};
use slipway_lab::model::DriverKind;
use slipway_lab::policy::Rule;
use slipway_sys::bpf::SourceAddresses;
use slipway_sys::cgroup::Group;
use slipway_sys::clone::SingleThread;
use slipway_sys::init;
use slipway_sys::mount::empty_namespace;
use slipway_sys::process::ProcessId;

use super::error::{AnchorError, NodeError};
use super::logs::Logs;
use super::{Blueprint, room};
use crate::bypass::{BypassError, Near};
use crate::bypasses::Bypasses;
use crate::cgroup::LabGroups;
use crate::condition::{Around, LinkError, LinkReport, Links, Place, Seat};
use crate::disk;
use crate::exec::{Child, Entry, Launcher, Program, Stdio, ssh};
use crate::fast::{FastError, FastReport, Routers};
use crate::network::graph::Graph;
use crate::network::{Fabric, NodeNet, mark, sources};
use crate::node::init::most_processes;
use crate::node::link::{Link, Step};
use crate::node::user;
use crate::protocol::State;
use crate::state::{NodeState, NodeStatus, ProgramEnd};

/// Everything the anchor holds of a lab.
#[derive(Debug)]
pub(super) struct Nodes {
    /// This process, for those that it makes to see whether it lives.
    anchor: OwnedFd,
    /// Most processes of a node.
    processes: Option<u32>,
    /// Whether a node gets a user namespace of its own, by its index.
    users: List<NodeId, bool>,
    /// The program of PID 1 in every node.
    init: init::Program,
    /// A mount namespace with nothing in it, which each node's begins as.
    empty: OwnedFd,
    fabric: Fabric,
    /// `None` where this machine lets us make no control groups.
    groups: Option<LabGroups>,
    launcher: Launcher,
    slots: List<NodeId, Slot>,
    links: Links,
    bypasses: Bypasses,
    pub(super) logs: Logs,
    /// The rules that hold.
    pub(super) policy: Vec<Rule>,
    pub(super) state: State,
}

/// What is held of one node.
#[derive(Debug, Default)]
struct Slot {
    /// Kept while the node is stopped or dead, so that its links outlive it.
    net: Option<OwnedFd>,
    /// Whether its interfaces have been made.
    linked: bool,
    /// On driver `host`: what has its programs send from the node's own address.
    sources: Option<SourceAddresses>,
}

/// A node whose init is on its way.
struct Unborn {
    index: NodeId,
    link: Link,
}

impl Nodes {
    /// Makes what nodes share: networks, control groups, the profile that confines them.
    #[tracing::instrument(level = "debug", skip_all, err(level = "debug"))]
    pub(super) fn prepare(alone: SingleThread, blueprint: &Blueprint, state: State) -> Result<Self, AnchorError> {
        let lab = &blueprint.lab;
        let empty = empty_namespace(alone, &blueprint.dir.join("root"));
        let disks = disk::prepare(lab, &blueprint.dir, &blueprint.scratch)?;
        let fabric = Fabric::build(lab, blueprint.dir.path())?;
        let groups = LabGroups::make(lab, &blueprint.dir, &disks)?;
        let launcher = Launcher::new().map_err(AnchorError::system("prepare to start programs"))?;
        // After that has kept the limit of programs.
        room::take(lab).map_err(AnchorError::system("open as many files as the lab needs"))?;
        let group = |name: &str| groups.as_ref().map(|groups| groups.of_process(name)).transpose();
        let near = Near {
            alone,
            lab,
            lock: blueprint.lock.file().as_fd(),
            host_net: &|host| fabric.host_net(host),
            net: &|_| None,
            init: &|_| None,
            halt: &|_| Ok(()),
        };
        let bypasses = Bypasses::start(&near, &blueprint.dir, &group)?;
        let routers = bypasses.tcp().map(Routers::states).unwrap_or_default();
        let state = State { networks: fabric.mechanisms().clone(), routers, ..state };
        let anchor = pidfd_open(getpid(), PidfdFlags::empty());
        Ok(Self {
            anchor: anchor.map_err(io::Error::from).map_err(AnchorError::system("open the anchor's own process"))?,
            processes: most_processes().map_err(AnchorError::system("look how many processes there may be"))?,
            users: user::own(lab),
            init: init::Program::new(Step::Ready as u8).map_err(AnchorError::system("make the program of inits"))?,
            empty: empty.map_err(AnchorError::system("make an empty mount namespace"))?,
            fabric,
            groups,
            launcher,
            slots: lab.nodes.iter().map(|_| Slot::default()).collect(),
            links: blueprint.links.anew(),
            bypasses,
            logs: Logs::new(blueprint.dir.join("log")),
            policy: lab.policy.clone(),
            state,
        })
    }

    /// Gives each of `which` an init. On error none of them has one.
    pub(super) fn start(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        which: &[NodeId],
        mut ready: impl FnMut(usize) -> Result<(), AnchorError>,
    ) -> Result<(), AnchorError> {
        let outcome = self.bear(alone, blueprint, which, &mut ready);
        if outcome.is_err() {
            self.kill(alone, blueprint, which);
        }
        outcome
    }

    #[tracing::instrument(level = "debug", skip_all, fields(nodes = which.len()), err(level = "debug"))]
    fn bear(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        which: &[NodeId],
        ready: &mut dyn FnMut(usize) -> Result<(), AnchorError>,
    ) -> Result<(), AnchorError> {
        which.iter().try_for_each(|&index| self.make_way(blueprint, index))?;
        // Not closed before every init has said its last.
        let spawners = self.make_spawners(alone, blueprint, which)?;
        let mut linked = Vec::new();
        let mut done = 0;
        for window in which.chunks(spawners.len().max(1)).chain([&[][..]]) {
            let mut unborn = Vec::with_capacity(window.len());
            for (&index, spawner) in window.iter().zip(&spawners) {
                let link = spawner.make(index).map_err(|error| of_node(blueprint, index, error))?;
                unborn.push(Unborn { index, link });
            }
            self.link(blueprint, &unborn)?;
            // Those before, who were busy meanwhile.
            for Unborn { index, link } in std::mem::replace(&mut linked, unborn) {
                link.expect(Step::Ready).map_err(|error| of_node(blueprint, index, error.into()))?;
                self.state.nodes[index].status = NodeStatus::Running;
                done += 1;
                ready(done)?;
            }
        }
        // In force before the first packet passes.
        self.links.wake(which);
        self.with_links(alone, blueprint, |links, around| links.establish(around, which))?;
        self.bypasses.born(which);
        self.fabric.open(&blueprint.lab)?;
        // Not before all nodes are there: a command may talk to any of them.
        which.iter().try_for_each(|&index| self.start_programs(alone, blueprint, index))
    }

    /// Starts the node's ssh server and its own command, where it has them.
    fn start_programs(&mut self, alone: SingleThread, blueprint: &Blueprint, index: NodeId) -> Result<(), AnchorError> {
        let node = &blueprint.lab.nodes[index];
        let says = |what: &'static str| move |error| of_node(blueprint, index, NodeError::system(what)(error));
        if node.sshd {
            let exit = self
                .start_program(alone, blueprint, index, &ssh::setup())?
                .wait()
                .map_err(says("wait for its setup"))?;
            if exit.code() != 0 {
                return Err(of_node(blueprint, index, NodeError::Ssh));
            }
            self.start_program(alone, blueprint, index, &ssh::server(node))?;
        }
        if let Some(argv) = &node.command {
            let program = Program { argv: argv.iter().map(Into::into).collect(), ..Program::default() };
            let child = self.start_program(alone, blueprint, index, &program)?;
            self.state.nodes[index].command = Some(ProcessId::of(child.pid()).map_err(says("name its command"))?);
        }
        Ok(())
    }

    /// Starts a program in a node, its output going to the node's log.
    #[tracing::instrument(level = "debug", skip_all, fields(node = %blueprint.lab.nodes[index].name, program = ?program.argv.first()), err(level = "debug"))]
    fn start_program(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        index: NodeId,
        program: &Program,
    ) -> Result<Child, AnchorError> {
        let node = &blueprint.lab.nodes[index];
        let says = |what: &'static str| move |error| of_node(blueprint, index, NodeError::system(what)(error));
        let init = self.state.nodes[index].init.ok_or_else(|| of_node(blueprint, index, NodeError::NotRunning))?;
        let log = self.logs.open(index, &node.name).map_err(says("open its log"))?;
        let null = File::open("/dev/null").map_err(says("open /dev/null"))?;
        let group = self.group(blueprint, index)?;
        let entry = Entry::of(&blueprint.dir, &blueprint.lab, &self.state.routers, index, init, group);
        let stdio = Stdio::Descriptors([null.as_fd(), log.as_fd(), log.as_fd()]);
        let Self { launcher, bypasses, fabric, slots, state, .. } = self;
        let (host_net, net) = (|host: HostId| fabric.host_net(host), |node: NodeId| net_of(slots, node));
        let init = |node: NodeId| state.nodes[node].init.map(|init| init.pid);
        let (lab, lock) = (&blueprint.lab, blueprint.lock.file().as_fd());
        let near = Near { alone, lab, lock, host_net: &host_net, net: &net, init: &init, halt: &|_| Ok(()) };
        let mut hear = |listener| bypasses.hear(&near, index, listener).map_err(std::io::Error::other);
        let started =
            launcher.spawn_heard(&entry, program, stdio, None, &mut |_, listener| hear(listener), &mut |_| Ok(()));
        Ok(started?)
    }

    /// Does what has to be done for a node before it gets an init.
    fn make_way(&mut self, blueprint: &Blueprint, index: NodeId) -> Result<(), AnchorError> {
        if blueprint.lab.nodes[index].rules_its_network() {
            self.renew_network(blueprint, index)?;
        }
        let own = sources(&blueprint.lab, index);
        if !own.is_empty() {
            let group = self.group(blueprint, index)?;
            if let Some(folder) = group.as_ref().and_then(Group::clone_target) {
                let slot = &mut self.slots[index];
                // Where the kernel cannot, the network's notes say so (`Host::probe`).
                slot.sources = slot.sources.take().or_else(|| SourceAddresses::attach(folder, &own, mark(index)).ok());
            }
        }
        self.state.nodes[index] = NodeState::STOPPED;
        Ok(())
    }

    /// Has a node whose programs may change its network get a new one: nobody knows what they left of the one before.
    fn renew_network(&mut self, blueprint: &Blueprint, index: NodeId) -> Result<(), AnchorError> {
        let slot = &mut self.slots[index];
        slot.net = None;
        if std::mem::replace(&mut slot.linked, false) {
            self.fabric.detach(&blueprint.lab, index)?;
            self.links.renew(index);
        }
        Ok(())
    }

    /// The node's control group, made if it is not there; a node that starts again has the limits that it had.
    fn group(&self, blueprint: &Blueprint, index: NodeId) -> Result<Option<Group>, AnchorError> {
        self.group_of(blueprint, index).map_err(|error| of_node(blueprint, index, error))
    }

    fn group_of(&self, blueprint: &Blueprint, index: NodeId) -> Result<Option<Group>, NodeError> {
        let name = &blueprint.lab.nodes[index].name;
        let group = self.groups.as_ref().map(|groups| groups.node(index, name)).transpose()?;
        // One that was frozen when it ended would be born frozen.
        group.as_ref().filter(|_| self.state.ready).map_or(Ok(()), Group::thaw)?;
        Ok(group)
    }

    /// Waits for the window's namespaces and puts interfaces into those that are new.
    #[tracing::instrument(level = "debug", skip_all, fields(nodes = unborn.len()), err(level = "debug"))]
    fn link(&mut self, blueprint: &Blueprint, unborn: &[Unborn]) -> Result<(), AnchorError> {
        let mut fresh = Vec::new();
        for Unborn { index, link } in unborn {
            let pid = link.born().map_err(|error| of_node(blueprint, *index, error.into()))?;
            let named = ProcessId::of(pid)
                .map_err(|error| of_node(blueprint, *index, NodeError::system("name its init")(error)));
            self.state.nodes[*index].init = Some(named?);
        }
        for Unborn { index, link } in unborn {
            link.expect(Step::Namespaced).map_err(|error| of_node(blueprint, *index, error.into()))?;
            let slot = &mut self.slots[*index];
            if slot.net.is_none() {
                let pid = self.state.nodes[*index].init.map_or(0, |init| init.pid);
                let path = PathBuf::from(format!("/proc/{pid}/ns/net"));
                let net = File::open(&path).map_err(|error| match error.kind() {
                    ErrorKind::NotFound => of_node(blueprint, *index, link.last_word().into()),
                    _ => of_node(blueprint, *index, NodeError::system(format!("open {}", path.display()))(error)),
                })?;
                slot.net = Some(out_of_the_way(net.into()));
            }
            if std::mem::replace(&mut slot.linked, true) {
                self.fabric.set_carrier(&blueprint.lab, *index, true)?;
            } else {
                fresh.push(*index);
            }
        }
        let nets: Vec<NodeNet<'_>> = fresh
            .iter()
            .filter_map(|&node| self.slots[node].net.as_ref().map(|net| NodeNet { node, netns: net.as_fd() }))
            .collect();
        self.fabric.attach(&blueprint.lab, &nets)?;
        for Unborn { index, link } in unborn {
            link.say(Step::Linked).map_err(|_| of_node(blueprint, *index, link.last_word().into()))?;
        }
        Ok(())
    }

    /// As [`start`](Self::start), on request; nodes that run already are left alone.
    pub(super) fn start_asked(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        which: &[NodeId],
    ) -> Result<(), AnchorError> {
        let which: Vec<NodeId> =
            which.iter().copied().filter(|&i| self.state.nodes[i].status != NodeStatus::Running).collect();
        let outcome = self.start(alone, blueprint, &which, |_| Ok(()));
        blueprint.write(&self.state)?;
        outcome
    }

    /// How links are now.
    pub(super) fn report_links(&mut self, blueprint: &Blueprint) -> LinkReport {
        self.links.report(&blueprint.lab)
    }

    /// Has something done to links, and gives how many fast connections ended with it.
    pub(super) fn with_links(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        act: impl FnOnce(&mut Links, &Around<'_>) -> Result<(), LinkError>,
    ) -> Result<u64, AnchorError> {
        let Self { slots, fabric, .. } = self;
        let (slots, fabric, lab) = (&*slots, &*fabric, &blueprint.lab);
        let seat = |(node, slot): Place| {
            if lab.nodes[node].rules_its_network() {
                let (net, name) = fabric.host_end(lab, node, slot)?;
                return Some(Seat { net, name, outside: true });
            }
            let name = lab.nodes[node].interfaces[slot].name.clone();
            Some(Seat { net: net_of(slots, node)?, name, outside: false })
        };
        let around = Around { alone, lab, lock: blueprint.lock.file().as_fd(), seat: &seat };
        let outcome = act(&mut self.links, &around);
        // What failed half-way may have altered some.
        let altered = self.links.altered();
        let ended = self.with_bypasses(alone, blueprint, |bypasses, near| bypasses.set_conditions(near, &altered));
        outcome?;
        Ok(ended?)
    }

    /// Puts rules in the place of those that there were, and gives how many fast connections ended with it.
    pub(super) fn set_policy(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        rules: Vec<Rule>,
    ) -> Result<u64, AnchorError> {
        // Beneath first: what a bypass forbids goes there.
        self.fabric.set_policy(&blueprint.lab, &rules)?;
        self.policy = rules;
        let rules = self.policy.clone();
        Ok(self.with_bypasses(alone, blueprint, |bypasses, near| bypasses.set_policy(near, &rules))?)
    }

    /// The namespaces and devices of the lab's networks and conditions.
    pub(super) fn graph(&self, blueprint: &Blueprint) -> Graph {
        let mut graph = self.fabric.graph();
        self.links.add_to(&blueprint.lab, &mut graph);
        graph
    }

    /// The descriptors and events that bypasses wait for, and how long to wait at most.
    pub(super) fn waits_for(&self) -> (Vec<PollFd<'_>>, Option<Duration>) {
        (self.bypasses.waits_for(), self.bypasses.patience())
    }

    /// Acts on what happened there, in the same order.
    pub(super) fn tend(&mut self, alone: SingleThread, blueprint: &Blueprint, happened: &[bool]) {
        if self.with_bypasses(alone, blueprint, |bypasses, near| bypasses.tend(near, happened)) {
            self.write_routers(blueprint);
        }
    }

    /// Has the supervisor of a node's host hear a program's calls.
    pub(super) fn hear(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        node: NodeId,
        listener: OwnedFd,
    ) -> Result<(), BypassError> {
        self.with_bypasses(alone, blueprint, |bypasses, near| bypasses.hear(near, node, listener))
    }

    /// How the fast path is.
    pub(super) fn report_fast(&mut self, alone: SingleThread, blueprint: &Blueprint) -> FastReport {
        self.with_bypasses(alone, blueprint, |bypasses, near| {
            bypasses.tcp_mut().map(|routers| routers.report(near)).unwrap_or_default()
        })
    }

    /// What is written on sockets of the fast path.
    pub(super) fn notes(&self) -> Result<OwnedFd, FastError> {
        self.bypasses.tcp().ok_or(FastError::NoNetwork)?.notes()
    }

    fn with_bypasses<T>(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        act: impl FnOnce(&mut Bypasses, &Near<'_>) -> T,
    ) -> T {
        let Self { bypasses, fabric, slots, groups, state, .. } = self;
        let (host_net, net) = (|host: HostId| fabric.host_net(host), |node: NodeId| net_of(slots, node));
        let init = |node: NodeId| state.nodes[node].init.map(|init| init.pid);
        let (lab, lock) = (&blueprint.lab, blueprint.lock.file().as_fd());
        let halt = |node: NodeId| {
            let group = groups.as_ref().map(|groups| groups.node(node, &lab.nodes[node].name)).transpose();
            let halt = |group: &Group| if group.is_frozen()? { Ok(()) } else { group.freeze().and(group.thaw()) };
            group.and_then(|group| group.as_ref().map_or(Ok(()), halt))
        };
        act(bypasses, &Near { alone, lab, lock, host_net: &host_net, net: &net, init: &init, halt: &halt })
    }

    fn write_routers(&mut self, blueprint: &Blueprint) {
        self.state.routers = self.bypasses.tcp().map(Routers::states).unwrap_or_default();
        // Whoever asks a router hears it too; a full disk must not end the lab.
        let _ = blueprint.write(&self.state);
    }

    /// Ends every node and collects its init, so that a machine whose PID 1 is slow to reap sees no zombies.
    pub(super) fn end(&mut self, alone: SingleThread, blueprint: &Blueprint) {
        let all: Vec<NodeId> = self.slots.ids().collect();
        self.kill(alone, blueprint, &all);
        self.bypasses.end();
        self.links.end();
    }

    /// Ends the inits of `which`, and so every process in their PID namespaces.
    #[tracing::instrument(level = "debug", skip_all, fields(nodes = which.len()))]
    fn kill(&mut self, alone: SingleThread, blueprint: &Blueprint, which: &[NodeId]) {
        for &index in which {
            // It is nobody else: an init that has ended keeps its number until this process collects it.
            if let Some(init) = self.state.nodes[index].init.and_then(|init| Pid::from_raw(init.pid)) {
                // Gone already is what is wanted.
                let _ = kill_process(init, Signal::KILL);
            }
        }
        self.bypasses.died(which);
        let mut ending = BTreeSet::new();
        for &index in which {
            let node = &mut self.state.nodes[index];
            node.status = NodeStatus::Stopped;
            ending.extend(node.init.take().map(|init| init.pid));
        }
        // Whichever child ends first: an init ends after all others in its node are collected (`pid_namespaces(7)`), and
        // the node's command is this process's child too.
        while !ending.is_empty() {
            match waitpid(None, None) {
                Ok(status) => {
                    let pid = status.pid().map_or(0, nix::unistd::Pid::as_raw);
                    if !ending.remove(&pid) {
                        self.ended(alone, blueprint, status);
                    }
                }
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
    }

    /// Notes that a child ended: a node's init, and so the node, or a node's command.
    pub(super) fn ended(&mut self, alone: SingleThread, blueprint: &Blueprint, status: WaitStatus) {
        let Some(pid) = status.pid().map(nix::unistd::Pid::as_raw) else { return };
        let is = |process: Option<ProcessId>| process.is_some_and(|process| process.pid == pid);
        if self.links.ended(pid) {
            return;
        }
        if self.bypasses.helper_ended(&blueprint.lab, status) {
            self.write_routers(blueprint);
            return;
        }
        if let Some(helper) = self.fabric.helper(&blueprint.lab, pid) {
            tracing::error!(?status, "{helper} ended: its networks pass nothing any more");
            return;
        }
        if let Some(index) = self.state.nodes.position(|node| is(node.init)) {
            tracing::info!(node = %blueprint.lab.nodes[index].name, ?status, "its init ended: the node is dead");
            let node = &mut self.state.nodes[index];
            (node.status, node.init, node.command) = (NodeStatus::Dead, None, None);
            // Its network outlives it, and the kernel in it would go on to answer pings. A link that cannot be silenced is
            // no reason to end the lab.
            let _ = self.bury(alone, blueprint, &[index]);
        } else if let Some(node) = self.state.nodes.iter_mut().find(|node| is(node.command)) {
            node.command = None;
            node.ended = match status {
                WaitStatus::Exited(_, code) => Some(ProgramEnd { code, signal: None }),
                WaitStatus::Signaled(_, signal, _) => {
                    Some(ProgramEnd { code: 128 + signal as i32, signal: Some(signal as i32) })
                }
                _ => None,
            };
        } else {
            return;
        }
        // Readers look at the processes too; a full disk must not end the lab.
        let _ = blueprint.write(&self.state);
    }
}

impl Blueprint {
    /// Nodes on driver `host` have no network namespace of their own.
    fn on_host_network(&self, node: NodeId) -> bool {
        self.lab.nodes[node]
            .interfaces
            .iter()
            .any(|interface| self.lab.networks[interface.network].driver == DriverKind::Host)
    }

    fn scratch(&self, node: NodeId) -> PathBuf {
        self.scratch.join(&self.lab.nodes[node].name)
    }
}

/// The descriptors below this are those of the anchor itself, as a rule, and each init copies as many.
const FIRST_OF_NODES: RawFd = 512;

/// Gives a node's descriptor another number, so that inits take nothing of it along. Where there is none, it keeps its own.
fn out_of_the_way(of_node: OwnedFd) -> OwnedFd {
    fcntl_dupfd_cloexec(&of_node, FIRST_OF_NODES).unwrap_or(of_node)
}

fn net_of(slots: &List<NodeId, Slot>, node: NodeId) -> Option<BorrowedFd<'_>> {
    slots.get(node)?.net.as_ref().map(AsFd::as_fd)
}

fn of_node(blueprint: &Blueprint, index: NodeId, source: NodeError) -> AnchorError {
    AnchorError::Start { node: blueprint.lab.nodes[index].name.clone(), source }
}
