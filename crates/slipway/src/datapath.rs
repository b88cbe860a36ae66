//! The data path of a lab as text: lines of tables, and pictures for graphviz and Mermaid.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use slipway_engine::network::graph::{Device, Graph, Kind, Link, Space};
use slipway_lab::model::Lab;

/// The name of a namespace.
pub(crate) fn space(lab: &Lab, space: Space) -> String {
    match space {
        Space::Machine => "machine".to_owned(),
        Space::Underlay => "underlay".to_owned(),
        Space::Host(host) => lab.hosts[host].name.clone(),
        Space::Switch(host) => format!("{}, switches", lab.hosts[host].name),
        Space::Tunnel(host) => format!("{}, tunnels", lab.hosts[host].name),
        Space::Node(node) => lab.nodes[node].name.clone(),
    }
}

/// The kind of a device, in a word.
fn kind(kind: &Kind) -> &'static str {
    match kind {
        Kind::Bridge => "bridge",
        Kind::OvsBridge => "Open vSwitch bridge",
        Kind::Veth { .. } => "veth",
        Kind::Macvlan { .. } => "macvlan",
        Kind::Vxlan { .. } => "vxlan",
        Kind::Tap => "tap",
        Kind::Function => "virtual function",
        Kind::Found => "the machine's",
    }
}

/// A device and what it is joined to, in words.
pub(crate) fn words(lab: &Lab, link: &Link) -> String {
    let named = |device: &Device| format!("{} ({})", device.name, space(lab, device.space));
    let mut words = format!("{} {}", link.device.name, kind(&link.kind));
    let _ = match &link.kind {
        Kind::Veth { peer } => write!(words, " to {}", named(peer)),
        Kind::Macvlan { parent } => write!(words, " on {}", named(parent)),
        Kind::Vxlan { tunnel } => write!(words, " {} by {}", tunnel.vni, named(&tunnel.lower)),
        _ => Ok(()),
    };
    if let Some(bridge) = &link.bridge {
        let _ = write!(words, ", port of {bridge}");
    }
    if !link.qdiscs.is_empty() {
        let _ = write!(words, ", {}", link.qdiscs.join(" and "));
    }
    if !link.programs.is_empty() {
        let programs: Vec<&str> = link.programs.iter().map(|program| program.name.as_str()).collect();
        let _ = write!(words, ", BPF {}", programs.join(" "));
    }
    words
}

/// A line of a picture: between devices, by their positions in the graph.
struct Edge {
    from: usize,
    to: usize,
    label: &'static str,
}

fn edges(graph: &Graph) -> Vec<Edge> {
    let at: BTreeMap<&Device, usize> = graph.links.iter().enumerate().map(|(at, link)| (&link.device, at)).collect();
    let mut edges = Vec::new();
    for (from, link) in graph.links.iter().enumerate() {
        let mut add = |device: &Device, label| edges.extend(at.get(device).map(|&to| Edge { from, to, label }));
        match &link.kind {
            // Once for each pair.
            Kind::Veth { peer } if link.device < *peer => add(peer, "veth"),
            Kind::Macvlan { parent } => add(parent, "macvlan"),
            Kind::Vxlan { tunnel } => add(&tunnel.lower, "vxlan"),
            _ => {}
        }
        if let Some(bridge) = &link.bridge {
            add(&Device { space: link.device.space, name: bridge.clone() }, "port");
        }
    }
    edges
}

/// Devices by namespace, in order, each with its position in the graph.
fn by_space(graph: &Graph) -> BTreeMap<Space, Vec<(usize, &Link)>> {
    let mut spaces = BTreeMap::<Space, Vec<(usize, &Link)>>::new();
    for (at, link) in graph.links.iter().enumerate() {
        spaces.entry(link.device.space).or_default().push((at, link));
    }
    spaces
}

/// The devices in the language of graphviz.
pub(crate) fn dot(lab: &Lab, graph: &Graph) -> String {
    let mut text = format!("graph \"{}\" {{\n  rankdir=LR;\n  node [shape=box];\n", lab.name);
    for (number, (of, links)) in by_space(graph).into_iter().enumerate() {
        let _ = writeln!(text, "  subgraph cluster{number} {{\n    label=\"{}\";", space(lab, of));
        for (at, link) in links {
            let _ = writeln!(text, "    d{at} [label=\"{}\\n{}\"];", link.device.name, kind(&link.kind));
        }
        text.push_str("  }\n");
    }
    for Edge { from, to, label } in edges(graph) {
        let _ = writeln!(text, "  d{from} -- d{to} [label=\"{label}\"];");
    }
    text + "}\n"
}

/// The devices in the language of Mermaid.
pub(crate) fn mermaid(lab: &Lab, graph: &Graph) -> String {
    let mut text = "flowchart LR\n".to_owned();
    for (number, (of, links)) in by_space(graph).into_iter().enumerate() {
        let _ = writeln!(text, "  subgraph s{number} [\"{}\"]", space(lab, of));
        for (at, link) in links {
            let _ = writeln!(text, "    d{at}[\"{}<br>{}\"]", link.device.name, kind(&link.kind));
        }
        text.push_str("  end\n");
    }
    for Edge { from, to, label } in edges(graph) {
        let _ = writeln!(text, "  d{from} -- {label} --- d{to}");
    }
    text
}
