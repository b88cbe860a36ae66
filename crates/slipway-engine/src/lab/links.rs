//! Links of a running lab, its policy and its fast path.

use std::net::Ipv4Addr;

use slipway_lab::id::NodeId;
use slipway_lab::policy::Rule;

use super::{LabError, Running};
use crate::condition::LinkReport;
use crate::fast::{self, Connection, FastReport, Socket};
use crate::network::graph::Graph;
use crate::protocol::{Keep, ReadFast, ReadGraph, ReadLinks, ReadPolicy, ReadSockets, RestoreLinks, SetPolicy};
use crate::verbs::{self, BrokerStatus, Verdict};

impl Running {
    /// Makes all links what the lab file says, and starts a wire that has died anew.
    pub fn restore_links(&self) -> Result<(), LabError> {
        self.ask(RestoreLinks {}).map(drop)
    }

    /// The namespaces and devices that the lab's networks are made of.
    ///
    /// # Errors
    /// When the anchor cannot be asked.
    pub fn graph(&self) -> Result<Graph, LabError> {
        self.ask(ReadGraph {})
    }

    /// Who may talk to whom now.
    ///
    /// # Errors
    /// When the anchor cannot be asked.
    pub fn policy(&self) -> Result<Vec<Rule>, LabError> {
        self.ask(ReadPolicy {})
    }

    /// Puts these rules in the place of all that there were. Gives how many fast connections were ended, because they may not be
    /// any more, or not as they were.
    ///
    /// # Errors
    /// When the network beneath cannot be held to them, or some connections may not have been ended.
    pub fn set_policy(&self, rules: &[Rule]) -> Result<u64, LabError> {
        Ok(self.ask(SetPolicy { rules: rules.to_vec() })?.connections)
    }

    /// Says that all parts of the lab are made, and that it stays.
    ///
    /// # Errors
    /// When the anchor cannot be asked.
    pub fn keep(&self) -> Result<(), LabError> {
        self.ask(Keep {})
    }

    /// How the fast path is now.
    pub fn fast(&self) -> Result<FastReport, LabError> {
        self.ask(ReadFast {})
    }

    /// The node that a process is in, and which way each of its TCP sockets takes.
    ///
    /// # Errors
    /// When it is in none of the lab's nodes, or no network is fast.
    pub fn explain(&self, pid: i32) -> Result<(NodeId, Vec<Socket>), LabError> {
        let notes = self.ask_for_descriptor(ReadSockets {})?;
        Ok(fast::explain(&self.lab, &self.state.nodes, pid, notes, &self.fast()?)?)
    }

    /// The way of verbs from one node to another, and why. `brokers` are those of both hosts, or more.
    ///
    /// # Errors
    /// When the anchor cannot be asked.
    pub fn explain_verbs(&self, brokers: &[BrokerStatus], from: NodeId, to: NodeId) -> Result<Verdict, LabError> {
        Ok(verbs::explain(&self.lab, &self.policy()?, brokers, from, to))
    }

    /// The way of verbs from a node to a peer outside of the lab, and why. `brokers` are those of its host, or more.
    #[must_use]
    pub fn explain_verbs_outside(&self, brokers: &[BrokerStatus], from: NodeId, peer: Ipv4Addr) -> Verdict {
        verbs::explain_outside(&self.lab, brokers, from, peer)
    }

    /// Whether verbs reach each of these nodes from each other.
    ///
    /// # Errors
    /// When the anchor cannot be asked.
    pub(crate) fn joins_by_verbs(&self, nodes: &[NodeId]) -> Result<bool, LabError> {
        Ok(verbs::join_all(&self.lab, &self.policy()?, &self.fast()?.brokers, nodes))
    }

    /// The node that a process is in, if any.
    #[must_use]
    pub fn node_of(&self, pid: i32) -> Option<NodeId> {
        fast::node_of(&self.state.nodes, pid).ok().flatten()
    }

    /// The connections of the fast path that live.
    ///
    /// # Errors
    /// When no network is fast, or a router is being replaced.
    pub fn flows(&self) -> Result<Vec<Connection>, LabError> {
        let notes = self.ask_for_descriptor(ReadSockets {})?;
        Ok(fast::flows(&self.lab, &self.state.nodes, &self.state.routers, notes)?)
    }

    /// How links are now.
    pub fn links(&self) -> Result<LinkReport, LabError> {
        self.ask(ReadLinks {})
    }
}
