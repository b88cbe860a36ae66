//! The fast path's numbers as Prometheus reads them
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>, text format 0.0.4).

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use slipway_lab::id::{HostId, NodeId};
use slipway_lab::model::Lab;
use slipway_verbs::broker::Traffic;

use crate::verbs::{BrokerStatus, NodeVerbs, PeerOfNode};

use super::{Connection, FastReport, Path, Reason, RouterReport, Tally};

/// The media type of [`metrics`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All numbers of a lab's fast path. Those that count begin anew with each router.
#[must_use]
pub fn metrics(lab: &Lab, report: &FastReport, flows: &[Connection]) -> String {
    let mut page = Page { text: String::new(), lab };
    page.routers(&report.routers);
    page.connections(&report.routers);
    page.pairs(&report.routers);
    page.flows(flows);
    page.verbs(&report.brokers);
    page.text
}

struct Page<'a> {
    text: String,
    lab: &'a Lab,
}

/// A sample: labels behind `lab`, and the number.
type Sample<'a> = (Vec<(&'static str, &'a str)>, u64);

impl<'a> Page<'a> {
    fn family(&mut self, name: &str, kind: &str, help: &str, samples: impl IntoIterator<Item = Sample<'a>>) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        let lab = escaped(&self.lab.name);
        for (labels, number) in samples {
            let labels: Vec<String> =
                labels.iter().map(|(key, value)| format!(",{key}=\"{}\"", escaped(value))).collect();
            self.line(format_args!("{name}{{lab=\"{lab}\"{}}} {number}", labels.concat()));
        }
    }

    fn line(&mut self, line: impl Display) {
        // A string takes everything.
        let _ = writeln!(self.text, "{line}");
    }

    fn counter(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample<'a>>) {
        self.family(name, "counter", help, samples);
    }

    fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample<'a>>) {
        self.family(name, "gauge", help, samples);
    }

    fn host(&self, router: &RouterReport) -> (&'static str, &'a str) {
        ("host", self.lab.hosts.get(router.router.host).map_or("", |host| &host.name))
    }

    fn node(&self, node: Option<NodeId>) -> &'a str {
        node.and_then(|node| self.lab.nodes.get(node)).map_or("", |node| &node.name)
    }

    fn routers(&mut self, routers: &'a [RouterReport]) {
        let all = |of: &dyn Fn(&RouterReport) -> u64| -> Vec<Sample<'a>> {
            routers.iter().map(|router| (vec![self.host(router)], of(router))).collect()
        };
        let up = all(&|router| u64::from(router.status.is_some()));
        let restarts = all(&|router| router.router.restarts.into());
        let programs = all(&|router| router.listeners as u64);
        let with_memory = routers.iter().filter_map(|router| Some((vec![self.host(router)], router.memory?)));
        let memory: Vec<Sample<'a>> = with_memory.collect();
        let peers = routers.iter().flat_map(|router| {
            let peers = router.status.iter().flat_map(|status| &status.peers);
            peers.map(move |peer| (router, peer.host, peer.ready))
        });
        let ready: Vec<Sample<'a>> = peers
            .map(|(router, peer, ready)| {
                let peer = self.lab.hosts.get(HostId(peer as usize)).map_or("", |host| &host.name);
                (vec![self.host(router), ("peer", peer)], ready as u64)
            })
            .collect();
        self.gauge("slipway_fast_router_up", "Whether the router of a host answers.", up);
        self.counter(
            "slipway_fast_router_restarts_total",
            "Routers that ended by themselves and were replaced.",
            restarts,
        );
        self.gauge("slipway_fast_router_resident_memory_bytes", "Memory that a router has.", memory);
        self.gauge("slipway_fast_router_programs", "Trees of programs whose calls a router hears.", programs);
        self.gauge("slipway_fast_peer_connections", "Connections to another host's router that are ready.", ready);
    }

    fn connections(&mut self, routers: &'a [RouterReport]) {
        let tallies =
            || routers.iter().filter_map(|router| Some((self.host(router), &router.status.as_ref()?.connections)));
        let one = |of: &dyn Fn(&Tally) -> u64| -> Vec<Sample<'a>> {
            tallies().map(|(host, tally)| (vec![host], of(tally))).collect()
        };
        let by_reason = |of: &dyn Fn(&'a Tally) -> &'a BTreeMap<Reason, u64>| -> Vec<Sample<'a>> {
            let each = tallies().flat_map(|(host, tally)| of(tally).iter().map(move |counted| (host, counted)));
            each.map(|(host, (reason, count))| (vec![host, ("reason", reason.word())], *count)).collect()
        };
        let taken: Vec<Sample<'a>> = tallies()
            .flat_map(|(host, tally)| {
                let both = [(Path::Pair, tally.pair), (Path::Tcp, tally.tcp)];
                both.map(|(path, count)| (vec![host, ("path", path.word())], count))
            })
            .collect();
        let (native, revoked) = (by_reason(&|tally| &tally.native), by_reason(&|tally| &tally.revoked));
        let refused = one(&|tally| tally.refused);
        let accepted = one(&|tally| tally.accepted);
        let statuses = routers.iter().filter_map(|router| Some((self.host(router), router.status.as_ref()?)));
        let waiting: Vec<Sample<'a>> = statuses.map(|(host, status)| (vec![host], status.waiting as u64)).collect();
        self.counter(
            "slipway_fast_connections_total",
            "Connections that took the fast path; one between two hosts is counted where its client is.",
            taken,
        );
        self.counter(
            "slipway_fast_accepted_total",
            "Fast connections that clients on other hosts made, which count them.",
            accepted,
        );
        self.counter("slipway_fast_native_total", "Connections left to the container network, by reason.", native);
        self.counter(
            "slipway_fast_revoked_total",
            "Fast connections that were ended from outside, by reason.",
            revoked,
        );
        self.counter("slipway_fast_refused_total", "Connections that nobody listened for.", refused);
        self.gauge("slipway_fast_waiting_connections", "Connections that wait to be accepted.", waiting);
    }

    /// Who connects to whom.
    fn pairs(&mut self, routers: &'a [RouterReport]) {
        let tallies =
            routers.iter().filter_map(|router| Some((self.host(router), &router.status.as_ref()?.connections.between)));
        let mut samples = Vec::new();
        for (host, between) in tallies.flat_map(|(host, all)| all.iter().map(move |between| (host, between))) {
            let ends = [("client", self.node(between.client)), ("server", self.node(between.server))];
            let fast = [(Path::Pair, between.pair), (Path::Tcp, between.tcp)].into_iter();
            let fast = fast.filter(|(_, count)| *count > 0).map(|(path, count)| (path.word(), count));
            let native = between.native.iter().map(|(reason, count)| (reason.word(), *count));
            samples.extend(fast.chain(native).map(|(way, count)| (vec![host, ends[0], ends[1], ("way", way)], count)));
        }
        self.counter(
            "slipway_fast_node_connections_total",
            "Connections by who asked, for whom, and which way they took: a path, or the reason why none.",
            samples,
        );
    }

    fn flows(&mut self, flows: &'a [Connection]) {
        let mut living: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
        for flow in flows {
            *living.entry((&flow.client, &flow.server, flow.path.word())).or_default() += 1;
        }
        let samples = living.into_iter().map(|((client, server, path), count)| {
            (vec![("client", client), ("server", server), ("path", path)], count)
        });
        self.gauge("slipway_fast_flows", "Connections on the fast path that live.", samples.collect::<Vec<_>>());
    }
}

