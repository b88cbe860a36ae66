//! Zones, what is in them, and the ways between. After "Routing" and "XML reference" of SimGrid's manual.

use std::cell::RefCell;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use std::cmp::Reverse;

/// Where something is in the platform: an index of [`Graph::points`].
pub(super) type Point = usize;

/// Conditions of packets on a way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Way {
    /// Seconds.
    pub(super) latency: f64,
    /// Bits per second; infinite where nothing limits it.
    pub(super) bandwidth: f64,
}

impl Way {
    pub(super) const NONE: Self = Self { latency: 0.0, bandwidth: f64::INFINITY };

    pub(super) fn then(self, next: Self) -> Self {
        Self { latency: self.latency + next.latency, bandwidth: self.bandwidth.min(next.bandwidth) }
    }
}

/// One `route` or `zoneRoute`, one way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) gateway_from: Point,
    pub(super) gateway_to: Point,
    pub(super) way: Way,
    /// The cost of a way in the search.
    pub(super) links: usize,
}

/// The way in which a zone finds ways between its points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Routing {
    /// Each is written.
    Full,
    /// Those that are written are joined, so that there are few links.
    Shortest,
    /// Everyone has links of its own to a backbone.
    Cluster,
    /// By coordinates.
    Vivaldi,
    /// There are none.
    None,
}

/// A host's or peer's own links.
#[derive(Debug, Clone, Copy)]
pub(super) struct Private {
    pub(super) up: Way,
    pub(super) down: Way,
    /// Milliseconds apart.
    pub(super) coordinates: [f64; 3],
}

#[derive(Debug)]
pub(super) struct Zone {
    pub(super) routing: Routing,
    pub(super) parent: Option<usize>,
    /// Itself, among its parent's points.
    pub(super) point: Point,
    pub(super) edges: HashMap<(Point, Point), Edge>,
    pub(super) private: HashMap<Point, Private>,
    pub(super) backbone: Way,
}

/// A platform's network.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) zones: Vec<Zone>,
    /// The zone that each is in.
    pub(super) points: Vec<usize>,
    /// Each source's nearest edges, in zones whose ways are searched.
    searched: RefCell<HashMap<(usize, Point), BTreeMap<Point, Edge>>>,
    /// Ways within zones, which many pairs have in common.
    known: RefCell<HashMap<(Point, Point), Option<Way>>>,
}

impl Graph {
    /// The zones around a point, the outermost first.
    pub(super) fn around(&self, point: Point) -> Vec<usize> {
        let mut zones: Vec<usize> =
            std::iter::successors(Some(self.points[point]), |zone| self.zones[*zone].parent).collect();
        zones.reverse();
        zones
    }

    /// From one host or router to another.
    pub(super) fn way(&self, from: Point, to: Point) -> Option<Way> {
        if from == to {
            return Some(Way::NONE);
        }
        let (of_from, of_to) = (self.around(from), self.around(to));
        let common = of_from.iter().zip(&of_to).take_while(|(a, b)| a == b).count();
        let zone = of_from[common - 1];
        // The points that stand for each in the zone that both are in.
        let stands = |around: &[usize], point| around.get(common).map_or(point, |zone| self.zones[*zone].point);
        let (a, b) = (stands(&of_from, from), stands(&of_to, to));
        let mut way = Way::NONE;
        let mut here = from;
        for edge in self.edges(zone, a, b)? {
            way = way.then(self.within(here, edge.gateway_from)?).then(edge.way);
            here = edge.gateway_to;
        }
        Some(way.then(self.within(here, to)?))
    }

    /// To or from a gateway. It is deeper down: readers see to it that a zone's gateway is in it.
    fn within(&self, from: Point, to: Point) -> Option<Way> {
        if from == to {
            return Some(Way::NONE);
        }
        if let Some(known) = self.known.borrow().get(&(from, to)) {
            return *known;
        }
        let way = self.way(from, to);
        self.known.borrow_mut().insert((from, to), way);
        way
    }

    /// The edges to follow within a zone.
    fn edges(&self, zone: usize, from: Point, to: Point) -> Option<Vec<Edge>> {
        let of = &self.zones[zone];
        let direct = of.edges.get(&(from, to)).copied();
        let by_links = |way| vec![Edge { gateway_from: from, gateway_to: to, way, links: 1 }];
        match of.routing {
            Routing::None => None,
            Routing::Full => direct.map(|edge| vec![edge]),
            _ if direct.is_some() => direct.map(|edge| vec![edge]),
            Routing::Shortest => self.search(zone, from, to),
            Routing::Cluster | Routing::Vivaldi => {
                // A router has none.
                let none = Private { up: Way::NONE, down: Way::NONE, coordinates: [0.0; 3] };
                let [a, b] = [from, to].map(|point| of.private.get(&point).copied().unwrap_or(none));
                let mut way = a.up.then(of.backbone).then(b.down);
                if of.routing == Routing::Vivaldi {
                    let [dx, dy] = [0, 1].map(|axis| a.coordinates[axis] - b.coordinates[axis]);
                    let apart = dx.hypot(dy) + a.coordinates[2].abs() + b.coordinates[2].abs();
                    way.latency += apart / 1000.0;
                }
                Some(by_links(way))
            }
        }
    }

    /// Dijkstra's, by the number of links.
    fn search(&self, zone: usize, from: Point, to: Point) -> Option<Vec<Edge>> {
        let mut searched = self.searched.borrow_mut();
        let nearest = searched.entry((zone, from)).or_insert_with(|| self.nearest(zone, from));
        let mut edges = Vec::new();
        let mut here = to;
        while here != from {
            let edge = nearest.get(&here)?;
            edges.push(*edge);
            here = self.standing_for(zone, edge.gateway_from);
        }
        edges.reverse();
        Some(edges)
    }

    /// The point that stands for another in a zone around it.
    fn standing_for(&self, zone: usize, point: Point) -> Point {
        let around = self.around(point);
        let depth = around.iter().position(|at| *at == zone).unwrap_or_default();
        around.get(depth + 1).map_or(point, |zone| self.zones[*zone].point)
    }

    /// The last edge of the shortest way to each point.
    fn nearest(&self, zone: usize, from: Point) -> BTreeMap<Point, Edge> {
        let mut out: HashMap<Point, Vec<(Point, Edge)>> = HashMap::new();
        for (&(a, b), edge) in &self.zones[zone].edges {
            out.entry(a).or_default().push((b, *edge));
        }
        // Equal ways: the same one on every machine.
        for edges in out.values_mut() {
            edges.sort_by_key(|(to, _)| *to);
        }
        let mut cost: HashMap<Point, usize> = HashMap::from([(from, 0)]);
        let mut nearest = BTreeMap::new();
        let mut heap = BinaryHeap::from([Reverse((0, from))]);
        while let Some(Reverse((so_far, here))) = heap.pop() {
            if cost.get(&here).is_some_and(|least| *least < so_far) {
                continue;
            }
            for (next, edge) in out.get(&here).into_iter().flatten() {
                let total = so_far + edge.links.max(1);
                if cost.get(next).is_none_or(|least| total < *least) {
                    cost.insert(*next, total);
                    nearest.insert(*next, *edge);
                    heap.push(Reverse((total, *next)));
                }
            }
        }
        nearest
    }
}
