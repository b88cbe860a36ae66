//! The topology as a picture. Networks are upright bars in the middle; hosts stand left and right of them. Every node's
//! wires run level from its box to its bars, so nothing overlaps, however large the lab is.

use std::fmt::Write;

use super::{Item, describe, items, rules, xml};
use crate::id::{HostId, List};
use crate::model::Lab;

/// Colours that also the colour-blind tell apart (Okabe and Ito, 2008), dark enough for white letters.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#00855f", "#b0528c", "#3a86a8", "#a66f00", "#5b5fc7"];
const GREY: &str = "#8a919c";

const MARGIN: f64 = 24.0;
const BOX_HEIGHT: f64 = 44.0;
/// Between boxes, and within a host around them.
const GAP: f64 = 12.0;
const HOST_TITLE: f64 = 34.0;
/// A wire's share of its box's side.
const WIRE: f64 = 18.0;
/// Between a host and the bars: room for the wires' labels; more where they are longer.
const LABELS: f64 = 190.0;
const BAR: f64 = 22.0;
const BAR_STEP: f64 = 40.0;
/// Letters of a network's name that its bar has room for.
const LONGEST_NAME: usize = 20;
const LEGEND_LINE: f64 = 22.0;
const HEADER: f64 = 58.0;

/// A self-contained SVG of the lab's topology.
#[must_use]
pub fn svg(lab: &Lab) -> String {
    let (items, left_out) = items(lab);
    let plan = Plan::new(lab, &items, &left_out);
    let mut out = String::new();
    let _ = write!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" font-family="system-ui, 'DejaVu Sans', sans-serif">
<title>Topology of lab {name}</title>
<rect width="{w}" height="{h}" fill="#ffffff"/>
<text x="{MARGIN}" y="44" font-size="22" font-weight="600" fill="#1f2430">{name}</text>
"##,
        w = plan.width,
        h = plan.height,
        name = xml(&lab.name),
    );
    plan.legend(&mut out);
    for host in &plan.hosts {
        plan.host(host, &mut out);
    }
    // Bars cover the wires that pass beneath them; the dots of those that end there come last.
    let mut dots = String::new();
    for host in &plan.hosts {
        plan.wires(host, &mut out, &mut dots);
    }
    plan.bars(&mut out);
    out + &dots + "</svg>\n"
}

/// The positions of all parts.
struct Plan<'l> {
    lab: &'l Lab,
    hosts: Vec<HostBox<'l>>,
    box_width: f64,
    /// Left edge of the first bar.
    bars: f64,
    top: f64,
    bottom: f64,
    width: f64,
    height: f64,
}

struct HostBox<'l> {
    id: HostId,
    left: bool,
    x: f64,
    y: f64,
    height: f64,
    items: Vec<(&'l Item<'l>, f64)>,
    left_out: usize,
}

fn item_height(item: &Item) -> f64 {
    let wires = item.nodes.first().map_or(0, |node| node.interfaces.len());
    BOX_HEIGHT.max(WIRE * wires as f64 + 8.0)
}

