//! Clusters and cabinets: many hosts alike.

use super::super::graph::{Private, Routing};
use super::{MOST_HOSTS, Read, Xml, at};
use slipway_document::errors::Report;

impl Read {
    pub(super) fn cluster(&mut self, node: Xml, parent: usize, report: &mut Report) {
        let known = ["id", "prefix", "suffix", "radical", "speed", "core", "bw", "lat", "sharing_policy", "bb_bw"];
        self.lose_others(node, &[&known[..], &["bb_lat", "bb_sharing_policy", "router_id", "topology"]].concat());
        let id = Self::need(node, "id", report);
        if node.attribute("topology").is_some_and(|topology| topology != "FLAT") {
            self.lose("topology of a cluster: it is read as FLAT", node);
        }
        let zone = self.add_zone(id, Routing::Cluster, Some(parent), node, report);
        if node.attribute("bb_bw").is_some() {
            self.graph.zones[zone].backbone = Self::way(node, "bb_bw", "bb_lat", report);
        }
        let part = |name| node.attribute(name).unwrap_or_default();
        let default = format!("{}{id}_router{}", part("prefix"), part("suffix"));
        let router = node.attribute("router_id").filter(|id| !id.is_empty()).unwrap_or(&default).to_owned();
        self.point(&router, zone, node, report);
        self.members(node, zone, report);
    }

    /// The hosts of a cluster or cabinet, each with links of its own.
    pub(super) fn members(&mut self, node: Xml, zone: usize, report: &mut Report) {
        let id = Self::need(node, "id", report);
        let way = Self::way(node, "bw", "lat", report);
        let part = |name| node.attribute(name).unwrap_or_default();
        let Some(radicals) = radicals(Self::need(node, "radical", report)) else {
            report.add(at(node), "this is no list of numbers", "write `radical=\"0-9,12\"`");
            return;
        };
        for radical in radicals {
            if self.hosts.len() > MOST_HOSTS {
                break;
            }
            let name = format!("{}{radical}{}", part("prefix"), part("suffix"));
            let point = self.add_host(&name, Some(id), zone, node, report);
            let private = Private { up: way, down: way, coordinates: [0.0; 3] };
            self.graph.zones[zone].private.insert(point, private);
        }
    }
}

/// `0-9,12`
fn radicals(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last {
            return None;
        }
        all.extend((first..=last).take(MOST_HOSTS + 1));
        all.truncate(MOST_HOSTS + 1);
    }
    Some(all)
}
