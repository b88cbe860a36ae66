//! Whether queue pairs of two nodes may be joined, and why not.

use std::net::Ipv4Addr;

use rustix::io::Errno;
use serde::Serialize;
use slipway_lab::id::NodeId;
use slipway_lab::model::{Lab, Node};
use slipway_lab::policy::Rule;

use super::carrier::CarriedBy;
use super::has_device;
use super::orders::BrokerStatus;
use super::rules::{Networks, Rules};

/// The way of verbs from one node to another, now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The way.
    pub way: Way,
    /// The reason for it.
    pub why: String,
    /// The error that a program reads where it is refused (`errno(3)`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<&'static str>,
}

/// Where the data of two queue pairs goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Through memory that only both ends share.
    SharedMemory,
    /// By a connection of the hosts' network.
    HostNetwork,
    /// By the RDMA devices of the two machines.
    Device,
    /// To a peer outside of the lab, by the machine's RDMA device.
    Outside,
    /// Through the brokers of their hosts, which keep the limits of a rule.
    Relay,
    /// Nowhere: they are not joined.
    Refused,
}

fn refused(why: impl Into<String>, errno: Option<&'static str>) -> Verdict {
    Verdict { way: Way::Refused, why: why.into(), errno }
}

/// Says how verbs of programs in `from` reach `to`, under these rules.
pub(crate) fn explain(lab: &Lab, rules: &[Rule], brokers: &[BrokerStatus], from: NodeId, to: NodeId) -> Verdict {
    if let Some(said) = [from, to].into_iter().find_map(|node| without_device(lab, &lab.nodes[node])) {
        return said;
    }
    let (host, there) = (lab.nodes[from].host, lab.nodes[to].host);
    let broker = |of| brokers.iter().find(|broker| broker.host == of && broker.pid.is_some());
    let Some(own) = broker(host) else {
        return refused("the broker of their host is being replaced", Some("ECONNRESET"));
    };
    let other = broker(there);
    if other.is_none() && lab.is_here(there) {
        return refused("the broker of the other host is being replaced", Some("EHOSTUNREACH"));
    }
    if own.parted.parts(from, to) {
        return refused("a cut, a freeze or a partition parts the nodes", Some("EHOSTUNREACH"));
    }
    // Another machine's broker has a word of its own, which this one does not know.
    let conditioned =
        own.conditioned.iter().chain(other.iter().flat_map(|other| &other.conditioned)).copied().collect();
    let said = verdict(lab, &Rules::new(rules, Networks::of(lab), conditioned), from, to);
    let has_carrier = |broker: &BrokerStatus| matches!(broker.carried, Some(CarriedBy::Device(_)));
    let are_apart = lab.machine_of(from) != lab.machine_of(to);
    if said.way == Way::HostNetwork && are_apart && has_carrier(own) && other.is_some_and(has_carrier) {
        return Verdict { way: Way::Device, why: "both machines have an RDMA device".to_owned(), errno: None };
    }
    said
}

/// The verdict on a node that has no device.
fn without_device(lab: &Lab, node: &Node) -> Option<Verdict> {
    let why = match (node.rules_its_network(), has_device(lab, node)) {
        (true, _) => format!("node {} has `capabilities`, and so no RDMA device", node.name),
        (false, false) => format!("node {} has no RDMA device: none of its networks has `rdma: true`", node.name),
        (false, true) => return None,
    };
    Some(refused(why, None))
}

/// Says how verbs of programs in `from` reach a peer outside of the lab.
pub(crate) fn explain_outside(lab: &Lab, brokers: &[BrokerStatus], from: NodeId, peer: Ipv4Addr) -> Verdict {
    let node = &lab.nodes[from];
    if let Some(said) = without_device(lab, node) {
        return said;
    }
    if !node.networks(lab).any(|network| network.rdma_peers.iter().any(|net| net.contains(&peer))) {
        return refused(format!("no network of {} has it among its `rdma_peers`", node.name), Some("EHOSTUNREACH"));
    }
    let own = brokers.iter().find(|broker| broker.host == node.host);
    if own.is_some_and(|own| own.conditioned.contains(&from) || own.parted.cut.contains(&from)) {
        let why = "the node is cut off, frozen, or has conditions, which nothing would keep there";
        return refused(why, Some("EHOSTUNREACH"));
    }
    match own.and_then(|own| own.outside.as_ref()) {
        Some(gateway) if gateway.is_up => {
            Verdict { way: Way::Outside, why: format!("it is among `rdma_peers`, by {}", gateway.device), errno: None }
        }
        _ => refused("the gateway is being replaced", Some("EHOSTUNREACH")),
    }
}

/// Whether verbs of programs in all of these nodes reach all others of them, under these rules.
pub(crate) fn join_all(lab: &Lab, rules: &[Rule], brokers: &[BrokerStatus], nodes: &[NodeId]) -> bool {
    let has_broker = |node: NodeId| brokers.iter().any(|it| it.host == lab.nodes[node].host && it.pid.is_some());
    if !nodes.iter().all(|&node| has_device(lab, &lab.nodes[node]) && has_broker(node)) {
        return false;
    }
    let are_parted = |from, to| brokers.iter().any(|broker| broker.parted.parts(from, to));
    let conditioned = brokers.iter().flat_map(|broker| broker.conditioned.iter().copied()).collect();
    let now = Rules::new(rules, Networks::of(lab), conditioned);
    let joins = |from: NodeId, to: NodeId| {
        from == to || !are_parted(from, to) && verdict(lab, &now, from, to).way != Way::Refused
    };
    nodes.iter().all(|&from| nodes.iter().all(|&to| joins(from, to)))
}

/// The verdict on two nodes with devices, whose brokers run.
fn verdict(lab: &Lab, now: &Rules, from: NodeId, to: NodeId) -> Verdict {
    let (host, there) = (lab.nodes[from].host, lab.nodes[to].host);
    // Neither end of two queue pairs is the client, so both nodes' rules hold.
    let both = now.admit(from, to).and_then(|()| now.admit(to, from));
    match both {
        Ok(()) if now.terms(from, to).need_relay() || now.terms(to, from).need_relay() => {
            Verdict { way: Way::Relay, why: "a rule limits the pair".to_owned(), errno: None }
        }
        Ok(()) if host != there => {
            let what = if lab.machine_of(from) == lab.machine_of(to) { "virtual hosts" } else { "machines" };
            let why = format!("the nodes are on two {what}");
            Verdict { way: Way::HostNetwork, why, errno: None }
        }
        Ok(()) => {
            Verdict { way: Way::SharedMemory, why: "both nodes are on this virtual host".to_owned(), errno: None }
        }
        Err((_, Errno::HOSTUNREACH)) => {
            refused("the nodes are on no network with `rdma: true` together", Some("EHOSTUNREACH"))
        }
        Err((reason, Errno::ACCESS)) => refused(reason.account(), Some("EACCES")),
        Err((reason, _)) => refused(reason.account(), Some("EOPNOTSUPP")),
    }
}
