//! The devices, queueing disciplines and programs of conditions, for the graph of the lab.

use slipway_lab::model::Lab;
use slipway_lab::scenario::Direction as Of;

use super::inside::{GATE, OUTSIDE, Shape};
use super::interface::Interface;
use super::links::Links;
use super::live::Place;
use super::plan::BOTH;
use crate::network::graph::{Device, Direction, Graph, Kind, Link, Program, Space};

impl Links {
    /// Adds to a graph of networks what conditions have put there.
    pub(crate) fn add_to(&self, lab: &Lab, graph: &mut Graph) {
        for (&place, interface) in &self.interfaces {
            if let Some(link) = interface.devices(lab, place, graph) {
                graph.links.extend(link);
            }
        }
        graph.links.sort_by(|a, b| a.device.cmp(&b.device));
    }
}

impl Interface {
    /// Completes the interface's own device. Gives the devices beside it; `None` for an interface that is gone.
    fn devices(&self, lab: &Lab, (node, slot): Place, graph: &mut Graph) -> Option<Vec<Link>> {
        let of = &lab.nodes[node].interfaces[slot];
        let mut own = Device { space: Space::Node(node), name: of.name.clone() };
        let outside = self.plan.outside;
        if outside {
            let Kind::Veth { peer } = &graph.link(&own)?.kind else { return None };
            own = peer.clone();
        }
        let at = graph.links.iter_mut().find(|link| link.device == own)?;
        let prefix = if outside { format!("w{}", at.index?) } else { own.name.clone() };
        let beside = |name: &str, index, kind| Link {
            device: Device { space: own.space, name: format!("{prefix}-{name}") },
            index,
            network: Some(of.network),
            kind,
            mtu: Some(self.mtu),
            bridge: None,
            qdiscs: Vec::new(),
            programs: Vec::new(),
        };
        if self.hook && !outside {
            at.qdiscs.push("clsact".to_owned());
        }
        if self.gate {
            let order = if outside { OUTSIDE } else { 1 };
            at.programs.extend([Direction::Egress, Direction::Ingress].map(|direction| program(direction, order)));
            at.programs.sort();
        }
        let mut links = Vec::new();
        for (direction, way) in BOTH.into_iter().zip(&self.ways) {
            if let Some(tap) = way.tap {
                let name = if direction == Of::Egress { "out" } else { "in" };
                links.push(returning(beside(name, Some(tap), Kind::Tap)));
            }
            let shape = way.shape.as_ref().map(qdiscs).unwrap_or_default();
            let Some(begin) = way.detour else {
                at.qdiscs.extend(shape);
                continue;
            };
            let peer = |name: &str| Device { space: own.space, name: format!("{prefix}-{name}") };
            links.push(Link { qdiscs: shape, ..beside("shape", Some(begin), Kind::Veth { peer: peer("back") }) });
            links.push(returning(beside("back", None, Kind::Veth { peer: peer("shape") })));
        }
        Some(links)
    }
}

fn program(direction: Direction, order: u16) -> Program {
    Program { direction, order, name: GATE.to_owned() }
}

/// A device whose packets go back to the interface.
fn returning(link: Link) -> Link {
    Link { qdiscs: vec!["clsact".to_owned()], programs: vec![program(Direction::Ingress, 1)], ..link }
}

fn qdiscs(shape: &Shape) -> Vec<String> {
    let names: &[&str] = match shape {
        Shape::Tbf(_) => &["tbf"],
        Shape::Netem(..) => &["tbf", "netem"],
    };
    names.iter().map(|&name| name.to_owned()).collect()
}
