//! Conditions of links as text.

use std::fmt::Write as _;

use slipway_engine::condition::{DirectionReport, InterfaceReport, LinkReport, Mechanism, PortStats, WireState};
use slipway_lab::condition::LinkConditions;
use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;

use crate::{labs, view};

/// Peers whose conditions are written out; of more, only how many.
const SHOWN_PEERS: usize = 8;

/// Differences of a node's links from the machine's own, for [`view::facts`].
pub(crate) fn of_node(lab: &Lab, report: &LinkReport, node: NodeId) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let interfaces = report.interfaces.iter().filter(|interface| interface.node == node);
    for interface in interfaces.clone() {
        let name = &lab.nodes[node].interfaces[interface.slot].name;
        if interface.cut {
            lines.push(format!("{name} is cut: nothing passes"));
        }
        for (does, direction) in [("sends", &interface.egress), ("receives", &interface.ingress)] {
            let what = format!("{name} {does}");
            lines.extend(of_direction(lab, &what, direction));
        }
    }
    lines.extend(partitions(lab, report, Some(node)));
    if interfaces.clone().any(|interface| is_silent(report, interface)) {
        lines.push(dead(&lab.name));
    }
    let key = |at| if at == 0 { "conditions" } else { "" };
    lines.into_iter().enumerate().map(|(at, line)| (key(at), line)).collect()
}

fn of_direction(lab: &Lab, what: &str, direction: &DirectionReport) -> Vec<String> {
    let mut lines = Vec::new();
    let DirectionReport { asked, now, peers, mechanism, why, statistics } = direction;
    if *mechanism != Mechanism::Native || now != asked {
        let was = if now == asked { String::new() } else { format!("; in the lab file: {}", words(asked)) };
        lines.push(format!("{what} {} ({mechanism}: {why}{was})", words(now)));
    }
    for peer in peers.iter().take(SHOWN_PEERS) {
        lines.push(format!("{what} to {}: {}", lab.nodes[peer.node].name, words(&peer.conditions)));
    }
    if let Some(more) = peers.len().checked_sub(SHOWN_PEERS).filter(|&more| more > 0) {
        lines.push(format!("{what} to {more} more nodes: --json lists them"));
    }
    lines.extend(
        statistics.as_ref().filter(|counts| counts.received > 0).map(|counts| format!("{what}: {}", counted(counts))),
    );
    lines
}

/// The wire's counts of packets, in words.
fn counted(counts: &PortStats) -> String {
    let mut text = format!("{} carried", view::count(counts.sent, "packet"));
    let also = [
        (counts.lost, "lost as asked"),
        (counts.corrupted, "damaged"),
        (counts.duplicated, "sent twice"),
        (counts.reordered, "sent ahead"),
        (counts.over_limit, "dropped because the queue was full"),
        (counts.refused, "not taken by the device"),
    ];
    for (count, how) in also.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(text, ", {count} {how}");
    }
    if counts.late.count > 0 {
        let milliseconds = |ns: u64| ns as f64 / 1e6;
        let (most, max) = (milliseconds(counts.late.p99), milliseconds(counts.late.max));
        let _ = write!(text, "; 99 % at most {most:.3} ms late, none more than {max:.3} ms");
    }
    text
}

fn words(conditions: &LinkConditions) -> String {
    let words = conditions.to_string();
    if words.is_empty() { "without conditions".to_owned() } else { words }
}

/// One line for each partition that holds; of those that concern a node, if one is named.
fn partitions(lab: &Lab, report: &LinkReport, node: Option<NodeId>) -> Vec<String> {
    let concerns =
        |groups: &&Vec<Vec<NodeId>>| node.is_none_or(|node| groups.iter().flatten().any(|&other| other == node));
    let text = |groups: &Vec<Vec<NodeId>>| {
        let groups: Vec<String> = groups.iter().map(|group| view::listed(&labs::names(lab, group))).collect();
        format!("parted: {}", groups.join(" | "))
    };
    report.partitions.iter().filter(concerns).map(text).collect()
}

fn is_silent(report: &LinkReport, interface: &InterfaceReport) -> bool {
    let by_wire = |direction: &DirectionReport| direction.mechanism == Mechanism::Wire;
    report.wire == WireState::Dead && (by_wire(&interface.egress) || by_wire(&interface.ingress))
}

fn dead(lab: &str) -> String {
    format!("the wire is dead, and what goes by way of it is lost; `slipway restore {lab}` starts another")
}

/// All links of a lab that differ from the machine's own; empty where none does.
pub(crate) fn of_lab(lab: &Lab, report: &LinkReport) -> String {
    let mut text = String::new();
    let rows: Vec<[String; 4]> = report.interfaces.iter().flat_map(|interface| rows(lab, interface)).collect();
    if !rows.is_empty() {
        let _ = write!(text, "\n{}", view::table(["LINK", "DIRECTION", "MECHANISM", "CONDITIONS"], rows));
    }
    for line in partitions(lab, report, None) {
        let _ = writeln!(text, "\n{line}");
    }
    if report.wire == WireState::Dead {
        let _ = writeln!(text, "\n{}", dead(&lab.name));
    }
    text
}

fn rows(lab: &Lab, interface: &InterfaceReport) -> Vec<[String; 4]> {
    let link = lab.port_name((interface.node, interface.slot));
    let ways = [("egress", &interface.egress), ("ingress", &interface.ingress)];
    let rows = ways.into_iter().filter(|(_, way)| way.mechanism != Mechanism::Native).map(|(direction, way)| {
        let mut conditions: Vec<String> = Vec::new();
        if interface.cut {
            conditions.push("cut".to_owned());
        }
        if interface.parted {
            conditions.push("parted".to_owned());
        }
        conditions.extend(Some(way.now.to_string()).filter(|words| !words.is_empty()));
        if !way.peers.is_empty() {
            conditions.push(format!("others to {}", view::count(way.peers.len(), "node")));
        }
        [link.clone(), direction.to_owned(), way.mechanism.to_string(), conditions.join(", ")]
    });
    rows.collect()
}

/// How a node's links differ from the machine's own, in a word or two each, for `ps`.
pub(crate) fn in_short(report: &LinkReport, node: NodeId) -> Vec<&'static str> {
    let mine: Vec<&InterfaceReport> = report.interfaces.iter().filter(|interface| interface.node == node).collect();
    let shaped = |way: &DirectionReport| !way.now.is_natural() || !way.peers.is_empty();
    let has = [
        ("cut", mine.iter().any(|interface| interface.cut)),
        ("parted", mine.iter().any(|interface| interface.parted)),
        ("conditions", mine.iter().any(|interface| shaped(&interface.egress) || shaped(&interface.ingress))),
        ("silent", mine.iter().any(|interface| is_silent(report, interface))),
    ];
    has.into_iter().filter_map(|(word, holds)| holds.then_some(word)).collect()
}
