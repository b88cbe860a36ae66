//! The topology for Graphviz and for Mermaid.

use std::fmt::Write;

use super::{Item, describe, items};
use crate::model::Lab;

/// The topology in Graphviz's language (`dot -Tsvg`).
#[must_use]
pub fn dot(lab: &Lab) -> String {
    let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let (items, left_out) = items(lab);
    let mut out = format!("graph {} {{\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n", quote(&lab.name));
    for (h, host) in lab.hosts.iter().enumerate() {
        out += &format!("  subgraph cluster_{h} {{\n    label={};\n", quote(&host.name));
        for (i, item) in on_host(&items, h) {
            out += &format!("    item{i} [shape=box, label={}];\n", quote(&label(item)).replace('\n', "\\n"));
        }
        if left_out[h] > 0 {
            out += &format!("    rest{h} [shape=plaintext, label=\"and {} more\"];\n", left_out[h]);
        }
        out += "  }\n";
    }
    for (n, network) in lab.networks.iter().enumerate() {
        out += &format!("  net{n} [shape=ellipse, style=filled, label={}];\n", quote(&describe(network)));
    }
    for (i, item) in items.iter().enumerate() {
        for wire in item.wires() {
            let _ = writeln!(out, "  item{i} -- net{} [label={}];", wire.network, quote(&wire.label));
        }
    }
    out + "}\n"
}

/// The topology as a Mermaid flowchart, for Markdown.
#[must_use]
pub fn mermaid(lab: &Lab) -> String {
    // Mermaid takes HTML's entities, written with `#`, within quotes.
    let quote = |text: &str| format!("\"{}\"", text.replace('#', "#35;").replace('"', "#quot;").replace('\n', "<br/>"));
    let (items, left_out) = items(lab);
    let mut out = String::from("flowchart LR\n");
    for (h, host) in lab.hosts.iter().enumerate() {
        out += &format!("  subgraph host{h}[{}]\n", quote(&host.name));
        for (i, item) in on_host(&items, h) {
            out += &format!("    item{i}[{}]\n", quote(&label(item)));
        }
        if left_out[h] > 0 {
            out += &format!("    rest{h}[\"and {} more\"]\n", left_out[h]);
        }
        out += "  end\n";
    }
    for (n, network) in lab.networks.iter().enumerate() {
        out += &format!("  net{n}([{}])\n", quote(&describe(network)));
    }
    for (i, item) in items.iter().enumerate() {
        for wire in item.wires() {
            let _ = writeln!(out, "  item{i} ---|{}| net{}", quote(&wire.label), wire.network);
        }
    }
    out
}

fn on_host<'i>(items: &'i [Item<'i>], host: usize) -> impl Iterator<Item = (usize, &'i Item<'i>)> {
    items.iter().enumerate().filter(move |(_, item)| item.host == host)
}

fn label(item: &Item) -> String {
    match item.details() {
        details if details.is_empty() => item.label.clone(),
        details => format!("{}\n{details}", item.label),
    }
}