impl<'l> Plan<'l> {
    fn new(lab: &'l Lab, items: &'l [Item<'l>], left_out: &List<HostId, usize>) -> Self {
        let longest = |text: &str| text.chars().count() as f64;
        let names = items.iter().map(|item| longest(&item.label) * 8.4);
        let details = items.iter().map(|item| longest(&item.details()) * 6.6);
        let box_width = names.chain(details).fold(110.0, f64::max).min(340.0) + 24.0;
        let host_width = box_width + 2.0 * GAP;
        let wires = items.iter().flat_map(Item::wires).map(|wire| longest(&wire.label) * 6.0 + 30.0);
        let labels = wires.fold(LABELS, f64::max);
        let two_sides = lab.hosts.len() > 1;
        let bars = MARGIN + labels + if two_sides { host_width } else { 0.0 };
        let bars = if two_sides { bars } else { MARGIN };
        let count = lab.networks.len() + usize::from(lab.underlay.is_some());
        let right = bars + BAR_STEP * count as f64 - (BAR_STEP - BAR) + labels;
        let rules = rules(lab);
        let top = HEADER + LEGEND_LINE * (count + rules.len()) as f64 + 12.0;

        let hosts_top = top + Self::bar_names(lab).map(|name| longest(&name) * 7.6).fold(0.0, f64::max) + 16.0;

        // The next host goes to the side that has more room left.
        let (mut y_left, mut y_right) = (hosts_top, hosts_top);
        let mut hosts = Vec::new();
        for (id, &left_out) in left_out.enumerate() {
            let left = two_sides && y_left <= y_right;
            let y = if left { &mut y_left } else { &mut y_right };
            let mut inner = *y + HOST_TITLE;
            let mut mine = Vec::new();
            for item in items.iter().filter(|item| item.host == id) {
                mine.push((item, inner));
                inner += item_height(item) + GAP;
            }
            inner += if left_out > 0 { 24.0 } else { 0.0 };
            let height = (inner - *y).max(HOST_TITLE + GAP);
            hosts.push(HostBox {
                id,
                left,
                x: if left { MARGIN } else { right },
                y: *y,
                height,
                items: mine,
                left_out,
            });
            *y += height + GAP;
        }
        let bottom = y_left.max(y_right).max(hosts_top + 40.0) - GAP;
        let lines = lab.networks.iter().map(describe).chain(rules);
        let legend = lines.map(|line| longest(&line) * 7.4 + 60.0).fold(0.0, f64::max);
        let width = (right + host_width + MARGIN).max(legend + MARGIN).max(longest(&lab.name) * 14.0);
        Self { lab, hosts, box_width, bars, top, bottom, width: width.ceil(), height: (bottom + MARGIN).ceil() }
    }

    fn bar(&self, index: usize) -> f64 {
        self.bars + BAR_STEP * index as f64
    }

    fn colour(&self, bar: usize) -> &'static str {
        if bar < self.lab.networks.len() { COLOURS[bar % COLOURS.len()] } else { GREY }
    }

    /// The names on the bars, above all dots.
    fn bar_names(lab: &Lab) -> impl Iterator<Item = String> {
        let underlay = lab.underlay.as_ref().map(|_| "underlay");
        lab.networks.iter().map(|network| network.name.as_str()).chain(underlay).map(|name| {
            match name.char_indices().nth(LONGEST_NAME) {
                Some((end, _)) => format!("{}…", &name[..end]),
                None => name.to_owned(),
            }
        })
    }

    fn legend(&self, out: &mut String) {
        let networks = self.lab.networks.iter().map(describe);
        let underlay = self
            .lab
            .underlay
            .as_ref()
            .map(|underlay| format!("underlay · {} · {} · mtu {}", underlay.ipv4, underlay.ipv6, underlay.mtu));
        for (i, line) in networks.chain(underlay).enumerate() {
            let y = HEADER + LEGEND_LINE * i as f64;
            let _ = writeln!(
                out,
                r##"<rect x="{MARGIN}" y="{y}" width="26" height="12" rx="3" fill="{}"/><text x="{}" y="{}" font-size="13" fill="#3c4353">{}</text>"##,
                self.colour(i),
                MARGIN + 36.0,
                y + 11.0,
                xml(line),
            );
        }
        let lines = self.lab.networks.len() + usize::from(self.lab.underlay.is_some());
        for (i, rule) in (lines..).zip(rules(self.lab)) {
            let y = HEADER + LEGEND_LINE * i as f64 + 11.0;
            let _ = writeln!(
                out,
                r##"<text x="{}" y="{y}" font-size="13" fill="#3c4353">{}</text>"##,
                MARGIN + 36.0,
                xml(rule)
            );
        }
    }

    fn bars(&self, out: &mut String) {
        let height = self.bottom - self.top;
        for (i, name) in Self::bar_names(self.lab).enumerate() {
            let (x, colour) = (self.bar(i), self.colour(i));
            let (cx, cy) = (x + BAR / 2.0, self.top + 12.0);
            let _ = writeln!(
                out,
                r##"<rect x="{x}" y="{}" width="{BAR}" height="{height}" rx="6" fill="{colour}"/><text transform="translate({},{cy}) rotate(90)" font-size="12" font-weight="600" fill="#ffffff">{}</text>"##,
                self.top,
                cx - 4.0,
                xml(name),
            );
        }
    }

