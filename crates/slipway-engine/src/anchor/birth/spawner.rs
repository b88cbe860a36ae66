//! Spawners: processes that make inits.
//!
//! A spawner is a clone of the anchor, for as long as nodes start. It makes one init after the other. Each borrows the
//! spawner's memory until it executes its own program (`slipway_sys::clone::clone_borrowing`), so the kernel copies the anchor's memory once
//! a spawner and not once a node. Inits are the anchor's children: they end with it, and it hears of their ends.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sched::CloneFlags;
use nix::sys::wait::waitpid;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Pid;
use slipway_lab::id::NodeId;
use slipway_sys::cgroup::Group;
use slipway_sys::clone::{Bare, Parting, SingleThread, Stack, clone_bare, clone_borrowing};
use slipway_sys::process::end_with;

use super::{AnchorError, Blueprint, NodeError, Nodes};
use crate::bypasses;
use crate::cgroup::LabGroups;
use crate::network::{configure_node, prepare_node};
use crate::node::init::{Birth, Net, live};
use crate::node::link::Link;
use crate::node::rootfs::Root;
use crate::packet;

/// Most spawners, and so the most inits that are on their way at once. Enough to keep every core busy with mounts while the anchor
/// makes links; few enough that a failure is seen soon.
const MOST: usize = 32;
/// Fewer nodes than this are not worth one more.
const NODES_EACH: usize = 4;
/// Longest message of the anchor's: a node's index.
const LONGEST: usize = size_of::<usize>();

/// A spawner as the anchor holds it. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Spawner {
    pid: Pid,
    /// Taken when it is to end.
    orders: Option<OwnedFd>,
}

impl Spawner {
    /// Has it make the init of a node, once it has made those before. Gives the anchor's end of the link to that init.
    pub(super) fn make(&self, index: NodeId) -> Result<Link, NodeError> {
        let (ours, theirs) = Link::pair().map_err(NodeError::system("open a socket pair"))?;
        let orders = self.orders.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into());
        let told = orders.and_then(|orders| packet::send(orders, &index.index().to_ne_bytes(), Some(theirs.as_fd())));
        told.map_err(NodeError::system("have its init made"))?;
        Ok(ours)
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.orders = None;
        // Somebody else may have collected it (`Nodes::kill`).
        while waitpid(nix::unistd::Pid::from_raw(self.pid.as_raw_nonzero().get()), None) == Err(Errno::EINTR) {}
    }
}

/// The anchor's descriptors that a spawner holds until it has its own.
struct Taken {
    parting: Parting,
    _orders: OwnedFd,
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Nothing else keeps a spawner from its own; without them, it ends, and its inits' links tell.
        let _ = self.parting.wait();
    }
}

impl Nodes {
    /// Makes the spawners of these nodes.
    pub(super) fn make_spawners(
        &self,
        alone: SingleThread,
        blueprint: &Blueprint,
        which: &[NodeId],
    ) -> Result<Vec<Spawner>, AnchorError> {
        let says = || AnchorError::system("make a process that makes inits");
        let mut keep = vec![0, 1, 2, self.anchor.as_raw_fd(), self.empty.as_raw_fd()];
        keep.extend(self.init.descriptors());
        keep.extend(self.groups.iter().flat_map(LabGroups::descriptors));
        keep.extend(which.iter().filter_map(|&index| Some(self.net(blueprint, index).joined()?.as_raw_fd())));
        let (mut spawners, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..which.len().div_ceil(NODES_EACH).min(MOST) {
            let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
            let (ours, theirs) = pair.map_err(|error| says()(error.into()))?;
            let kept: Vec<_> = keep.iter().copied().chain([theirs.as_raw_fd()]).collect();
            match clone_bare(alone, CloneFlags::empty(), None, &kept).map_err(says())? {
                Bare::Child => self.spawn(alone, blueprint, &theirs),
                Bare::Parent(pid, parting) => {
                    taken.push(Taken { parting, _orders: theirs });
                    spawners.push(Spawner { pid, orders: Some(ours) });
                }
            }
        }
        Ok(spawners)
    }

    /// The life of a spawner.
    fn spawn(&self, alone: SingleThread, blueprint: &Blueprint, orders: &OwnedFd) -> ! {
        let mut stack = Stack::default();
        if end_with(&self.anchor).is_ok() {
            // Nothing more to do, or nobody to do it for.
            while let Ok((order, Some(link))) = packet::receive(orders, LONGEST) {
                let Ok(index) = order.try_into().map(|bytes| NodeId(usize::from_ne_bytes(bytes))) else { break };
                let link = Link::of(link);
                if let Err(error) = self.make_init(alone, blueprint, index, &link, &mut stack) {
                    link.fail(&error.to_string());
                }
            }
        }
        std::process::exit(0)
    }

    fn make_init(
        &self,
        alone: SingleThread,
        blueprint: &Blueprint,
        index: NodeId,
        link: &Link,
        stack: &mut Stack,
    ) -> Result<(), NodeError> {
        let group = self.group_of(blueprint, index)?;
        let birth = Birth {
            anchor: self.anchor.as_fd(),
            program: &self.init,
            processes: self.processes,
            group: group.as_ref(),
            root: Root {
                dir: &blueprint.dir,
                node: &blueprint.lab.nodes[index],
                image: &blueprint.images[blueprint.lab.nodes[index].image],
                needs: &bypasses::needs(&blueprint.dir, &blueprint.lab, &self.state.routers, index),
                scratch: &blueprint.scratch(index),
                empty: self.empty.as_fd(),
            },
            net: self.net(blueprint, index),
            prepare: &|proc| prepare_node(&blueprint.lab, index, proc),
            configure: &|| configure_node(&blueprint.lab, index),
            confine: &|| self.launcher.confine_init(),
        };
        let born_in = group.as_ref().and_then(Group::clone_target);
        let mut life = |pid| live(&birth, pid, link);
        let made = clone_borrowing(alone, CloneFlags::CLONE_NEWPID, born_in, stack, &mut life);
        made.map(drop).map_err(NodeError::system("clone its init"))
    }

    /// The network namespace that a node is to have.
    fn net(&self, blueprint: &Blueprint, index: NodeId) -> Net<'_> {
        match &self.slots[index].net {
            Some(kept) => Net::Join(kept.as_fd()),
            None if blueprint.on_host_network(index) => {
                Net::Join(self.fabric.host_net(blueprint.lab.nodes[index].host))
            }
            None if self.users[index] => Net::Owned,
            None => Net::Own,
        }
    }
}
