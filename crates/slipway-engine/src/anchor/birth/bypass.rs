//! Bypasses of nodes: what they wait for, and what the anchor tells them.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::PollFd;
use slipway_lab::id::{HostId, NodeId};
use slipway_sys::cgroup::Group;
use slipway_sys::clone::SingleThread;

use super::{Blueprint, Nodes, net_of};
use crate::bypass::{BypassError, Near};
use crate::bypasses::Bypasses;
use crate::fast::{FastError, FastReport, Routers};

impl Nodes {
    /// The descriptors and events that bypasses wait for, and how long to wait at most.
    pub(in crate::anchor) fn waits_for(&self) -> (Vec<PollFd<'_>>, Option<Duration>) {
        (self.bypasses.waits_for(), self.bypasses.patience())
    }

    /// Acts on what happened there, in the same order.
    pub(in crate::anchor) fn tend(&mut self, alone: SingleThread, blueprint: &Blueprint, happened: &[bool]) {
        if self.with_bypasses(alone, blueprint, |bypasses, near| bypasses.tend(near, happened)) {
            self.write_routers(blueprint);
        }
    }

    /// Has the supervisor of a node's host hear a program's calls.
    pub(in crate::anchor) fn hear(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        node: NodeId,
        listener: OwnedFd,
    ) -> Result<(), BypassError> {
        self.with_bypasses(alone, blueprint, |bypasses, near| bypasses.hear(near, node, listener))
    }

    /// Reports on the fast path: its routers, and their connections.
    pub(in crate::anchor) fn report_fast(&mut self, alone: SingleThread, blueprint: &Blueprint) -> FastReport {
        self.with_bypasses(alone, blueprint, |bypasses, near| {
            let routers = bypasses.tcp_mut().map(|routers| routers.report(near)).unwrap_or_default();
            FastReport { routers, brokers: bypasses.report_rdma() }
        })
    }

    /// Has routers answer no calls of these nodes' programs for a while.
    pub(in crate::anchor) fn hold_answers(&mut self, alone: SingleThread, blueprint: &Blueprint, nodes: &[NodeId]) {
        self.with_bypasses(alone, blueprint, |bypasses, near| {
            if let Some(routers) = bypasses.tcp_mut() {
                routers.hold(near, nodes);
            }
        });
    }

    /// Has them answer again.
    pub(in crate::anchor) fn release_answers(&mut self, nodes: &[NodeId]) {
        if let Some(routers) = self.bypasses.tcp_mut() {
            routers.release(nodes);
        }
    }

    /// The map with the metadata of sockets on the fast path.
    pub(in crate::anchor) fn notes(&self) -> Result<OwnedFd, FastError> {
        self.bypasses.tcp().ok_or(FastError::NoNetwork)?.notes()
    }

    pub(super) fn with_bypasses<T>(
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
        let group = |name: &str| groups.as_ref().map(|groups| groups.of_process(name)).transpose();
        let (host_net, net, init) = (&host_net, &net, &init);
        act(bypasses, &Near { alone, lab, lock, host_net, net, init, group: &group, halt: &halt })
    }

    pub(super) fn write_routers(&mut self, blueprint: &Blueprint) {
        self.state.routers = self.bypasses.tcp().map(Routers::states).unwrap_or_default();
        // Routers tell their state on request too. A full disk must not end the lab.
        let _ = blueprint.write(&self.state);
    }
}
