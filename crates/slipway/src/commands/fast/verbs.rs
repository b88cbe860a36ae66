//! RDMA in the answers of `slipway fast`.

use std::net::Ipv4Addr;

use serde::Serialize;
use slipway_engine::lab::Running;
use slipway_engine::verbs::{BrokerStatus, CarriedBy, GatewayStatus, LinkOfNode, NodeVerbs, OutsideLink, Verdict, Way};
use slipway_lab::id::NodeId;

use crate::context::Context;
use crate::failure::Failure;
use super::whole::Whole;
use crate::{labs, view};

/// The way of verbs between two nodes.
#[derive(Serialize)]
struct Explained<'a> {
    lab: &'a str,
    from: &'a str,
    to: &'a str,
    verbs: Verdict,
}

/// A broker and its nodes; with the queue pairs that are joined, where they are asked for.
pub(super) fn text(running: &Running, broker: &BrokerStatus, with_links: bool) -> String {
    let process =
        broker.pid.map_or_else(|| "none: queue pairs wait for the next".to_owned(), |pid| format!("process {pid}"));
    let mut facts = vec![("host", running.lab.hosts[broker.host].name.clone()), ("rdma", process)];
    for node in &broker.nodes {
        let name = &running.lab.nodes[node.node].name;
        let pairs = view::count(node.queue_pairs, "queue pair");
        let joined = node.links.iter().filter(|link| link.joined).count();
        let regions = format!("{} of memory, {} bytes", view::count(node.regions, "region"), node.registered);
        facts.push(("node", format!("{name}: {pairs}, {joined} joined; {regions}")));
        facts.extend(totals(running, node).map(|line| ("traffic", line)));
    }
    facts.extend(broker.carried.as_ref().map(|carried| ("machines", way(carried))));
    facts.extend(broker.outside.as_ref().map(|gateway| ("outside", outside(gateway))));
    for (reason, count) in &broker.refused {
        facts.push(("refused", format!("{count}: {reason}")));
    }
    if broker.revoked > 0 {
        facts.push(("ended", view::count(broker.revoked, "connection")));
    }
    let facts = view::facts(&facts);
    if with_links { facts + &links(running, broker) } else { facts }
}

/// The way of queue pairs to other machines.
fn way(carried: &CarriedBy) -> String {
    match carried {
        CarriedBy::Device(name) => format!("queue pairs reach other machines with an RDMA device by {name}"),
        CarriedBy::HostNetwork(why) => format!("queue pairs reach other machines by the hosts' network: {why}"),
    }
}

/// The way of queue pairs to peers outside of the lab.
fn outside(gateway: &GatewayStatus) -> String {
    let GatewayStatus { device, is_up, queue_pairs } = gateway;
    if *is_up {
        let count = view::count(queue_pairs.len(), "queue pair");
        format!("{count} with peers outside of the lab, by {device}")
    } else {
        "queue pairs reach no peer outside of the lab: the gateway is being replaced".to_owned()
    }
}

/// The traffic of a node with each peer, in its own words.
fn totals<'a>(running: &'a Running, node: &'a NodeVerbs) -> impl Iterator<Item = String> + 'a {
    let name = move |of: Option<NodeId>| of.and_then(|of| running.lab.nodes.get(of)).map_or("others", |it| &it.name);
    node.totals.iter().map(move |total| {
        let asked = total.traffic.operations().into_iter().filter(|one| one.1 > 0);
        let asked: Vec<String> =
            asked.map(|(word, number, bytes)| format!("{number} {word}s of {bytes} bytes")).collect();
        let (own, peer) = (name(Some(node.node)), name(total.peer_node));
        let asked = if asked.is_empty() { "nothing".to_owned() } else { asked.join(", ") };
        let (receives, bytes) = (total.traffic.receives, total.traffic.receive_bytes);
        format!("{own} to {peer}: {asked}; received {receives} messages of {bytes} bytes")
    })
}

