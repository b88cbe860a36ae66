//! From XML to a graph: what there is first, then the ways between.

mod cluster;
mod ways;

use std::collections::{HashMap, HashSet};

use roxmltree::{Document, Node, ParsingOptions};

use super::graph::{Graph, Point, Private, Routing, Way, Zone};
use super::units;
use crate::imported::Lost;
use crate::names::Names;
use slipway_document::errors::{Report, Span};
use slipway_document::units::shortened;

/// Longest file, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// Deepest nesting of zones.
const MAX_DEPTH: usize = 32;
/// Between so many, every pair is worked out.
const MOST_HOSTS: usize = 1000;

/// A computer of the platform.
#[derive(Debug)]
pub(super) struct Host {
    /// The name, in the form of a node's.
    pub(super) name: String,
    /// In the file.
    pub(super) called: String,
    /// The cluster that it is in.
    pub(super) group: Option<String>,
    pub(super) point: Point,
    /// Operations per second and core.
    pub(super) speed: f64,
    pub(super) cores: f64,
    /// Bits per second.
    pub(super) disk: [Option<f64>; 2],
}

/// The content of a platform file.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) graph: Graph,
    pub(super) hosts: Vec<Host>,
    pub(super) lost: Lost,
    /// Links that ways of several hosts have in common.
    pub(super) common: Vec<String>,
    given: Names,
    points: HashMap<String, Point>,
    links: HashMap<String, Link>,
    /// Each zone by where its element begins.
    zone_at: HashMap<usize, usize>,
    host_points: HashSet<Point>,
    /// Points that stand for zones.
    zone_points: HashSet<Point>,
    lines: Vec<usize>,
}

#[derive(Debug)]
struct Link {
    way: Way,
    /// Hosts that all of its routes begin or end at; `None` before the first route. Where there is none, it is shared.
    whose: Option<Vec<Point>>,
}

type Xml<'a> = Node<'a, 'a>;

pub(super) fn read(text: &str, report: &mut Report) -> Option<Read> {
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes, more than a platform can have ({MAX_BYTES})", text.len());
        report.add(Span::default(), message, "check that this is the right file");
        return None;
    }
    if let Some(at) = text.find("<!ENTITY") {
        let at = Span { start: at, end: at + 8 };
        report.add(at, "a platform with entities of its own", "write them out where they are used");
        return None;
    }
    // SimGrid's files name their DTD, which is not fetched.
    let options = ParsingOptions { allow_dtd: true, nodes_limit: 4_000_000, ..ParsingOptions::default() };
    let document = match Document::parse_with_options(text, options) {
        Ok(document) => document,
        Err(error) => {
            let at = place(text, error.pos());
            let message = format!("not XML: {}", without_place(&error.to_string()));
            report.add(at, message, "check the tags and quotes at this place and before it");
            return None;
        }
    };
    let mut read = Read { lines: text.match_indices('\n').map(|(at, _)| at).collect(), ..Read::default() };
    read.platform(document.root_element(), report);
    Some(read)
}

/// The byte at a row and column.
fn place(text: &str, at: roxmltree::TextPos) -> Span {
    let row = usize::try_from(at.row).unwrap_or(1).saturating_sub(1);
    let begin: usize = text.split_inclusive('\n').take(row).map(str::len).sum();
    let columns = text[begin..].chars().take(usize::try_from(at.col).unwrap_or(1).saturating_sub(1));
    let start = begin + columns.map(char::len_utf8).sum::<usize>();
    Span { start, end: start }
}

fn without_place(message: &str) -> &str {
    message.split(" at ").next().unwrap_or(message)
}

/// The place of an element's tag.
fn at(node: Xml) -> Span {
    let start = node.range().start;
    Span { start, end: start + 1 + node.tag_name().name().len() }
}

