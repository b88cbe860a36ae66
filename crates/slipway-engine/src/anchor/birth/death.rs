//! How nodes end, and what their peers see of it.

use std::collections::BTreeSet;

use slipway_lab::id::NodeId;
use slipway_lab::scenario::Kill;
use slipway_sys::cgroup::Group;
use slipway_sys::clone::SingleThread;
use slipway_sys::ns::with_net;
use slipway_sys::sock_diag::{destroy_tcp, tcp_sockets};

use super::{AnchorError, Blueprint, Nodes, net_of};
use crate::state::NodeStatus;

/// How much peers hear of a node's end. Afterwards they hear nothing, whichever it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// Nothing: its power is gone.
    Silent,
    /// Resets of its connections: it crashed.
    Reset,
    /// Ends of its connections, from its kernel: it was shut down.
    Closed,
}

impl From<Kill> for Death {
    fn from(how: Kill) -> Self {
        match how {
            Kill::Graceful { .. } => Self::Closed,
            Kill::Soft => Self::Reset,
            Kill::Hard => Self::Silent,
        }
    }
}

impl Nodes {
    /// Silences the links of `which`, then ends every process in them. Packets sent before are on their way.
    pub(in crate::anchor) fn halt(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        which: &[NodeId],
    ) -> Result<(), AnchorError> {
        let which = self.not_in(NodeStatus::Stopped, which);
        let silenced = self.bury(alone, blueprint, &which);
        self.kill(alone, blueprint, &which);
        blueprint.write(&self.state)?;
        silenced
    }

    /// Has nothing come from the links of `which` any more, but what waits in them.
    pub(super) fn bury(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        which: &[NodeId],
    ) -> Result<(), AnchorError> {
        let mut buried = BTreeSet::new();
        let done = self.with_links(alone, blueprint, |links, around| {
            buried = links.bury(around, which)?;
            Ok(())
        });
        // Those whose links could not be closed are silent too: then what waits there is lost.
        let others: Vec<NodeId> = which.iter().copied().filter(|index| !buried.contains(index)).collect();
        done.map(drop).and(self.silence(blueprint, &others))
    }

    fn silence(&mut self, blueprint: &Blueprint, which: &[NodeId]) -> Result<(), AnchorError> {
        Ok(which.iter().try_for_each(|&index| self.fabric.set_carrier(&blueprint.lab, index, false))?)
    }

    /// Ends every process in `which`, in this manner, and then whatever their kernels would answer or forward.
    pub(in crate::anchor) fn crash(
        &mut self,
        alone: SingleThread,
        blueprint: &Blueprint,
        which: &[NodeId],
        death: Death,
    ) -> Result<(), AnchorError> {
        let hard = death == Death::Silent;
        let running = |index: &NodeId| self.state.nodes[*index].status == NodeStatus::Running;
        let which: Vec<NodeId> = which.iter().copied().filter(running).collect();
        if hard {
            if let Some(&index) = which.iter().find(|&&index| blueprint.on_host_network(index)) {
                return Err(AnchorError::SharedLinks(blueprint.lab.nodes[index].name.clone()));
            }
            self.silence(blueprint, &which)?;
        }
        let told = match death {
            Death::Silent => self.hush(alone, blueprint, &which),
            Death::Reset => self.reset(blueprint, &which),
            Death::Closed => Ok(()),
        };
        self.kill(alone, blueprint, &which);
        // An init ends after all others in its node: the ends of their connections are on the way by now.
        let silenced = if hard { Ok(()) } else { self.bury(alone, blueprint, &which) };
        for &index in &which {
            self.state.nodes[index].status = NodeStatus::Dead;
        }
        blueprint.write(&self.state).and(told).and(silenced)
    }

    /// Resets connections of nodes that have a network of their own. As programs end, the kernel would end connections in good
    /// order, of which a crash knows nothing.
    fn reset(&mut self, blueprint: &Blueprint, which: &[NodeId]) -> Result<(), AnchorError> {
        let own = |&index: &NodeId| !blueprint.on_host_network(index);
        let which: Vec<NodeId> = which.iter().copied().filter(own).collect();
        self.end_stopped(blueprint, &which, |nodes| {
            for net in which.iter().filter_map(|&index| net_of(&nodes.slots, index)) {
                // A kernel that cannot reset them closes them with their programs.
                let _ = with_net(net, || {
                    for socket in tcp_sockets()? {
                        let _ = destroy_tcp(socket.local, socket.remote, socket.cookie);
                    }
                    Ok::<_, std::io::Error>(())
                });
            }
        })
    }

    /// Ends the programs of nodes with bypasses so that nobody hears of it by their connections there: these outlive them.
    fn hush(&mut self, alone: SingleThread, blueprint: &Blueprint, which: &[NodeId]) -> Result<(), AnchorError> {
        let lab = &blueprint.lab;
        let has_bypasses = |&index: &NodeId| lab.nodes[index].has_bypasses(lab);
        let which: Vec<NodeId> = which.iter().copied().filter(has_bypasses).collect();
        self.end_stopped(blueprint, &which, |nodes| {
            nodes.with_bypasses(alone, blueprint, |bypasses, near| bypasses.silence(near, &which));
        })
    }

    /// Stops the programs of nodes, acts, and ends them: none of them sees what is done to its sockets.
    fn end_stopped(
        &mut self,
        blueprint: &Blueprint,
        which: &[NodeId],
        act: impl FnOnce(&mut Self),
    ) -> Result<(), AnchorError> {
        let name = |index: NodeId| &blueprint.lab.nodes[index].name;
        let group = |&index: &NodeId| self.groups.as_ref().map(|groups| groups.node(index, name(index)));
        let groups = which.iter().filter_map(group).collect::<Result<Vec<Group>, _>>()?;
        let stopped = groups.iter().try_for_each(Group::freeze);
        act(self);
        // One that cannot be stopped ends nevertheless, and one that is stopped could not end.
        let ended = groups.iter().try_for_each(Group::begin_to_kill);
        Ok(stopped.and(ended)?)
    }
}