fn links(running: &Running, broker: &BrokerStatus) -> String {
    let all: Vec<(&NodeVerbs, &LinkOfNode)> =
        broker.nodes.iter().flat_map(|node| node.links.iter().map(move |link| (node, link))).collect();
    let outside = broker.outside.iter().flat_map(|gateway| &gateway.queue_pairs);
    if all.is_empty() && outside.clone().next().is_none() {
        return "no queue pair is joined now\n".to_owned();
    }
    let end = |node: NodeId, number: u32| format!("{}:{number}", running.lab.nodes[node].name);
    let outside = outside.map(|link: &OutsideLink| {
        let OutsideLink { node, queue_pair, peer, requests, sent_bytes, received, received_bytes } = link;
        let counts = [requests, sent_bytes, received, received_bytes].map(u64::to_string);
        let [requests, sent_bytes, received, received_bytes] = counts;
        let way = "device, outside".to_owned();
        [end(*node, *queue_pair), peer.to_string(), way, requests, sent_bytes, received, received_bytes]
    });
    view::table(
        ["QUEUE PAIR", "PEER", "WAY", "SENT", "BYTES", "RECEIVED", "BYTES"],
        all.into_iter().map(|(node, link)| {
            let sum = |of: &dyn Fn(&(&str, u64, u64)) -> u64| {
                link.traffic.operations().iter().fold(0_u64, |sum, one| sum.saturating_add(of(one))).to_string()
            };
            [
                end(node.node, link.queue_pair),
                end(link.peer_node, link.peer),
                match (link.joined, link.relayed) {
                    (false, _) => "not joined",
                    (true, true) if link.by_device => "relay, device",
                    (true, false) if link.by_device => "device",
                    (true, true) => "relay",
                    (true, false) if running.lab.nodes[link.peer_node].host != broker.host => "host network",
                    (true, false) => "shared memory",
                }
                .to_owned(),
                sum(&|one| one.1),
                sum(&|one| one.2),
                link.traffic.receives.to_string(),
                link.traffic.receive_bytes.to_string(),
            ]
        })
        .chain(outside),
    )
}

/// Says how verbs from one node reach another.
pub(super) fn explain(context: &Context, running: &Running, from: &str, to: &str) -> Result<(), Failure> {
    let from = labs::one(&running.lab, from)?;
    if let Ok(peer) = to.parse::<Ipv4Addr>() {
        let brokers = Whole::ask(context, running, false)?.report.brokers;
        let verbs = running.explain_verbs_outside(&brokers, from, peer);
        return tell(context, running, from, to, verbs);
    }
    let to = labs::one(&running.lab, to)?;
    if from == to {
        let name = &running.lab.nodes[from].name;
        return Err(Failure::usage(format!("explain the way from `{name}` to itself\nHint: name two nodes")));
    }
    let brokers = Whole::ask(context, running, false)?.report.brokers;
    let verbs = running.explain_verbs(&brokers, from, to)?;
    tell(context, running, from, &running.lab.nodes[to].name, verbs)
}

fn tell(context: &Context, running: &Running, from: NodeId, to: &str, verbs: Verdict) -> Result<(), Failure> {
    let from = running.lab.nodes[from].name.as_str();
    let answer = Explained { lab: &running.lab.name, from, to, verbs };
    context.answer(&answer, |answer| {
        let way = match answer.verbs.way {
            Way::SharedMemory => "run through shared memory",
            Way::HostNetwork => "run by a connection of the hosts' network",
            Way::Device => "run by the RDMA devices of their machines",
            Way::Outside => "run by the RDMA device of the machine",
            Way::Relay => "are relayed",
            Way::Refused => "are refused",
        };
        let errno = answer.verbs.errno.map_or_else(String::new, |errno| format!(" ({errno})"));
        format!("verbs from {from} to {to} {way}{errno}: {}\n", answer.verbs.why)
    })
}
