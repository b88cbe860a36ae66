//! The start of nodes.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::io::fcntl_dupfd_cloexec;
use slipway_lab::id::{HostId, NodeId};
use slipway_sys::bpf::SourceAddresses;
use slipway_sys::cgroup::Group;
use slipway_sys::clone::SingleThread;
use slipway_sys::process::ProcessId;

use super::{AnchorError, Blueprint, NodeError, Nodes, net_of, of_node};
use crate::bypass::Near;
use crate::exec::{Child, Entry, Program, Stdio, ssh};
use crate::network::{NodeNet, mark, sources};
use crate::node::link::{Link, Step};
use crate::state::{NodeState, NodeStatus};

/// A node whose init is on its way.
struct Unborn {
    index: NodeId,
    link: Link,
}

impl Nodes {
    /// Gives each of `which` an init. On error none of them has one.
    pub(in crate::anchor) fn start(
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
        let near = Near {
            alone,
            lab,
            lock,
            host_net: &host_net,
            net: &net,
            init: &init,
            group: &|_| Ok(None),
            halt: &|_| Ok(()),
        };
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

    pub(super) fn group_of(&self, blueprint: &Blueprint, index: NodeId) -> Result<Option<Group>, NodeError> {
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
    pub(in crate::anchor) fn start_asked(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        which: &[NodeId],
    ) -> Result<(), AnchorError> {
        let which = self.not_in(NodeStatus::Running, which);
        let outcome = self.start(alone, blueprint, &which, |_| Ok(()));
        blueprint.write(&self.state)?;
        outcome
    }
}

/// The descriptors below this are those of the anchor itself, as a rule, and each init copies as many.
const FIRST_OF_NODES: RawFd = 512;

/// Gives a node's descriptor another number, so that inits take nothing of it along. Where there is none, it keeps its own.
fn out_of_the_way(of_node: OwnedFd) -> OwnedFd {
    fcntl_dupfd_cloexec(&of_node, FIRST_OF_NODES).unwrap_or(of_node)
}
