//! A lab's networks, up.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output};

use slipway_engine::network::{Fabric, NetworkError, NodeNet, configure_node, prepare_node};
use slipway_lab::id::{HostId, List, NodeId};
use slipway_lab::model::{DriverKind, Lab};
use slipway_sys::netlink::{Link, Netlink};
use slipway_sys::ns::{create_net, with_net};

pub(super) struct Up {
    pub(super) lab: Lab,
    pub(super) fabric: Fabric,
    nets: List<NodeId, OwnedFd>,
    place: tempfile::TempDir,
}

pub(super) fn parse(text: &str) -> Lab {
    slipway_lab::parse("test.yaml", text, Path::new("/"))
        .unwrap_or_else(|errors| panic!("the lab file is right: {errors:?}"))
}

pub(super) fn build(lab: &Lab) -> Result<Fabric, NetworkError> {
    let place = tempfile::tempdir().expect("a folder");
    Fabric::build(lab, place.path())
}

/// Pings of a witness of silence.
const WITNESSES: u64 = 10;

impl Up {
    pub(super) fn new(text: &str) -> Self {
        let lab = parse(text);
        let place = tempfile::tempdir().expect("a folder");
        let fabric = Fabric::build(&lab, place.path()).unwrap_or_else(|error| panic!("these tests need root: {error}"));
        let nets = lab.nodes.ids().map(|node| net(&lab, &fabric, node)).collect();
        let mut up = Self { lab, fabric, nets, place };
        let nodes: Vec<_> = up.nets.enumerate().map(|(node, net)| NodeNet { node, netns: net.as_fd() }).collect();
        for window in nodes.chunks(32) {
            up.fabric.attach(&up.lab, window).expect("attaches");
        }
        for node in up.lab.nodes.ids() {
            up.configure(node);
        }
        up.fabric.open(&up.lab).expect("opens");
        up
    }

    pub(super) fn configure(&self, node: NodeId) {
        self.inside(node, || configure_node(&self.lab, node)).unwrap_or_else(|error| panic!("configure: {error}"));
    }

    pub(super) fn inside<T>(&self, node: NodeId, action: impl FnOnce() -> T) -> T {
        with_net(self.nets[node].as_fd(), action).expect("enters")
    }

    /// Runs a program in a node.
    pub(super) fn run(&self, node: impl Into<NodeId>, command: &str) -> Output {
        let mut words = command.split(' ');
        let mut program = Command::new(words.next().expect("a program"));
        self.inside(node.into(), || program.args(words).output()).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Runs a program in a node and expects it to succeed.
    pub(super) fn must(&self, node: impl Into<NodeId>, command: &str) -> String {
        let node = node.into();
        let output = self.run(node, command);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "node {}: {command}: {}{}",
            self.lab.nodes[node].name,
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Whether the first packet is answered, however late a busy machine has it come.
    pub(super) fn ping(&self, from: impl Into<NodeId>, to: IpAddr) -> bool {
        self.run(from, &format!("ping -n -c 1 -W 60 {to}")).status.success()
    }

    /// Whether no answer of `to` comes to a node. By when the `witness` has answered often enough, which is asked afterwards on
    /// the same processor, one would have come.
    pub(super) fn is_silent(&self, from: impl Into<NodeId>, to: IpAddr, witness: IpAddr) -> bool {
        let from = from.into();
        let answers = || -> u64 {
            let text = self.must(from, "cat /proc/thread-self/net/snmp");
            let mut lines = text.lines().filter_map(|line| line.strip_prefix("Icmp: "));
            let (names, counts) = (lines.next().expect("names"), lines.next().expect("counts"));
            let found = names.split(' ').zip(counts.split(' ')).find(|&(name, _)| name == "InEchoReps");
            found.expect("it is counted").1.parse().expect("a number")
        };
        let before = answers();
        let is_answered = self.run(from, &format!("taskset -c 0 ping -n -c 1 -W 0.05 {to}")).status.success();
        for _ in 0..WITNESSES {
            self.must(from, &format!("taskset -c 0 ping -n -c 1 -W 60 {witness}"));
        }
        !is_answered && answers() == before + WITNESSES
    }

    /// Every node reaches every other on all networks that they share, at the first packet.
    pub(super) fn all_reach_all(&self) {
        for (from, source) in self.lab.nodes.enumerate() {
            for (to, target) in self.lab.nodes.enumerate().filter(|&(to, _)| to != from) {
                for one in &target.interfaces {
                    if !source.interfaces.iter().any(|own| own.network == one.network) {
                        continue;
                    }
                    for address in [Some(one.ipv4.into()), one.ipv6.map(IpAddr::from)].into_iter().flatten() {
                        assert!(
                            self.ping(from, address),
                            "{} reaches {} at {address}",
                            source.name,
                            self.lab.nodes[to].name
                        );
                    }
                }
            }
        }
    }

    pub(super) fn ipv4(&self, node: impl Into<NodeId>) -> IpAddr {
        self.lab.nodes[node.into()].interfaces[0].ipv4.into()
    }

    pub(super) fn ipv6(&self, node: impl Into<NodeId>) -> IpAddr {
        self.lab.nodes[node.into()].interfaces[0].ipv6.expect("it has one").into()
    }

    pub(super) fn links(&self, node: impl Into<NodeId>) -> BTreeMap<String, Link> {
        links(&self.nets[node.into()])
    }

    pub(super) fn switch_links(&self, host: HostId) -> BTreeMap<String, Link> {
        links(&self.fabric.switch_net(host).expect("it has one").try_clone_to_owned().expect("cloned"))
    }

    pub(super) fn place(&self) -> &Path {
        self.place.path()
    }

    /// Megabits a second of TCP between two nodes over one second.
    pub(super) fn iperf(&self, from: impl Into<NodeId>, to: impl Into<NodeId>) -> f64 {
        let to = to.into();
        let mut server = Command::new("iperf3");
        let address = self.ipv4(to).to_string();
        server.args(["--server", "--one-off", "--bind", &address, "--forceflush"]).stdout(std::process::Stdio::piped());
        let mut server = self.inside(to, || server.spawn()).expect("iperf3 is installed");
        let mut output = std::io::BufReader::new(server.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("listening") {
            line.clear();
            assert_ne!(std::io::BufRead::read_line(&mut output, &mut line).expect("readable"), 0, "iperf3 listens");
        }
        let json = self.must(from, &format!("iperf3 --client {address} --time 1 --json"));
        server.wait().expect("ends after one client");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        json["end"]["sum_received"]["bits_per_second"].as_f64().expect("a figure") / 1e6
    }
}

fn net(lab: &Lab, fabric: &Fabric, node: NodeId) -> OwnedFd {
    let of = &lab.nodes[node];
    if of.interfaces.iter().any(|interface| lab.networks[interface.network].driver == DriverKind::Host) {
        return fabric.host_net(of.host).try_clone_to_owned().expect("cloned");
    }
    let net = create_net().expect("a namespace");
    let proc = std::fs::File::open("/proc").expect("it is mounted");
    with_net(net.as_fd(), || prepare_node(lab, node, proc.as_fd())).expect("enters").expect("prepares");
    net
}

fn links(net: &OwnedFd) -> BTreeMap<String, Link> {
    let links = with_net(net.as_fd(), || Netlink::open()?.links().map_err(std::io::Error::other))
        .expect("enters")
        .expect("lists");
    links.into_iter().map(|link| (link.name.clone(), link)).collect()
}

/// Devices of the machine's own network namespace.
pub(super) fn machine_links() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").expect("listed");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
