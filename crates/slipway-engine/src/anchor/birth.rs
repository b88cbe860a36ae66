//! Nodes as their anchor holds them: born, ended, born again.

mod bypass;
mod death;
mod end;
mod links;
mod relocate;
mod spawner;
mod start;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::process::{PidfdFlags, getpid, pidfd_open};
use slipway_lab::id::{HostId, List, NodeId};
use slipway_lab::model::DriverKind;
use slipway_lab::policy::Rule;
use slipway_sys::bpf::SourceAddresses;
use slipway_sys::clone::SingleThread;
use slipway_sys::init;
use slipway_sys::mount::empty_namespace;

use super::error::{AnchorError, NodeError};
use super::logs::Logs;
use super::{Blueprint, room};
use crate::bypass::Near;
use crate::bypasses::Bypasses;
use crate::cgroup::LabGroups;
use crate::condition::Links;
use crate::disk;
use crate::exec::Launcher;
use crate::fast::Routers;
use crate::network::Fabric;
use crate::node::init::most_processes;
use crate::node::link::Step;
use crate::node::user;
use crate::protocol::State;
use crate::state::NodeStatus;

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
            group: &group,
            halt: &|_| Ok(()),
        };
        let bypasses = Bypasses::start(&near, &blueprint.dir)?;
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
}

impl Nodes {
    /// A host's network namespace.
    pub(super) fn host_net(&self, host: HostId) -> BorrowedFd<'_> {
        self.fabric.host_net(host)
    }

    /// Those of `which` that are in another state.
    fn not_in(&self, status: NodeStatus, which: &[NodeId]) -> Vec<NodeId> {
        which.iter().copied().filter(|&node| self.state.nodes[node].status != status).collect()
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

fn net_of(slots: &List<NodeId, Slot>, node: NodeId) -> Option<BorrowedFd<'_>> {
    slots.get(node)?.net.as_ref().map(AsFd::as_fd)
}

fn of_node(blueprint: &Blueprint, index: NodeId, source: NodeError) -> AnchorError {
    AnchorError::Start { node: blueprint.lab.nodes[index].name.clone(), source }
}
