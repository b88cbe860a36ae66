//! A lab as a platform of SimGrid 4.1.

use std::fmt::Write as _;

use crate::lose::Kinds;
use crate::{Exported, TooLarge};
use slipway_lab::change::Keys as _;
use slipway_lab::condition::{Cpu, LinkConditions};
use slipway_lab::id::{List, NodeId};
use slipway_lab::matrix::Matrix;
use slipway_lab::model::{Lab, Node};

/// Every pair has a route of its own.
const MOST_NODES: usize = 1000;
/// Bits per second of a link that nothing limits: beyond what a lab's link can have.
const UNLIMITED: f64 = 8e12;
/// Operations per second that stand for one core of this machine.
const CORE: f64 = 1e9;
/// Megahertz that stand for the same.
const CORE_MEGAHERTZ: f64 = 1000.0;

/// The lab as a SimGrid platform (XML, version 4.1), and what of it SimGrid has no word for. `matrices` are the lab's, read.
///
/// # Errors
/// Where there are too many nodes.
pub fn to_simgrid(lab: &Lab, matrices: &[Matrix]) -> Result<Exported, TooLarge> {
    if lab.nodes.len() > MOST_NODES {
        return Err(TooLarge { nodes: lab.nodes.len(), most: MOST_NODES });
    }
    let mut kinds = Kinds::default();
    let (mut hosts, mut links, mut routes) = (String::new(), String::new(), String::new());
    for node in &lab.nodes {
        host(node, &mut hosts, &mut kinds);
        for interface in &node.interfaces {
            let ends = [("up", &interface.conditions.egress), ("down", &interface.conditions.ingress)];
            for (end, conditions) in ends {
                let name = format!("{}-{}-{end}", node.name, interface.name);
                link(&name, conditions, &mut links, &mut kinds);
            }
        }
    }
    let rules: List<NodeId, Vec<_>> = lab.nodes.ids().map(|node| rules(lab, matrices, node)).collect();
    for from in lab.nodes.ids() {
        for to in lab.nodes.ids().filter(|to| *to != from) {
            route(lab, &rules, (from, to), [&mut links, &mut routes], &mut kinds);
        }
    }
    lose_the_rest(lab, &mut kinds);
    let lost = kinds.lines();
    let mut text =
        "<?xml version=\"1.0\"?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n".to_owned();
    let _ = writeln!(
        text,
        "<!-- The lab {}, by slipway export. 1Gf stands for one core of the machine.",
        lab.name.replace("--", "- -")
    );
    for lost in &lost {
        // Two dashes end a comment.
        let _ = writeln!(text, "     Lost: {}", lost.replace("--", "- -"));
    }
    let _ = write!(
        text,
        "-->\n<platform version=\"4.1\">\n  <zone id=\"{}-zone\" routing=\"Full\">\n{hosts}{links}{routes}  </zone>\n</platform>\n",
        lab.name
    );
    Ok(Exported { text, lost })
}

fn host(node: &Node, text: &mut String, kinds: &mut Kinds) {
    let (cores, speed) = match node.limits.cpu {
        None => (1.0, CORE),
        Some(Cpu::Cores(cores)) => {
            let count = cores.0.ceil().max(1.0);
            (count, cores.0 / count * CORE)
        }
        Some(Cpu::Megahertz(megahertz)) => {
            kinds.lose("that processor time is in megahertz: 1000 MHz are 1Gf", &node.name);
            (1.0, megahertz / CORE_MEGAHERTZ * CORE)
        }
    };
    let core = if cores > 1.0 { format!(" core=\"{cores}\"") } else { String::new() };
    let _ = write!(text, "    <host id=\"{}\" speed=\"{speed}f\"{core}", node.name);
    let disk = &node.limits.disk;
    if disk.read.is_none() && disk.write.is_none() {
        text.push_str("/>\n");
        return;
    }
    let speed = |rate: Option<slipway_document::units::ByteRate>| rate.map_or(UNLIMITED / 8.0, |rate| rate.0 as f64);
    let (read, write) = (speed(disk.read), speed(disk.write));
    let _ = writeln!(text, "><disk id=\"{}-disk\" read_bw=\"{read}Bps\" write_bw=\"{write}Bps\"/></host>", node.name);
}

