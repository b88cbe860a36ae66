//! Pictures of a lab's topology.

mod svg;
mod text;

use std::fmt::Display;

pub use self::svg::svg;
pub use self::text::{dot, mermaid};
use crate::change::Keys as _;
use crate::condition::{Conditions, LinkConditions};
use crate::id::{HostId, List, NetworkId, NodeId};
use crate::model::{Interface, Lab, Network, Node};

/// Up to this many nodes are drawn one by one; in a larger lab, a group's nodes on a host are one box.
const FEW_NODES: usize = 24;
/// Boxes on one host; what is beyond is counted in one more.
const MOST_BOXES: usize = 60;

/// A box of the picture: a node, or a group's nodes on one host.
struct Item<'l> {
    /// `n1`, or `n1 … n200`.
    label: String,
    nodes: Vec<&'l Node>,
    host: HostId,
}

/// A line of the picture: where a box is on a network.
struct Wire {
    network: NetworkId,
    /// `eth0 10.64.0.1`, or the first and the last address; then the conditions, if there are any.
    label: String,
}

impl Item<'_> {
    fn wires(&self) -> Vec<Wire> {
        let (Some(first), Some(last)) = (self.nodes.first(), self.nodes.last()) else { return Vec::new() };
        let wire = |(from, to): (&Interface, &Interface)| Wire {
            network: from.network,
            label: match self.nodes.len() {
                1 => format!("{} {}{}", from.name, from.ipv4, conditions(&from.conditions)),
                _ => format!("{} … {}{}", from.ipv4, to.ipv4, conditions(&from.conditions)),
            },
        };
        first.interfaces.iter().zip(&last.interfaces).map(wire).collect()
    }

    /// Everything about a node except its name.
    fn details(&self) -> String {
        let Some(node) = self.nodes.first() else { return String::new() };
        let count = (self.nodes.len() > 1).then(|| format!("{} nodes", self.nodes.len()));
        let limits = &node.limits;
        let parts = [
            count,
            node.gateway.then(|| "gateway".to_owned()),
            node.own_routes().then(|| "own routes".to_owned()),
            node.rules_its_network()
                .then(|| node.capabilities.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")),
            limits.cpu.map(|cpu| cpu.to_string()),
            limits.memory.map(|memory| memory.to_string()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
    }
}

/// The boxes of a lab, host by host, and how many nodes of each host have none.
fn items(lab: &Lab) -> (Vec<Item<'_>>, List<HostId, usize>) {
    let mut items: Vec<Item> = Vec::new();
    let mut boxes: List<HostId, _> = vec![0; lab.hosts.len()].into();
    let mut left_out: List<HostId, _> = vec![0; lab.hosts.len()].into();
    // The box that a host's nodes of the current group go into.
    let mut current: List<HostId, Option<usize>> = vec![None; lab.hosts.len()].into();
    for node in &lab.nodes {
        let same = current[node.host].filter(|item| items[*item].nodes[0].group == node.group);
        match same.filter(|_| lab.nodes.len() > FEW_NODES) {
            Some(item) => items[item].nodes.push(node),
            None if boxes[node.host] == MOST_BOXES => left_out[node.host] += 1,
            None => {
                current[node.host] = Some(items.len());
                boxes[node.host] += 1;
                items.push(Item { label: String::new(), nodes: vec![node], host: node.host });
            }
        }
    }
    for item in &mut items {
        item.label = match item.nodes.as_slice() {
            [only] => only.name.clone(),
            [first, .., last] => format!("{} … {}", first.name, last.name),
            [] => String::new(),
        };
    }
    (items, left_out)
}

/// Rules between some nodes only, a line each: `n1, n2 → n3 · delay 20ms loss 1% · wan`.
fn rules(lab: &Lab) -> Vec<String> {
    let named = |nodes: &[NodeId]| match nodes {
        [only] => lab.nodes[*only].name.clone(),
        [first, second] => format!("{}, {}", lab.nodes[*first].name, lab.nodes[*second].name),
        [first, .., last] => format!("{} … {} ({})", lab.nodes[*first].name, lab.nodes[*last].name, nodes.len()),
        [] => "nobody".to_owned(),
    };
    let on = |network: Option<NetworkId>| network.map(|at| format!(" · {}", lab.networks[at].name)).unwrap_or_default();
    let links = lab.links.iter().map(|rule| {
        let words: Vec<String> =
            rule.conditions.words().into_iter().map(|(key, value)| format!("{key} {value}")).collect();
        format!("{} → {} · {}{}", named(&rule.from), named(&rule.to), words.join(" "), on(rule.network))
    });
    let matrices = lab.matrices.iter().map(|matrix| {
        let file = matrix.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        format!("delays between nodes · {file}{}", on(matrix.network))
    });
    links.chain(matrices).collect()
}

/// ` · 20ms ± 2ms, 0.5%, in: 100mbit`; nothing where there are no conditions.
fn conditions(conditions: &Conditions) -> String {
    let brief = |c: &LinkConditions| {
        let jitter = c.jitter.map(|jitter| format!(" ± {jitter}")).unwrap_or_default();
        let parts = [
            c.delay.map(|delay| format!("{delay}{jitter}")),
            c.loss.as_ref().map(ToString::to_string),
            c.rate.map(|rate| rate.to_string()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    let (out, into) = (brief(&conditions.egress), brief(&conditions.ingress));
    let into = if into.is_empty() { into } else { format!("in: {into}") };
    let shown: Vec<_> = [out, into].into_iter().filter(|text| !text.is_empty()).collect();
    if shown.is_empty() { String::new() } else { format!(" · {}", shown.join(", ")) }
}

/// `net · bridge · 10.64.0.0/16 · fd53:6c69:7000::/64`
fn describe(network: &Network) -> String {
    let ipv6 = network.ipv6.map(|net| format!(" · {net}")).unwrap_or_default();
    format!("{} · {} · {}{ipv6}", network.name, network.word(), network.ipv4)
}

/// Text within XML.
fn xml(text: impl Display) -> String {
    let text = text.to_string();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
