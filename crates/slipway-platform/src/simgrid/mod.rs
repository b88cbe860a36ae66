//! SimGrid's platform files: XML, version 4.

mod graph;
mod read;
mod units;
mod write;

use std::collections::HashMap;

use self::graph::Way;
use self::read::{Host, Read, read};
pub use self::write::to_simgrid;
use super::ImportError;
use super::imported::{Platform, draft, finish};
use super::live::Differences;
use super::yaml::{Map, Yaml};
use slipway_document::errors::Report;
use slipway_document::units::{ByteRate, Cores, Rate, Seconds};
use slipway_lab::condition::{Cpu, LinkConditions, MatrixFile};
use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::model::Lab;

/// Rules that a person still reads; what takes more goes into a matrix.
const MOST_RULES: usize = 100;
/// Beyond this nothing is a limit that a lab could make (1 Tbit/s).
const HIGHEST_RATE: f64 = 1e12;

/// Reads a SimGrid platform. `file` is its name, for messages and the lab's; `matrix` the name that a matrix of delays would
/// have beside the lab file.
///
/// # Errors
/// Everything that is wrong with the file.
pub fn from_simgrid(file: &str, text: &str, matrix: &str) -> Result<Platform, ImportError> {
    let mut report = Report::default();
    let read = read(text, &mut report).filter(|_| report.is_empty());
    let Some(mut read) = read else { return Err(ImportError::Wrong(report.finish(file, text))) };
    let mut lab = draft(file, &nodes(&read.hosts))?;
    let mut notes = vec![
        "A host's speed is its share of the fastest one's core, which is one core of this machine.".to_owned(),
        "Delays are the sums of routes' latencies, rates their least bandwidths, both as they are written: without the factors of SimGrid's network models.".to_owned(),
    ];
    let renamed: Vec<String> = read
        .hosts
        .iter()
        .filter(|host| host.name != host.called)
        .map(|host| format!("{} is {}", host.called.chars().take(60).collect::<String>(), host.name))
        .collect();
    match renamed.len() {
        0 => {}
        few @ 1..=8 => notes.push(format!("Named anew: {}.", renamed[..few].join(", "))),
        many => notes.push(format!("{many} hosts are named anew, such as: {}.", renamed[..3].join(", "))),
    }
    if !read.common.is_empty() {
        let some = read.common.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
        read.lost.add(format!("that several pairs share one link, such as: {some}"), 1);
    }
    let delays = between(&mut lab, &mut read, matrix);
    let Read { lost, .. } = read;
    Ok(finish(&format!("the SimGrid platform {file}"), &lab, delays, notes, lost)?)
}