    fn host(&self, host: &HostBox, out: &mut String) {
        let spec = &self.lab.hosts[host.id];
        let width = self.box_width + 2.0 * GAP;
        let title = match &spec.cpus {
            _ if self.lab.machine => "this machine".to_owned(),
            Some(cpus) => format!("{} · cpus {cpus}", spec.name),
            None => spec.name.clone(),
        };
        let _ = writeln!(
            out,
            r##"<rect x="{}" y="{}" width="{width}" height="{}" rx="10" fill="#f3f5f9" stroke="#c6ccd8"/><text x="{}" y="{}" font-size="13" font-weight="600" fill="#5a6274">{}</text>"##,
            host.x,
            host.y,
            host.height,
            host.x + GAP,
            host.y + 22.0,
            xml(title),
        );
        for (item, y) in &host.items {
            self.item(item, host.x + GAP, *y, out);
        }
        if host.left_out > 0 {
            let (x, y) = (host.x + GAP, host.y + host.height - 14.0);
            let _ = writeln!(
                out,
                r##"<text x="{x}" y="{y}" font-size="13" fill="#5a6274">and {} more nodes</text>"##,
                host.left_out
            );
        }
    }

    fn item(&self, item: &Item, x: f64, y: f64, out: &mut String) {
        let (width, height) = (self.box_width, item_height(item));
        let gateway = item.nodes.first().is_some_and(|node| node.gateway);
        let (stroke, thick) = if gateway { ("#1f2430", 2.0) } else { ("#9aa3b5", 1.0) };
        // A group is a stack.
        if item.nodes.len() > 1 {
            let _ = writeln!(
                out,
                r##"<rect x="{}" y="{}" width="{width}" height="{height}" rx="6" fill="#e6eaf2" stroke="#9aa3b5"/>"##,
                x + 4.0,
                y + 4.0,
            );
        }
        let details = item.details();
        let middle = y + height / 2.0;
        let (name_y, details_y) = if details.is_empty() { (middle + 5.0, 0.0) } else { (middle - 3.0, middle + 14.0) };
        let _ = write!(
            out,
            r##"<g><title>{0}</title><rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="#ffffff" stroke="{stroke}" stroke-width="{thick}"/><text x="{1}" y="{name_y}" font-size="14" font-weight="600" fill="#1f2430">{0}</text>"##,
            xml(&item.label),
            x + 12.0,
        );
        if !details.is_empty() {
            let _ = write!(
                out,
                r##"<text x="{}" y="{details_y}" font-size="11" fill="#5a6274">{}</text>"##,
                x + 12.0,
                xml(details)
            );
        }
        out.push_str("</g>\n");
    }

    fn wires(&self, host: &HostBox, out: &mut String, dots: &mut String) {
        let width = self.box_width + 2.0 * GAP;
        let edge = if host.left { host.x + width } else { host.x };
        if self.lab.underlay.is_some() {
            let address = self.lab.hosts[host.id].ipv4.map(|address| address.to_string()).unwrap_or_default();
            self.wire(host.left, edge, host.y + 17.0, self.lab.networks.len(), &address, out, dots);
        }
        for (item, y) in &host.items {
            let wires = item.wires();
            let edge = if host.left { edge - GAP } else { edge + GAP };
            let first = y + item_height(item) / 2.0 - WIRE * (wires.len() as f64 - 1.0) / 2.0;
            for (i, wire) in wires.iter().enumerate() {
                self.wire(host.left, edge, first + WIRE * i as f64, wire.network.index(), &wire.label, out, dots);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a line has two ends, a colour and a label")]
    fn wire(&self, left: bool, edge: f64, y: f64, bar: usize, label: &str, out: &mut String, dots: &mut String) {
        let colour = self.colour(bar);
        let end = self.bar(bar) + BAR / 2.0;
        let dash = if bar < self.lab.networks.len() { "" } else { r#" stroke-dasharray="4 3""# };
        let _ = writeln!(
            out,
            r#"<line x1="{edge}" y1="{y}" x2="{end}" y2="{y}" stroke="{colour}" stroke-width="2"{dash}/>"#
        );
        let (x, anchor) = if left { (edge + GAP + 10.0, "start") } else { (edge - GAP - 10.0, "end") };
        let _ = writeln!(
            out,
            r##"<text x="{x}" y="{}" font-size="11" text-anchor="{anchor}" fill="#3c4353">{}</text>"##,
            y - 3.5,
            xml(label)
        );
        let _ = writeln!(
            dots,
            r##"<circle cx="{end}" cy="{y}" r="5" fill="#ffffff" stroke="{colour}" stroke-width="2"/>"##
        );
    }
}
