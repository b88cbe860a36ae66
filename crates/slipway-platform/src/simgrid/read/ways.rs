//! The ways between what there is: routes, and what hosts share.

use super::super::graph::{Edge, Point, Private, Way};
use super::{Read, Xml, at, elements};
use slipway_document::closest;
use slipway_document::errors::Report;
use slipway_document::units::shortened;

impl Read {
    /// The ways of a zone and of those in it.
    pub(super) fn connect(&mut self, node: Xml, report: &mut Report) {
        let Some(&zone) = self.zone_at.get(&node.range().start) else { return };
        for child in elements(node) {
            match child.tag_name().name() {
                "zone" | "AS" => self.connect(child, report),
                "route" => self.route(child, zone, ["src", "dst"], report),
                "zoneRoute" | "ASroute" => self.route(child, zone, ["gw_src", "gw_dst"], report),
                "backbone" => {
                    self.lose_others(child, &["id", "bandwidth", "latency", "sharing_policy"]);
                    self.graph.zones[zone].backbone = Self::way(child, "bandwidth", "latency", report);
                }
                "host_link" => self.host_link(child, zone, report),
                _ => {}
            }
        }
    }

    /// A link's way. `ends` are the hosts that the route is between.
    fn link_way(&mut self, name: &str, ends: &[Point], node: Xml, report: &mut Report) -> Way {
        if let Some(link) = self.links.get_mut(name) {
            link.whose.get_or_insert_with(|| ends.to_vec()).retain(|end| ends.contains(end));
            return link.way;
        }
        if report.is_full() {
            return Way::NONE;
        }
        let known: Vec<&str> = self.links.keys().map(String::as_str).take(1000).collect();
        let help = closest(name, known.into_iter());
        let help =
            help.map_or_else(|| "add a <link> of that name".to_owned(), |name| format!("did you mean `{name}`?"));
        report.add(at(node), format!("there is no link `{}`", shortened(name)), help);
        Way::NONE
    }

    fn host_link(&mut self, node: Xml, zone: usize, report: &mut Report) {
        self.lose_others(node, &["id", "up", "down"]);
        let Some(point) = self.find(node, "id", report) else { return };
        let [up, down] = ["up", "down"].map(|end| {
            let name = Self::need(node, end, report);
            self.link_way(name, &[point], node, report)
        });
        self.graph.zones[zone].private.insert(point, Private { up, down, coordinates: [0.0; 3] });
    }

    fn find(&self, node: Xml, attribute: &str, report: &mut Report) -> Option<Point> {
        let name = Self::need(node, attribute, report);
        let found = self.points.get(name).copied();
        if found.is_none() && !name.is_empty() && !report.is_full() {
            let help = closest(name, self.points.keys().map(String::as_str).take(1000));
            let help = help.map_or_else(
                || "name a host, router or zone that is declared above".to_owned(),
                |name| format!("did you mean `{name}`?"),
            );
            report.add(at(node), format!("there is no `{}`", shortened(name)), help);
        }
        found
    }

    fn route(&mut self, node: Xml, zone: usize, gateways: [&str; 2], report: &mut Report) {
        self.lose_others(node, &["src", "dst", "gw_src", "gw_dst", "symmetrical"]);
        let ends = [self.find(node, "src", report), self.find(node, "dst", report)];
        let gateways = gateways.map(|name| self.find(node, name, report));
        // A zone stands for all hosts in it, and a router for those behind it.
        let is_host = |point: &Point| self.host_points.contains(point);
        let hosts: Vec<Point> = ends.into_iter().flatten().filter(is_host).collect();
        let mut way = Way::NONE;
        let mut links = 0;
        for child in elements(node) {
            if child.tag_name().name() == "link_ctn" {
                self.lose_others(child, &["id", "direction"]);
                way = way.then(self.link_way(Self::need(child, "id", report), &hosts, child, report));
                links += 1;
            } else {
                self.lose(format!("<{}> of a route", shortened(child.tag_name().name())), child);
            }
        }
        let ([Some(from), Some(to)], [Some(gateway_from), Some(gateway_to)]) = (ends, gateways) else { return };
        for (end, gateway) in [(from, gateway_from), (to, gateway_to)] {
            if self.graph.points[end] != zone {
                report.add(
                    at(node),
                    "a route between what is not in this zone",
                    "write it in the zone that holds both",
                );
                return;
            }
            let inside = self.graph.around(gateway).iter().any(|zone| self.graph.zones[*zone].point == end);
            if gateway != end && !inside {
                report.add(at(node), "a gateway that is not in its zone", "name a host or router in the zone");
                return;
            }
            if gateway == end && self.zone_points.contains(&end) {
                report.add(
                    at(node),
                    "a route to a zone without a gateway",
                    "write <zoneRoute> with `gw_src` and `gw_dst`",
                );
                return;
            }
        }
        let edges = &mut self.graph.zones[zone].edges;
        edges.insert((from, to), Edge { gateway_from, gateway_to, way, links });
        let is_one_way = node.attribute("symmetrical").is_some_and(|word| word.eq_ignore_ascii_case("no"));
        if !is_one_way {
            let back = Edge { gateway_from: gateway_to, gateway_to: gateway_from, way, links };
            edges.entry((to, from)).or_insert(back);
        }
    }
}