fn link(name: &str, conditions: &LinkConditions, text: &mut String, kinds: &mut Kinds) {
    let bandwidth = conditions.rate.map_or(UNLIMITED, |rate| rate.0 as f64);
    let latency = conditions.delay.map_or(0.0, |delay| delay.0);
    let _ = writeln!(text, "    <link id=\"{name}\" bandwidth=\"{bandwidth}bps\" latency=\"{latency}s\"/>");
    for (key, _) in conditions.words().into_iter().filter(|(key, _)| !matches!(*key, "rate" | "delay")) {
        kinds.lose(&format!("{key} of links"), name);
    }
}

/// Conditions between a node and others on each of its networks.
fn rules(lab: &Lab, matrices: &[Matrix], node: NodeId) -> Vec<Vec<slipway_lab::PeerRule>> {
    (0..lab.nodes[node].interfaces.len()).map(|slot| lab.egress_rules(matrices, (node, slot)).1).collect()
}

/// The links of each network on the way, as packets take it.
fn route(
    lab: &Lab,
    rules: &List<NodeId, Vec<Vec<slipway_lab::PeerRule>>>,
    (from, to): (NodeId, NodeId),
    [links, text]: [&mut String; 2],
    kinds: &mut Kinds,
) {
    let mut names = Vec::new();
    let mut here = from;
    // Routes take the fewest hops, so that no network is passed twice.
    for _ in 0..=lab.networks.len() {
        let common = |node: NodeId| {
            let mine = lab.nodes[here].interfaces.iter().enumerate();
            let theirs = &lab.nodes[node].interfaces;
            mine.clone().find_map(|(slot, mine)| {
                let other = theirs.iter().position(|theirs| theirs.network == mine.network)?;
                Some((slot, other))
            })
        };
        let next = if common(to).is_some() { Some(to) } else { gateway(lab, here, to) };
        let Some((next, (slot, other))) = next.and_then(|next| Some((next, common(next)?))) else { break };
        let (sender, receiver) = (&lab.nodes[here], &lab.nodes[next]);
        let up = format!("{}-{}-up", sender.name, sender.interfaces[slot].name);
        match rules[here][slot].iter().find(|rule| rule.node == next) {
            None => names.push(up),
            Some(rule) => {
                // One link for the pair, for its delay is instead of the interface's.
                let name = format!("{}-{}-to-{}", sender.name, sender.interfaces[slot].name, receiver.name);
                let own = &sender.interfaces[slot].conditions.egress;
                let mut held = rule.conditions.over(own);
                held.rate = [held.rate, own.rate].into_iter().flatten().min();
                if next == to && here == from {
                    link(&name, &held, links, kinds);
                }
                names.push(name);
            }
        }
        names.push(format!("{}-{}-down", receiver.name, receiver.interfaces[other].name));
        here = next;
        if here == to {
            break;
        }
    }
    if here != to {
        kinds.lose("that some nodes do not reach others", &lab.nodes[from].name);
        return;
    }
    let (source, target) = (&lab.nodes[from].name, &lab.nodes[to].name);
    let _ = write!(text, "    <route src=\"{source}\" dst=\"{target}\" symmetrical=\"NO\">");
    for name in names {
        let _ = write!(text, "<link_ctn id=\"{name}\"/>");
    }
    text.push_str("</route>\n");
}

/// The gateway that a node sends packets for another to.
fn gateway(lab: &Lab, from: NodeId, to: NodeId) -> Option<NodeId> {
    let target = lab.nodes[to].interfaces.first()?.ipv4;
    let is_to = |route: &&slipway_lab::model::Route| route.to.contains(&std::net::IpAddr::V4(target));
    let via = lab.nodes[from].routes.iter().find(is_to)?.via;
    lab.nodes.position(|node| node.interfaces.iter().any(|interface| std::net::IpAddr::V4(interface.ipv4) == via))
}

fn lose_the_rest(lab: &Lab, kinds: &mut Kinds) {
    kinds.lose_programs(lab);
    kinds.lose_hosts(lab);
    for node in &lab.nodes {
        let limits = &node.limits;
        let those = [
            ("memory limits", limits.memory.is_some() || limits.memory_soft.is_some() || limits.swap.is_some()),
            ("operations per second of disks", limits.disk.read_iops.is_some() || limits.disk.write_iops.is_some()),
            ("sizes of disks", limits.disk.size.is_some()),
            ("images", lab.images[node.image].name != slipway_lab::defaults::HOST_IMAGE),
            ("periods of processor time", limits.cpu_period.is_some()),
        ];
        for (what, _) in those.into_iter().filter(|(_, is)| *is) {
            kinds.lose(what, &node.name);
        }
    }
    kinds.lose("addresses, and networks and their drivers: there are links and routes", "all");
}
