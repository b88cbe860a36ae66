//! The graph of a lab's devices, held against the kernel's own account (`ip -d -j link`, `tc -j`). Needs root and the packages
//! of `scripts/setup.sh test`.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Lab, Place, told};
use serde_json::Value;

/// The kernel's devices of one namespace, by name.
type Devices = BTreeMap<String, Value>;

/// Runs a program of iproute2 in a namespace, and gives its JSON.
#[track_caller]
fn ip(net: &Path, words: &[&str]) -> Vec<Value> {
    let mut command = Command::new("nsenter");
    let output = command.arg(format!("--net={}", net.display())).args(words).output().expect("nsenter is installed");
    assert!(output.status.success(), "{command:?}: {}", told(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Every network namespace that the anchor or a node's init holds, by inode.
fn held(lab: &Value) -> BTreeMap<u64, PathBuf> {
    let anchor = lab["state"]["anchor"]["pid"].as_i64().expect("an anchor");
    let open =
        std::fs::read_dir(format!("/proc/{anchor}/fd")).expect("it lives").map(|entry| entry.expect("one").path());
    let nodes = lab["nodes"].as_array().expect("nodes").iter().filter_map(|node| node["pid"].as_i64());
    let own = nodes.chain([i64::from(std::process::id())]).map(|pid| PathBuf::from(format!("/proc/{pid}/ns/net")));
    let is_net = |path: &PathBuf| path.read_link().is_ok_and(|to| to.to_string_lossy().starts_with("net:"));
    let inode = |path: PathBuf| Some((path.metadata().ok()?.ino(), path));
    open.chain(own).filter(is_net).filter_map(inode).collect()
}

/// Devices that a namespace has before anybody makes one there, by kind: loopback, and what modules put everywhere.
fn is_made(device: &Value) -> bool {
    device["ifname"] != "lo" && device["ifindex"].as_u64() >= Some(100)
}

struct Bench {
    graph: Value,
    /// By the text of the namespace in the graph.
    kernel: BTreeMap<String, Devices>,
    paths: BTreeMap<String, PathBuf>,
}

impl Bench {
    fn new(lab: &Lab<'_>) -> Self {
        let answer = lab.place.json(["inspect", &lab.name]);
        let held = held(&answer);
        let graph = answer["graph"].clone();
        let mut bench = Self { graph, kernel: BTreeMap::new(), paths: BTreeMap::new() };
        for namespace in bench.graph["namespaces"].as_array().expect("namespaces") {
            let inode = namespace["inode"].as_u64().expect("a number");
            let path = held.get(&inode).unwrap_or_else(|| panic!("somebody holds {namespace}"));
            let devices = ip(path, &["ip", "-d", "-j", "link"]).into_iter();
            let space = namespace["space"].to_string();
            let named = devices.map(|device| (device["ifname"].as_str().expect("a name").to_owned(), device));
            bench.kernel.insert(space.clone(), named.collect());
            bench.paths.insert(space, path.clone());
        }
        bench
    }

    fn links(&self) -> &Vec<Value> {
        self.graph["links"].as_array().expect("links")
    }

    #[track_caller]
    fn kernels(&self, device: &Value) -> &Value {
        let name = device["name"].as_str().expect("a name");
        let devices = &self.kernel[&device["space"].to_string()];
        devices.get(name).unwrap_or_else(|| panic!("{device} is there: {:?}", devices.keys()))
    }

    /// Each device of the graph is one of the kernel's, of that kind, joined to the same others.
    fn all_are_there(&self) {
        for link in self.links() {
            let real = self.kernels(link);
            let info = &real["linkinfo"];
            for (ours, theirs) in [("index", "ifindex"), ("mtu", "mtu")] {
                assert!(link[ours].is_null() || link[ours] == real[theirs], "{ours} of {link}: {real}");
            }
            if let Some(bridge) = link["bridge"].as_str() {
                assert_eq!(real["master"], bridge, "{link}");
            } else {
                assert!(real["master"].is_null() || real["master"] == "ovs-system", "{link}: {real}");
            }
            if let Some(peer) = link["peer"].as_object() {
                assert_eq!(info["info_kind"], "veth", "{link}");
                let peer = &self.kernels(&Value::Object(peer.clone()));
                // The peer by name where it is in the same namespace, by index elsewhere.
                assert!(
                    real["link_index"] == peer["ifindex"] || real["link"] == peer["ifname"],
                    "{link} leads to its peer: {real}"
                );
            } else if let Some(parent) = link["parent"].as_object() {
                assert_eq!(info["info_kind"], "macvlan", "{link}");
                assert_eq!(real["link_index"], self.kernels(&Value::Object(parent.clone()))["ifindex"], "{link}");
            } else if let Some(tunnel) = link["tunnel"].as_object() {
                assert_eq!(info["info_kind"], "vxlan", "{link}");
                let data = &info["info_data"];
                assert_eq!(
                    (&data["id"], &data["local"], &data["port"]),
                    (&tunnel["vni"], &tunnel["local"], &tunnel["port"])
                );
                self.kernels(&tunnel["lower"]);
                let name = link["name"].as_str().expect("a name");
                let path = &self.paths[&link["space"].to_string()];
                let forwarding = ip(path, &["bridge", "-j", "fdb", "show", "dev", name]);
                let remotes: BTreeSet<&str> = forwarding.iter().filter_map(|entry| entry["dst"].as_str()).collect();
                let told = tunnel["remotes"].as_array().expect("remotes").iter().filter_map(Value::as_str);
                assert_eq!(remotes, told.collect(), "{link}");
            } else if link["kind"] != "ovs_bridge" {
                // The kernel's kind of a tap is "tun".
                let kind = if link["kind"] == "tap" { "tun" } else { "bridge" };
                assert_eq!(info["info_kind"], kind, "{link}");
            }
            self.has_its_programs(link);
        }
    }

    fn has_its_programs(&self, link: &Value) {
        let (name, path) = (link["name"].as_str().expect("a name"), &self.paths[&link["space"].to_string()]);
        let qdiscs = ip(path, &["tc", "-j", "qdisc", "show", "dev", name]);
        let real: Vec<&str> = qdiscs.iter().filter_map(|qdisc| qdisc["kind"].as_str()).collect();
        let mut found = BTreeSet::new();
        // An ingress qdisc shows its programs for either direction (`ingress_tcf_block`, net/sched/sch_ingress.c).
        let directions = if real.contains(&"ingress") { &["ingress"][..] } else { &["ingress", "egress"] };
        for &direction in directions {
            // Without a clsact, `tc` has nothing to show and says so by nothing.
            for filter in ip(path, &["tc", "-j", "filter", "show", "dev", name, direction]) {
                if let Some(program) = filter["options"]["bpf_name"].as_str() {
                    found.insert((direction.to_owned(), filter["pref"].as_u64(), program.to_owned()));
                }
            }
        }
        let programs = link["programs"].as_array().expect("programs").iter();
        let told = programs.map(|program| {
            let word = |key: &str| program[key].as_str().expect("a word").to_owned();
            (word("direction"), program["order"].as_u64(), word("name"))
        });
        assert_eq!(found, told.collect(), "programs of {link}");
        for qdisc in link["qdiscs"].as_array().expect("qdiscs") {
            assert!(real.contains(&qdisc.as_str().expect("a word")), "{qdisc} of {link}: {real:?}");
        }
    }

    /// Each device that somebody made in these namespaces is in the graph.
    fn nothing_else_is_there(&self) {
        let told: BTreeSet<(String, &str)> = self
            .links()
            .iter()
            .map(|link| (link["space"].to_string(), link["name"].as_str().expect("a name")))
            .collect();
        for (space, devices) in self.kernel.iter().filter(|(space, _)| *space != "\"machine\"") {
            for (name, device) in devices.iter().filter(|(name, device)| is_made(device) && !name.starts_with("ovs-")) {
                assert!(told.contains(&(space.clone(), name)), "{name} of {space} is in the graph: {device}");
            }
        }
    }
}

fn check(driver: &str) -> Value {
    let place = Place::new();
    let text = format!("hosts: 2\nnetworks: {{net: {driver}}}\nnodes: {{n: {{count: 4}}}}\n");
    let lab = place.up(driver, &text);
    let bench = Bench::new(&lab);
    bench.all_are_there();
    bench.nothing_else_is_there();
    // A node that was started again has devices of its own, and none of those before.
    place.run(["stop", &lab.name, "n2"]);
    place.run(["start", &lab.name, "n2"]);
    let again = Bench::new(&lab);
    again.all_are_there();
    again.nothing_else_is_there();
    assert_eq!(bench.links().len(), again.links().len());
    let picture = place.run(["graph", &lab.name, "--devices"]);
    for link in again.links() {
        assert!(picture.contains(link["name"].as_str().expect("a name")), "{picture}");
    }
    let one = place.json(["inspect", &lab.name, "n1"]);
    assert!(one["graph"]["links"].as_array().expect("links").iter().any(|link| link["name"] == "eth0"), "{one}");
    again.graph
}

fn count(graph: &Value, is: impl Fn(&Value) -> bool) -> usize {
    graph["links"].as_array().expect("links").iter().filter(|link| is(link)).count()
}

#[test]
fn of_a_bridge() {
    let graph = check("bridge");
    assert_eq!(count(&graph, |link| link["name"] == "br0"), 2);
    assert_eq!(count(&graph, |link| link["network"].is_null()), 5, "the underlay's bridge and two wires");
}

#[test]
fn of_open_vswitch() {
    let graph = check("ovs");
    assert_eq!(count(&graph, |link| link["name"] == "ovs0"), 2);
}

#[test]
fn of_macvlan() {
    let graph = check("macvlan");
    assert_eq!(count(&graph, |link| link["kind"] == "macvlan"), 4);
}

#[test]
fn of_vxlan() {
    let graph = check("vxlan");
    assert_eq!(count(&graph, |link| link["kind"] == "vxlan"), 2);
}

#[test]
fn of_a_fast_network() {
    let graph = check("fast");
    assert_eq!(count(&graph, |link| link["space"].get("node").is_some()), 4);
}

#[test]
fn of_links_under_conditions() {
    let place = Place::new();
    let text = "hosts: 1\nnetworks: {net: bridge}\nnodes: {n: {count: 4}}\n";
    let lab = place.up("shaped", text);
    place.run(["set", &lab.name, "n1", "rate=10mbit"]);
    place.run(["set", &lab.name, "n2", "delay=20ms", "loss=1%"]);
    place.run(["cut", &lab.name, "n3"]);
    let bench = Bench::new(&lab);
    bench.all_are_there();
    let own = |number: u64, name: &str| {
        let link = bench.links().iter().find(|link| link["space"]["node"] == number && link["name"] == name);
        link.unwrap_or_else(|| panic!("{name} of node {number} is in the graph")).clone()
    };
    assert_eq!(own(0, "eth0")["qdiscs"].as_array().expect("qdiscs").last().expect("one"), "tbf");
    assert_eq!(own(2, "eth0")["programs"].as_array().expect("programs").len(), 2);
}
