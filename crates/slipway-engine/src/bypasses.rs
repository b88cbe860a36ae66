//! All bypasses: those that this machine can run, their needs in nodes, and those of a running lab.

use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::sys::wait::WaitStatus;
use rustix::event::PollFd;
use slipway_lab::id::{HostId, NodeId};
use slipway_lab::model::{self, Lab};
use slipway_lab::policy::Rule;

use crate::bypass::{Altered, Bypass, BypassError, Lacks, Means, Near, Needs};
use crate::fast::{self, FastError, RouterState, Routers};
use crate::state::LabDir;
use crate::verbs::{self, BrokerStatus, Brokers, Entrance};

/// How this machine would run each of these bypasses. Changes nothing.
pub(crate) fn probe(of: model::Bypasses) -> Result<Vec<Means>, Lacks> {
    let tcp = of.tcp.iter().map(|_| fast::probe());
    tcp.chain(of.rdma.then(verbs::probe)).collect()
}

/// The needs of all bypasses of a node's networks. `routers` are those of the lab.
pub(crate) fn needs(dir: &LabDir, lab: &Lab, routers: &[RouterState], node: NodeId) -> Needs {
    [fast::needs(lab, routers, node), verbs::needs(dir, lab, node)].into_iter().fold(Needs::default(), Needs::and)
}

/// The bypasses of a running lab.
#[derive(Debug, Default)]
pub(crate) struct Bypasses {
    tcp: Option<Routers>,
    rdma: Option<Brokers>,
}

impl Bypasses {
    /// Starts the bypasses of a lab's networks.
    pub(crate) fn start(near: &Near<'_>, dir: &LabDir) -> Result<Self, BypassError> {
        // Routers begin first, and their way to the gateway has to be there.
        let entrance = Entrance::new(near.lab).map_err(BypassError::of)?;
        let outside = entrance.as_ref().map(Entrance::outside).transpose().map_err(BypassError::of)?;
        let tcp = Routers::start(near, dir, outside).map_err(BypassError::of)?;
        Ok(Self { tcp, rdma: Brokers::start(near, dir, entrance).map_err(BypassError::of)? })
    }

    fn each(&self) -> impl Iterator<Item = &dyn Bypass> {
        let rdma = self.rdma.iter().map(|rdma| rdma as &dyn Bypass);
        self.tcp.iter().map(|tcp| tcp as &dyn Bypass).chain(rdma)
    }

    fn each_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut dyn Bypass> {
        let rdma = self.rdma.iter_mut().map(|rdma| rdma as &mut dyn Bypass);
        self.tcp.iter_mut().map(|tcp| tcp as &mut dyn Bypass).chain(rdma)
    }

    /// The fast path for TCP, where a network has it.
    pub(crate) fn tcp(&self) -> Option<&Routers> {
        self.tcp.as_ref()
    }

    /// The bypass for TCP, to ask its routers.
    pub(crate) fn tcp_mut(&mut self) -> Option<&mut Routers> {
        self.tcp.as_mut()
    }

    /// State of the brokers of RDMA.
    pub(crate) fn report_rdma(&mut self) -> Vec<BrokerStatus> {
        self.rdma.as_mut().map(Brokers::report).unwrap_or_default()
    }

    /// Has calls of a node's programs answered. The router of the node's host is the one supervisor of all bypasses.
    pub(crate) fn hear(&mut self, near: &Near<'_>, node: NodeId, listener: OwnedFd) -> Result<(), BypassError> {
        let name = |of: &model::Node| FastError::NoRouter(of.name.clone());
        let heard = match &mut self.tcp {
            Some(routers) => routers.hear(near, node, listener),
            None => Err(near.lab.nodes.get(node).map_or(FastError::UnknownNode(node), name)),
        };
        heard.map_err(BypassError::of)
    }

    /// As [`Bypass::waits_for`], of all.
    pub(crate) fn waits_for(&self) -> Vec<PollFd<'_>> {
        self.each().flat_map(Bypass::waits_for).collect()
    }

    /// As [`Bypass::patience`], of all.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.each().filter_map(Bypass::patience).min()
    }

    /// As [`Bypass::tend`], of all.
    pub(crate) fn tend(&mut self, near: &Near<'_>, mut happened: &[bool]) -> bool {
        let mut changed = false;
        for bypass in self.each_mut() {
            let own;
            (own, happened) = happened.split_at(bypass.waits_for().len());
            changed |= bypass.tend(near, own);
        }
        changed
    }

    /// As [`Bypass::helper_ended`], of the one whose helper it was.
    pub(crate) fn helper_ended(&mut self, lab: &Lab, status: WaitStatus) -> bool {
        self.each_mut().any(|bypass| bypass.helper_ended(lab, status))
    }

    /// As [`Bypass::born`], of all.
    pub(crate) fn born(&mut self, nodes: &[NodeId]) {
        self.each_mut().for_each(|bypass| bypass.born(nodes));
    }

    /// As [`Bypass::silence`], of all.
    pub(crate) fn silence(&mut self, near: &Near<'_>, nodes: &[NodeId]) {
        self.each_mut().for_each(|bypass| bypass.silence(near, nodes));
    }

    /// As [`Bypass::died`], of all.
    pub(crate) fn died(&mut self, nodes: &[NodeId]) {
        self.each_mut().for_each(|bypass| bypass.died(nodes));
    }

    /// As [`Bypass::relocated`], of all.
    pub(crate) fn relocated(&mut self, near: &Near<'_>, node: NodeId, from: HostId) -> Result<(), BypassError> {
        self.each_mut().try_for_each(|bypass| bypass.relocated(near, node, from))
    }

    /// As [`Bypass::set_conditions`], of all.
    pub(crate) fn set_conditions(&mut self, near: &Near<'_>, altered: &Altered) -> Result<u64, BypassError> {
        self.have_end(|bypass| bypass.set_conditions(near, altered))
    }

    /// As [`Bypass::set_policy`], of all.
    pub(crate) fn set_policy(&mut self, near: &Near<'_>, rules: &[Rule]) -> Result<u64, BypassError> {
        self.have_end(|bypass| bypass.set_policy(near, rules))
    }

    /// Ends the helpers of all bypasses ([`Bypass::end`]).
    pub(crate) fn end(&mut self) {
        self.each_mut().for_each(Bypass::end);
    }

    /// Has all end connections, whatever becomes of one, and gives how many these were or the first failure.
    fn have_end(
        &mut self,
        mut act: impl FnMut(&mut dyn Bypass) -> Result<u64, BypassError>,
    ) -> Result<u64, BypassError> {
        // Queue pairs first. A program that loses its TCP connection may end, and its peer should hear of the revocation, not
        // of that end.
        let outcomes: Vec<_> = self.each_mut().rev().map(&mut act).collect();
        outcomes.into_iter().sum()
    }
}
