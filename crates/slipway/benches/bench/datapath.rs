//! Whether Slipway adds anything to the data path: the same topology made by Slipway and by hand with `ip`, measured in
//! turn. `cargo bench -p slipway --bench bench -- datapath`.
//!
//! Promise: SPECIFICATION.md, "Data path": ratios within 0.97 to 1.03.

use std::process::Command;

use super::common::{Slipway, Way, arg, compare, run as program};
use super::pair::Pair;
use slipway_measure::probe::{Iperf3, Probe, Sample};

const ROUNDS: u32 = 20;

/// What is measured, and the processors of server and client. Left to the scheduler, both fall now on one core, now on
/// two, where each wake-up costs several times as much: a difference that is not the network's.
const MEASURED: [(&str, [&str; 2]); 4] =
    [("iperf3", ["0", "1"]), ("netpipe", ["0", "0"]), ("netpipe", ["0", "1"]), ("ping", ["0", "0"])];

pub(super) fn run() {
    let slipway = Slipway::new();
    let hand = ByHand::new();
    for (driver, hosts) in [("bridge", 1), ("vxlan", 2)] {
        let name = format!("data-{driver}");
        let text = format!("hosts: {hosts}\nnetworks: {{net: {driver}}}\nnodes: {{n: {{count: 2}}}}\n");
        let file = slipway.lab(&name, &text);
        slipway.run(&["up", arg(&file)]);
        let words = |node| slipway.words(&name, node);
        let ours = Pair { server: words("n2"), client: words("n1"), address: "10.64.0.2".parse().expect("an address") };
        let theirs = if driver == "bridge" { hand.bridge() } else { hand.vxlan() };
        for (probe, cores) in MEASURED {
            let title = format!("{driver}: {probe}, processors {}", cores.join(" and "));
            let measure = |pair: &Pair| measure(&short(probe), &pair.pinned(cores));
            let mut ways = [Way::new("by hand", || measure(&theirs)), Way::new("slipway", || measure(&ours))];
            compare(&title, ROUNDS, &mut ways);
        }
        slipway.run(&["down", &name]);
    }
}

/// A second of iperf3 is enough: more rounds tell more than longer ones.
fn short(probe: &str) -> Probe {
    match probe {
        "iperf3" => Probe::Iperf3(Iperf3 { seconds: 1, ..Iperf3::default() }),
        other => Probe::builtin(other).expect("built in"),
    }
}

fn measure(probe: &Probe, pair: &Pair) -> Vec<Sample> {
    let samples = pair.measure(probe).unwrap_or_else(|error| panic!("{error}"));
    samples.into_iter().filter(|sample| sample.headline).collect()
}

/// The topologies as a person makes them. Namespaces have names of their own, and go with this value.
struct ByHand {
    prefix: String,
}

impl ByHand {
    fn new() -> Self {
        Self { prefix: format!("byhand{}-", std::process::id()) }
    }

    /// Two namespaces on a bridge in a third.
    fn bridge(&self) -> Pair {
        self.namespaces(&["b", "b1", "b2"]);
        self.ip("b", "link add br0 type bridge");
        self.ip("b", "link set br0 up");
        for node in 1..=2 {
            self.port("b", "br0", &format!("b{node}"), node, 1500);
        }
        self.pair("b2", "b1")
    }

    /// Two hosts on an underlay bridge, each with a bridge and a tunnel with static entries.
    fn vxlan(&self) -> Pair {
        self.namespaces(&["u", "h1", "h2", "v1", "v2"]);
        self.ip("u", "link add br0 type bridge");
        self.ip("u", "link set br0 up");
        for host in 1..=2 {
            let (name, other) = (format!("h{host}"), 3 - host);
            self.ip("u", &format!("link add p{host} type veth peer name uplink netns {}{name}", self.prefix));
            self.ip("u", &format!("link set p{host} master br0 up"));
            self.ip(&name, &format!("addr add 10.63.0.{host}/16 dev uplink"));
            self.ip(&name, "link set uplink up");
            self.ip(&name, "link add br0 type bridge");
            self.ip(&name, "link set br0 up");
            self.ip(&name, &format!("link add vx0 type vxlan id 1 local 10.63.0.{host} dstport 4789 nolearning"));
            self.ip(&name, "link set vx0 mtu 1450 master br0 up");
            let mut fdb = Command::new("bridge");
            let netns = format!("{}{name}", self.prefix);
            fdb.args([
                "-n",
                &netns,
                "fdb",
                "append",
                "00:00:00:00:00:00",
                "dev",
                "vx0",
                "dst",
                &format!("10.63.0.{other}"),
            ]);
            program(&mut fdb);
            self.port(&name, "br0", &format!("v{host}"), host, 1450);
        }
        self.pair("v2", "v1")
    }

    fn namespaces(&self, names: &[&str]) {
        for name in names {
            program(Command::new("ip").args(["netns", "add", &format!("{}{name}", self.prefix)]));
            self.ip(name, "link set lo up");
        }
    }

    fn port(&self, switch: &str, bridge: &str, node: &str, number: u8, mtu: u32) {
        let netns = format!("{}{node}", self.prefix);
        self.ip(switch, &format!("link add {node} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {netns}"));
        self.ip(switch, &format!("link set {node} master {bridge} up"));
        self.ip(node, &format!("addr add 10.64.0.{number}/16 dev eth0"));
        self.ip(node, "link set eth0 up");
    }

    fn ip(&self, namespace: &str, words: &str) {
        let netns = format!("{}{namespace}", self.prefix);
        program(Command::new("ip").args(["-n", &netns]).args(words.split(' ')));
    }

    fn pair(&self, server: &str, client: &str) -> Pair {
        let enter = |name: &str| vec!["nsenter".to_owned(), format!("--net=/run/netns/{}{name}", self.prefix)];
        Pair { server: enter(server), client: enter(client), address: "10.64.0.2".parse().expect("an address") }
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let listed = Command::new("ip").args(["netns", "list"]).output();
        let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        for name in
            listed.lines().filter_map(|line| line.split(' ').next()).filter(|name| name.starts_with(&self.prefix))
        {
            // Whatever cannot be removed here is visible in `ip netns`.
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}
