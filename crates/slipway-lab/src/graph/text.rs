//! The topology for Graphviz and for Mermaid.

use super::{Item, describe, items, rules};
use crate::id::HostId;
use crate::model::Lab;

/// The topology in Graphviz's language (`dot -Tsvg`).
#[must_use]
pub fn dot(lab: &Lab) -> String {
    let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let (items, left_out) = items(lab);
    let mut lines = vec![
        format!("graph {} {{", quote(&lab.name)),
        "  rankdir=LR;".into(),
        "  node [fontname=\"sans-serif\"];".into(),
    ];
    for (h, host) in lab.hosts.enumerate() {
        lines.push(format!("  subgraph cluster_{h} {{"));
        lines.push(format!("    label={};", quote(&host.name)));
        for (i, item) in on_host(&items, h) {
            lines.push(format!("    item{i} [shape=box, label={}];", quote(&label(item)).replace('\n', "\\n")));
        }
        if left_out[h] > 0 {
            lines.push(format!("    rest{h} [shape=plaintext, label=\"and {} more\"];", left_out[h]));
        }
        lines.push("  }".into());
    }
    for (n, network) in lab.networks.enumerate() {
        lines.push(format!("  net{n} [shape=ellipse, style=filled, label={}];", quote(&describe(network))));
    }
    for (i, item) in items.iter().enumerate() {
        for wire in item.wires() {
            lines.push(format!("  item{i} -- net{} [label={}];", wire.network, quote(&wire.label)));
        }
    }
    let rules = rules(lab);
    if !rules.is_empty() {
        lines.push(format!("  rules [shape=note, label={}];", quote(&rules.join("\n")).replace('\n', "\\l")));
    }
    lines.push("}".into());
    lines.join("\n") + "\n"
}

/// The topology as a Mermaid flowchart, for Markdown.
#[must_use]
pub fn mermaid(lab: &Lab) -> String {
    // Mermaid takes HTML's entities, written with `#`, within quotes.
    let quote = |text: &str| format!("\"{}\"", text.replace('#', "#35;").replace('"', "#quot;").replace('\n', "<br/>"));
    let (items, left_out) = items(lab);
    let mut lines = vec!["flowchart LR".to_owned()];
    for (h, host) in lab.hosts.enumerate() {
        lines.push(format!("  subgraph host{h}[{}]", quote(&host.name)));
        for (i, item) in on_host(&items, h) {
            lines.push(format!("    item{i}[{}]", quote(&label(item))));
        }
        if left_out[h] > 0 {
            lines.push(format!("    rest{h}[\"and {} more\"]", left_out[h]));
        }
        lines.push("  end".into());
    }
    for (n, network) in lab.networks.enumerate() {
        lines.push(format!("  net{n}([{}])", quote(&describe(network))));
    }
    for (i, item) in items.iter().enumerate() {
        for wire in item.wires() {
            lines.push(format!("  item{i} ---|{}| net{}", quote(&wire.label), wire.network));
        }
    }
    let rules = rules(lab);
    if !rules.is_empty() {
        lines.push(format!("  rules[/{}/]", quote(&rules.join("\n"))));
    }
    lines.join("\n") + "\n"
}

fn on_host<'i>(items: &'i [Item<'i>], host: HostId) -> impl Iterator<Item = (usize, &'i Item<'i>)> {
    items.iter().enumerate().filter(move |(_, item)| item.host == host)
}

fn label(item: &Item) -> String {
    match item.details() {
        details if details.is_empty() => item.label.clone(),
        details => format!("{}\n{details}", item.label),
    }
}