/// The numbers of RDMA devices.
impl<'a> Page<'a> {
    fn verbs(&mut self, brokers: &'a [BrokerStatus]) {
        if brokers.is_empty() {
            return;
        }
        let nodes = || brokers.iter().flat_map(|broker| &broker.nodes);
        let each = |page: &Self, of: &dyn Fn(&NodeVerbs) -> u64| -> Vec<Sample<'a>> {
            nodes().map(|node| (vec![("node", page.node(Some(node.node)))], of(node))).collect()
        };
        let host = |page: &Self, broker: &BrokerStatus| {
            ("host", page.lab.hosts.get(broker.host).map_or("", |host| host.name.as_str()))
        };
        let up = brokers.iter().map(|broker| (vec![host(self, broker)], u64::from(broker.pid.is_some())));
        let up: Vec<Sample<'a>> = up.collect();
        let revoked: Vec<Sample<'a>> =
            brokers.iter().map(|broker| (vec![host(self, broker)], broker.revoked)).collect();
        let refused = brokers.iter().flat_map(|broker| broker.refused.iter().map(move |counted| (broker, counted)));
        let refused: Vec<Sample<'a>> = refused
            .map(|(broker, (reason, count))| (vec![host(self, broker), ("reason", reason.word())], *count))
            .collect();
        let (pairs, joined) = (
            each(self, &|node| node.queue_pairs as u64),
            each(self, &|node| node.links.iter().filter(|link| link.joined).count() as u64),
        );
        let (regions, registered) = (each(self, &|node| node.regions as u64), each(self, &|node| node.registered));
        let totals = || nodes().flat_map(|node| node.totals.iter().map(move |total| (node.node, total)));
        let ends = |page: &Self, node: NodeId, total: &PeerOfNode| {
            [("node", page.node(Some(node))), ("peer", page.node(total.peer_node))]
        };
        let asked = |page: &Self, of: &dyn Fn((&'static str, u64, u64)) -> u64| -> Vec<Sample<'a>> {
            let all = totals().flat_map(|(node, total)| total.traffic.operations().map(|one| (node, total, one)));
            all.map(|(node, total, one)| {
                let [node, peer] = ends(page, node, total);
                (vec![node, peer, ("operation", one.0)], of(one))
            })
            .collect()
        };
        let (operations, bytes) = (asked(self, &|one| one.1), asked(self, &|one| one.2));
        let heard = |page: &Self, of: &dyn Fn(&Traffic) -> u64| -> Vec<Sample<'a>> {
            totals().map(|(node, total)| (ends(page, node, total).to_vec(), of(&total.traffic))).collect()
        };
        let (receives, receive_bytes) = (heard(self, &|it| it.receives), heard(self, &|it| it.receive_bytes));
        self.gauge("slipway_fast_broker_up", "Whether a host has a broker of RDMA.", up);
        self.gauge("slipway_fast_queue_pairs", "Queue pairs of a node's programs.", pairs);
        self.gauge("slipway_fast_queue_pairs_joined", "Queue pairs that are joined with a peer's.", joined);
        self.gauge("slipway_fast_regions", "Regions of memory that a node's programs registered.", regions);
        self.gauge("slipway_fast_regions_bytes", "Bytes of these regions.", registered);
        self.counter(
            "slipway_fast_queue_pairs_refused_total",
            "Connections of queue pairs that were refused, by reason.",
            refused,
        );
        self.counter(
            "slipway_fast_queue_pairs_revoked_total",
            "Connections of queue pairs that were ended from outside.",
            revoked,
        );
        self.counter(
            "slipway_fast_verbs_operations_total",
            "Operations that a node asked for, as the node itself says.",
            operations,
        );
        self.counter("slipway_fast_verbs_bytes_total", "Bytes of these operations, as the node itself says.", bytes);
        self.counter(
            "slipway_fast_verbs_received_total",
            "Messages that a node received, as the node itself says.",
            receives,
        );
        self.counter(
            "slipway_fast_verbs_received_bytes_total",
            "Bytes of these messages, as the node itself says.",
            receive_bytes,
        );
    }
}

/// As values of labels are written.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::{Between, RouterState, Status};
    use super::*;

    /// Prometheus refuses a page that has a sample twice, and each host may have more pairs of nodes than it counts one by one.
    #[test]
    fn pairs_of_nodes_without_names_are_those_of_a_host() {
        let text = "hosts: 2\nnetworks: {net: fast}\nnodes: {n: {count: 2}}\n";
        let lab = slipway_lab::parse("lab.yaml", text, std::path::Path::new("/")).expect("it is right");
        let routers = [HostId(0), HostId(1)].map(|host| RouterReport {
            router: RouterState { host, pid: None, restarts: 0, trouble: None, free_options: true, told_again: true },
            listeners: 0,
            status: Some(Status {
                connections: Tally { between: vec![Between { pair: 7, ..Between::default() }], ..Tally::default() },
                ..Status::default()
            }),
            memory: None,
        });
        let page = metrics(&lab, &FastReport { routers: routers.into(), brokers: Vec::new() }, &[]);
        for host in ["host1", "host2"] {
            let labels = format!("host=\"{host}\",client=\"\",server=\"\",way=\"pair\"");
            assert!(page.contains(&format!("{labels}}} 7\n")), "{page}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
    }
}