fn elements(node: Xml<'_>) -> impl Iterator<Item = Xml<'_>> {
    node.children().filter(Node::is_element)
}

impl Read {
    fn line(&self, node: Xml) -> usize {
        self.lines.partition_point(|newline| *newline < node.range().start) + 1
    }

    fn lose(&mut self, what: impl Into<String>, node: Xml) {
        let line = self.line(node);
        self.lost.add(what, line);
    }

    /// Attributes that nobody reads.
    fn lose_others(&mut self, node: Xml, known: &[&str]) {
        for attribute in node.attributes().filter(|attribute| !known.contains(&attribute.name())) {
            self.lose(format!("{} of a {}", shortened(attribute.name()), node.tag_name().name()), node);
        }
    }

    fn platform(&mut self, root: Xml, report: &mut Report) {
        let version = root.attribute("version").unwrap_or("none");
        if root.tag_name().name() != "platform" {
            let message = format!("a platform begins with <platform>, not <{}>", shortened(root.tag_name().name()));
            report.add(at(root), message, "check that this is a SimGrid platform file");
            return;
        }
        if version != "4" && !version.starts_with("4.") {
            let message = format!("a platform of version {}", shortened(version));
            report.add(
                at(root),
                message,
                "version 4 and later are read; `simgrid_update_xml` makes one of an older file",
            );
            return;
        }
        for child in elements(root) {
            match child.tag_name().name() {
                "zone" | "AS" => self.zone(child, None, 0, report),
                "include" => {
                    report.add(at(child), "what is in another file is not read", "put its content here");
                }
                other => self.lose(format!("<{}>", shortened(other)), child),
            }
        }
        for child in elements(root).filter(|child| matches!(child.tag_name().name(), "zone" | "AS")) {
            self.connect(child, report);
        }
        let common = self
            .links
            .iter()
            .filter(|(_, link)| link.whose.as_ref().is_some_and(Vec::is_empty) && link.way.bandwidth.is_finite());
        self.common = common.map(|(name, _)| shortened(name)).collect();
        self.common.sort();
        if self.hosts.is_empty() && report.is_empty() {
            report.add(at(root), "a platform without a host", "add a <host> or a <cluster>");
        }
        if self.hosts.len() > MOST_HOSTS && report.is_empty() {
            let message = format!("{} hosts, more than are imported ({MOST_HOSTS})", self.hosts.len());
            report.add(at(root), message, "take some of them out, or write the lab by hand with `count`");
        }
    }

    /// An attribute that must be there.
    fn need<'a>(node: Xml<'a>, name: &str, report: &mut Report) -> &'a str {
        node.attribute(name).unwrap_or_else(|| {
            let message = format!("<{}> has no `{name}`", node.tag_name().name());
            report.add(at(node), message, format!("add `{name}=\"…\"`"));
            ""
        })
    }

    fn quantity(node: Xml, name: &str, read: fn(&str) -> Result<f64, String>, report: &mut Report) -> Option<f64> {
        let attribute = node.attribute_node(name)?;
        let value = read(attribute.value());
        if let Err(wrong) = &value {
            let (message, help) = wrong.split_once("; ").unwrap_or((wrong, "write a quantity"));
            let range = attribute.range_value();
            let message = format!("`{}` is {message}", shortened(attribute.value()));
            report.add(Span { start: range.start, end: range.end }, message, help);
        }
        value.ok()
    }

    /// A link's way: its latency and bandwidth.
    fn way(node: Xml, bandwidth: &str, latency: &str, report: &mut Report) -> Way {
        Way {
            latency: Self::quantity(node, latency, units::time, report).unwrap_or(0.0),
            bandwidth: Self::quantity(node, bandwidth, units::bandwidth, report)
                .filter(|bandwidth| *bandwidth > 0.0)
                .unwrap_or(f64::INFINITY),
        }
    }

    fn point(&mut self, name: &str, zone: usize, node: Xml, report: &mut Report) -> Point {
        let point = self.graph.points.len();
        self.graph.points.push(zone);
        if self.points.insert(name.to_owned(), point).is_some() {
            report.add(at(node), format!("`{}` is here twice", shortened(name)), "give each its own name");
        }
        point
    }

    fn zone(&mut self, node: Xml, parent: Option<usize>, depth: usize, report: &mut Report) {
        if depth > MAX_DEPTH {
            report.add(at(node), "zones nested too deep", format!("nest at most {MAX_DEPTH}"));
            return;
        }
        self.lose_others(node, &["id", "routing"]);
        let routing = match Self::need(node, "routing", report) {
            "Full" => Routing::Full,
            "Floyd" | "Dijkstra" | "DijkstraCache" => Routing::Shortest,
            "Cluster" => Routing::Cluster,
            "Vivaldi" => Routing::Vivaldi,
            "None" | "" => Routing::None,
            other => {
                let message = format!("routing `{}` is not read", shortened(other));
                report.add(at(node), message, "there are: Full, Floyd, Dijkstra, Cluster, Vivaldi, None");
                Routing::None
            }
        };
        let zone = self.add_zone(Self::need(node, "id", report), routing, parent, node, report);
        for child in elements(node) {
            match child.tag_name().name() {
                "zone" | "AS" => self.zone(child, Some(zone), depth + 1, report),
                "host" => self.host(child, zone, report),
                "router" => {
                    self.lose_others(child, &["id"]);
                    self.point(Self::need(child, "id", report), zone, child, report);
                }
                "link" => self.link(child, report),
                "peer" => self.peer(child, zone, report),
                "cluster" => self.cluster(child, zone, report),
                "cabinet" => {
                    self.lose_others(child, &["id", "prefix", "suffix", "radical", "speed", "bw", "lat"]);
                    self.members(child, zone, report);
                }
                "route" | "zoneRoute" | "ASroute" | "backbone" | "host_link" => {}
                other => self.lose(format!("<{}>", shortened(other)), child),
            }
        }
    }

    fn add_zone(
        &mut self,
        name: &str,
        routing: Routing,
        parent: Option<usize>,
        node: Xml,
        report: &mut Report,
    ) -> usize {
        let zone = self.graph.zones.len();
        self.zone_at.insert(node.range().start, zone);
        // The outermost is in nothing; nobody asks for its point.
        let point = self.point(name, parent.unwrap_or(0), node, report);
        self.zone_points.insert(point);
        self.graph.zones.push(Zone {
            routing,
            parent,
            point,
            edges: HashMap::new(),
            private: HashMap::new(),
            backbone: Way::NONE,
        });
        zone
    }

    fn add_host(&mut self, name: &str, group: Option<&str>, zone: usize, node: Xml, report: &mut Report) -> Point {
        let point = self.point(name, zone, node, report);
        if self.hosts.len() > MOST_HOSTS {
            return point;
        }
        self.host_points.insert(point);
        // One number for each performance state; it starts in that which `pstate` says.
        let state = node.attribute("pstate").and_then(|state| state.parse::<usize>().ok()).unwrap_or(0);
        let speeds: Vec<&str> = node.attribute("speed").unwrap_or("1Gf").split(',').collect();
        let speed = units::speed(speeds.get(state).copied().unwrap_or(speeds[0]));
        if let (Err(wrong), Some(attribute)) = (&speed, node.attribute_node("speed")) {
            let (message, help) = wrong.split_once("; ").unwrap_or((wrong, "write a speed"));
            let range = attribute.range_value();
            report.add(Span { start: range.start, end: range.end }, format!("the speed is {message}"), help);
        }
        let cores = node.attribute("core").map_or(Ok(1), str::parse::<u16>);
        if cores.is_err() {
            report.add(at(node), "this is no number of cores", "write `core=\"4\"`");
        }
        self.hosts.push(Host {
            name: self.given.give(name),
            called: name.to_owned(),
            group: group.map(str::to_owned),
            point,
            speed: speed.unwrap_or(1e9),
            cores: f64::from(cores.unwrap_or(1).max(1)),
            disk: [None; 2],
        });
        point
    }

    fn host(&mut self, node: Xml, zone: usize, report: &mut Report) {
        self.lose_others(node, &["id", "speed", "core", "pstate"]);
        if node.attribute("speed").is_some_and(|speeds| speeds.contains(',')) {
            self.lose("other performance states of a host", node);
        }
        self.add_host(Self::need(node, "id", report), None, zone, node, report);
        for child in elements(node) {
            if child.tag_name().name() == "disk" {
                self.lose_others(child, &["id", "read_bw", "write_bw"]);
                let speeds = ["read_bw", "write_bw"].map(|name| Self::quantity(child, name, units::bandwidth, report));
                match self.hosts.last_mut() {
                    Some(host) if host.disk == [None; 2] => host.disk = speeds,
                    _ => self.lose("a second <disk> of a host", child),
                }
            } else {
                self.lose(format!("<{}> of a host", shortened(child.tag_name().name())), child);
            }
        }
    }

    fn link(&mut self, node: Xml, report: &mut Report) {
        self.lose_others(node, &["id", "bandwidth", "latency", "sharing_policy"]);
        let id = Self::need(node, "id", report);
        if node.attribute("bandwidth").is_some_and(|bandwidth| bandwidth.contains(',')) {
            report.add(at(node), "a link with several bandwidths (WIFI)", "write one, or take the link out");
            return;
        }
        if node.attribute("sharing_policy") == Some("FATPIPE") {
            self.lose(
                "sharing_policy FATPIPE of a link: what hosts send through it shares their interface's rate",
                node,
            );
        }
        Self::need(node, "bandwidth", report);
        let way = Self::way(node, "bandwidth", "latency", report);
        for name in [id.to_owned(), format!("{id}_UP"), format!("{id}_DOWN")] {
            self.links.insert(name, Link { way, whose: None });
        }
        for child in elements(node) {
            self.lose(format!("<{}> of a link", shortened(child.tag_name().name())), child);
        }
    }

    fn peer(&mut self, node: Xml, zone: usize, report: &mut Report) {
        self.lose_others(node, &["id", "speed", "bw_in", "bw_out", "lat", "coordinates"]);
        let point = self.add_host(Self::need(node, "id", report), None, zone, node, report);
        let [up, down] = ["bw_out", "bw_in"].map(|bandwidth| Self::way(node, bandwidth, "lat", report));
        let mut coordinates = [0.0; 3];
        let written = node.attribute("coordinates").unwrap_or_default().split_whitespace();
        for (coordinate, text) in coordinates.iter_mut().zip(written) {
            match text.parse::<f64>() {
                Ok(number) if number.is_finite() => *coordinate = number,
                _ => report.add(at(node), "these are no coordinates", "write three numbers, such as `25.5 9.4 1.4`"),
            }
        }
        self.graph.zones[zone].private.insert(point, Private { up, down, coordinates });
    }
}