/// The nodes of the platform's hosts.
fn nodes(hosts: &[Host]) -> Map {
    let fastest = hosts.iter().map(|host| host.speed).fold(f64::MIN_POSITIVE, f64::max);
    let alike = hosts.iter().all(|host| host.cores <= 1.0 && host.speed >= fastest);
    let mut nodes = Map::default();
    let mut groups = super::names::Names::default();
    for host in hosts {
        groups.give(&host.name);
    }
    let mut group_names: HashMap<&str, String> = HashMap::new();
    for host in hosts {
        let mut node = Map::default();
        if let Some(group) = &host.group {
            node.text("group", group_names.entry(group).or_insert_with(|| groups.give(group)).as_str());
        }
        if !alike {
            let share = (host.speed / fastest * host.cores).clamp(0.01, 8192.0);
            node.bare("cpu", Cpu::Cores(Cores((share * 1e4).round() / 1e4)));
        }
        let mut disk = Map::default();
        for (key, speed) in ["read", "write"].into_iter().zip(host.disk) {
            if let Some(speed) = speed.filter(|speed| *speed >= 8.0) {
                disk.bare(key, ByteRate(whole(speed / 8.0)));
            }
        }
        node.map("disk", disk);
        nodes.put(&host.name, Yaml::Map(node));
    }
    let mut file = Map::default();
    file.map("nodes", nodes);
    file
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates, and is not negative")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

fn rate(bandwidth: f64) -> Option<Rate> {
    (bandwidth <= HIGHEST_RATE).then(|| Rate(whole(bandwidth).max(1)))
}

/// To the nanosecond, and as the number reads that is written in milliseconds or microseconds.
fn delay(latency: f64) -> Seconds {
    let nanoseconds = (latency.clamp(0.0, 3600.0) * 1e9).round();
    if nanoseconds < 1e6 { Seconds(nanoseconds / 1e3 / 1e6) } else { Seconds(nanoseconds / 1e6 / 1e3) }
}

/// Puts in what holds between all pairs; gives the matrix where rules would be too many.
fn between(lab: &mut Lab, read: &mut Read, matrix: &str) -> Option<String> {
    let hosts = &read.hosts;
    let count = hosts.len();
    let mut ways = vec![None; count * count];
    for (from, a) in hosts.iter().enumerate() {
        for (to, b) in hosts.iter().enumerate().filter(|(to, _)| *to != from) {
            ways[from * count + to] = read.graph.way(a.point, b.point);
        }
    }
    let pairs = || (0..count * count).map(|at| (at / count, at % count)).filter(|(from, to)| from != to);
    if let Some((from, to)) = pairs().find(|(from, to)| ways[from * count + to].is_none()) {
        let [from, to] = [from, to].map(|host| &hosts[host].called);
        read.lost.add(format!("that some hosts have no route to others, such as {from} to {to}"), 1);
    }
    let most =
        |ways: &mut dyn Iterator<Item = Option<Way>>| ways.flatten().map(|way| way.bandwidth).fold(0.0, f64::max);
    let out: Vec<f64> = (0..count).map(|from| most(&mut (0..count).map(|to| ways[from * count + to]))).collect();
    let into: Vec<f64> = (0..count).map(|to| most(&mut (0..count).map(|from| ways[from * count + to]))).collect();
    let own: Vec<Seconds> = (0..count).map(|from| commonest(&ways[from * count..][..count])).collect();
    for (host, node) in lab.nodes.iter_mut().enumerate() {
        let Some(interface) = node.interfaces.first_mut() else { continue };
        let limit = |bandwidth: f64| rate(bandwidth).filter(|_| bandwidth > 0.0);
        interface.conditions.egress.rate = limit(out[host]);
        interface.conditions.ingress.rate = limit(into[host]);
        interface.conditions.egress.delay = Some(own[host]).filter(|delay| delay.0 > 0.0);
    }
    let (mut rules, mut rates) = (Differences::default(), Differences::default());
    let mut cells = vec![None; count * count];
    for (from, to) in pairs() {
        let Some(way) = ways[from * count + to] else { continue };
        let mut conditions = LinkConditions::default();
        if way.bandwidth < out[from].min(into[to]) {
            conditions.rate = rate(way.bandwidth);
        }
        let (net, nodes) = (NetworkId(0), (NodeId(from), NodeId(to)));
        rates.add(net, nodes, &conditions);
        let delay = delay(way.latency);
        if delay != own[from] {
            cells[from * count + to] = Some(delay);
            conditions.delay = Some(delay);
        }
        rules.add(net, nodes, &conditions);
    }
    let rules = rules.rules(lab);
    if rules.len() <= MOST_RULES {
        lab.links = rules;
        return None;
    }
    let mut rates = rates.rules(lab);
    if rates.len() > 2 * MOST_RULES {
        read.lost.add(format!("rates between pairs, for they would take {} rules", rates.len()), 1);
        rates.clear();
    }
    lab.links = rates;
    lab.matrices = vec![MatrixFile { path: matrix.into(), network: None }];
    Some(csv(lab, &cells))
}

/// The delay that most of a host's ways have.
fn commonest(ways: &[Option<Way>]) -> Seconds {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for way in ways.iter().flatten() {
        *counts.entry(delay(way.latency).0.to_bits()).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(delay, count)| (*count, std::cmp::Reverse(*delay)));
    Seconds(most.map_or(0.0, |(delay, _)| f64::from_bits(delay)))
}

fn csv(lab: &Lab, cells: &[Option<Seconds>]) -> String {
    let mut text = String::new();
    for node in &lab.nodes {
        text.push(',');
        text.push_str(&node.name);
    }
    for (node, row) in lab.nodes.iter().zip(cells.chunks(lab.nodes.len())) {
        text.push('\n');
        text.push_str(&node.name);
        for cell in row {
            text.push(',');
            text.push_str(&cell.map_or_else(|| "-".to_owned(), |delay| delay.to_string()));
        }
    }
    text + "\n"
}
