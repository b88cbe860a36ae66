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

/// A line of a picture: between devices, by their positions among those of all machines.
struct Edge {
    from: usize,
    to: usize,
    label: &'static str,
}

/// A machine's devices in a picture.
struct Part<'a> {
    /// The machine's name, where the lab has several.
    machine: Option<&'a str>,
    /// By namespace, in order, each with its position in the picture.
    spaces: BTreeMap<Space, Vec<(usize, &'a Link)>>,
    edges: Vec<Edge>,
    /// Devices of the machine that lead to the others.
    outer: Vec<usize>,
}

fn parts<'a>(lab: &'a Lab, graphs: &'a [Graph]) -> Vec<Part<'a>> {
    let mut first = 0;
    let part = |graph: &'a Graph| {
        let at: BTreeMap<&Device, usize> =
            graph.links.iter().enumerate().map(|(at, link)| (&link.device, first + at)).collect();
        let mut part = Part {
            machine: lab.machines.get(graph.machine).filter(|_| lab.is_spread()).map(|machine| machine.name.as_str()),
            spaces: BTreeMap::new(),
            edges: Vec::new(),
            outer: Vec::new(),
        };
        for (from, link) in (first..).zip(&graph.links) {
            part.spaces.entry(link.device.space).or_default().push((from, link));
            part.edges.extend(edges(&at, from, link));
            if let Kind::Vxlan { tunnel } = &link.kind
                && tunnel.lower.space == Space::Machine
            {
                part.outer.extend(at.get(&tunnel.lower));
            }
        }
        part.outer.sort_unstable();
        part.outer.dedup();
        first += graph.links.len();
        part
    };
    graphs.iter().map(part).collect()
}

/// The lines from a device to others of its machine.
fn edges(at: &BTreeMap<&Device, usize>, from: usize, link: &Link) -> Vec<Edge> {
    let mut edges = Vec::new();
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
    edges
}

/// The network between machines, in pictures.
const BETWEEN: &str = "network of the machines";

/// The devices in the language of graphviz.
pub(crate) fn dot(lab: &Lab, graphs: &[Graph]) -> String {
    let mut text = format!("graph \"{}\" {{\n  rankdir=LR;\n  node [shape=box];\n", lab.name);
    let parts = parts(lab, graphs);
    let mut number = 0;
    for (at, part) in parts.iter().enumerate() {
        if let Some(machine) = part.machine {
            let _ = writeln!(text, "  subgraph cluster_m{at} {{\n    label=\"machine {machine}\";");
        }
        for (of, links) in &part.spaces {
            let _ = writeln!(text, "  subgraph cluster{number} {{\n    label=\"{}\";", space(lab, *of));
            number += 1;
            for (at, link) in links {
                let _ = writeln!(text, "    d{at} [label=\"{}\\n{}\"];", link.device.name, kind(&link.kind));
            }
            text.push_str("  }\n");
        }
        if part.machine.is_some() {
            text.push_str("  }\n");
        }
    }
    for Edge { from, to, label } in parts.iter().flat_map(|part| &part.edges) {
        let _ = writeln!(text, "  d{from} -- d{to} [label=\"{label}\"];");
    }
    let outer: Vec<usize> = parts.iter().flat_map(|part| part.outer.iter().copied()).collect();
    if !outer.is_empty() {
        let _ = writeln!(text, "  between [label=\"{BETWEEN}\", shape=ellipse];");
    }
    for device in outer {
        let _ = writeln!(text, "  d{device} -- between;");
    }
    text + "}\n"
}

/// The devices in the language of Mermaid.
pub(crate) fn mermaid(lab: &Lab, graphs: &[Graph]) -> String {
    let mut text = "flowchart LR\n".to_owned();
    let parts = parts(lab, graphs);
    let mut number = 0;
    for (at, part) in parts.iter().enumerate() {
        if let Some(machine) = part.machine {
            let _ = writeln!(text, "  subgraph m{at} [\"machine {machine}\"]");
        }
        for (of, links) in &part.spaces {
            let _ = writeln!(text, "  subgraph s{number} [\"{}\"]", space(lab, *of));
            number += 1;
            for (at, link) in links {
                let _ = writeln!(text, "    d{at}[\"{}<br>{}\"]", link.device.name, kind(&link.kind));
            }
            text.push_str("  end\n");
        }
        if part.machine.is_some() {
            text.push_str("  end\n");
        }
    }
    for Edge { from, to, label } in parts.iter().flat_map(|part| &part.edges) {
        let _ = writeln!(text, "  d{from} -- {label} --- d{to}");
    }
    let outer: Vec<usize> = parts.iter().flat_map(|part| part.outer.iter().copied()).collect();
    if !outer.is_empty() {
        let _ = writeln!(text, "  between([\"{BETWEEN}\"])");
    }
    for device in outer {
        let _ = writeln!(text, "  d{device} --- between");
    }
    text
}
