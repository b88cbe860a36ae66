//! A node that sends frames of every kind, mutated and made up, to everybody. Others' connections go on. Denied packets do not
//! arrive. Hosts, routes, neighbours and bridges are the same afterwards. Needs root and the packages of
//! `scripts/setup.sh test`.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use common::{Lab, Place, told};
use serde_json::{Value, json};

const FRAMES: &str = include_str!("threats/frames.py");
const FUZZ: &str = include_str!("threats/fuzz.py");

/// Answers on 5000, and notes every frame of the attacker's that the policy should have kept away. ARP and neighbour discovery
/// pass, whatever they say.
const SERVER: &str = r#"
import threading
def serve(c):
    try:
        while data := c.recv(4096): c.sendall(data)
    except OSError: pass
    c.close()
def watch(s):
    while True:
        data, at = s.recvfrom(65536)
        discovery = at[1] == 0x0806 or at[1] == 0x86dd and data[20:21] == b"\x3a" and data[54:55] in (b"\x85", b"\x87", b"\x88")
        if at[2] != 4 and not discovery and b"secret-fuzz" in data:
            with open("/tmp/came", "a") as came: came.write(data.hex() + "\n")
looks = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ANY))
open("/tmp/came", "w").close()
threading.Thread(target=watch, args=[looks], daemon=True).start()
listens = socket.create_server(("", 5000), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
while True: threading.Thread(target=serve, args=[listens.accept()[0]], daemon=True).start()
"#;

/// Exchanges a line with each of those named, by a new connection and by one of the network beneath, until its input ends. Says
/// how often it was answered.
const CLIENT: &str = r#"
count = 0
print("begins", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for name in sys.argv[1:]:
        for kind in (0, 262):
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM, kind) as c:
                c.settimeout(60)
                c.connect((socket.gethostbyname(name), 5000))
                c.sendall(b"a line that is whole")
                assert c.recv(20, socket.MSG_WAITALL) == b"a line that is whole"
                count += 1
print(count)
"#;

/// A lab with a fast network under a policy, one with tunnels and a flat one. `evil` is on all of them, and denied to `srv`.
fn lab<'a>(place: &'a Place, name: &str) -> Lab<'a> {
    let server = json!(["python3", "-c", format!("{FRAMES}\n{SERVER}")]);
    let lab = place.up(
        name,
        &format!(
            "hosts: 2\nnetworks: {{net: fast, plain: vxlan, flat: bridge}}\npolicy:\n  - {{from: evil, to: srv, verdict: deny}}\n  - {{from: srv, to: evil, verdict: deny}}\nnodes:\n  evil: {{host: host1}}\n  srv: {{host: host2, networks: [net], command: {server}}}\n  near: {{host: host1, networks: [net]}}\n  one: {{host: host1, networks: [plain]}}\n  two: {{host: host2, networks: [plain], command: {server}}}\n  three: {{host: host1, networks: [flat]}}\n  four: {{host: host2, networks: [flat], command: {server}}}\n"
        ),
    );
    for server in SERVERS {
        lab.listens(server, 5000);
    }
    lab
}

const SERVERS: [&str; 3] = ["srv", "two", "four"];
/// Clients and their servers.
const PAIRS: [(&str, &str); 3] = [("near", "srv"), ("one", "two"), ("three", "four")];

/// Routes, addresses, neighbours and bridge entries, by namespace: of hosts, switches, tunnels, the underlay and nodes.
fn state(lab: &Lab<'_>) -> BTreeMap<String, BTreeSet<String>> {
    let answer = lab.place.json(["inspect", &lab.name]);
    let mut found = BTreeMap::new();
    let anchor = &answer["state"]["anchor"]["pid"];
    for entry in std::fs::read_dir(format!("/proc/{anchor}/fd")).expect("the anchor lives") {
        let path = entry.expect("listed").path();
        let Ok(target) = std::fs::read_link(&path) else { continue };
        let target = target.to_string_lossy().into_owned();
        let machine = std::fs::metadata("/proc/self/ns/net").expect("there").ino();
        if !target.starts_with("net:") || target == format!("net:[{machine}]") || found.contains_key(&target) {
            continue;
        }
        let mut lines = BTreeSet::new();
        for words in [
            "ip -4 route show table all",
            "ip -6 route show table all",
            "ip -o address",
            "ip neigh show nud permanent",
            "bridge fdb show",
            "ip neigh show nud reachable nud stale nud delay nud probe",
        ] {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net={}", path.display())).args(words.split(' '));
            let output = command.output().expect("nsenter: install util-linux and iproute2");
            assert!(output.status.success(), "{}", told(&output));
            let text = String::from_utf8_lossy(&output.stdout);
            // A node asks for the address of those it answers, and remembers it for a while. The lab's entries are permanent.
            let lines_of = text.lines().filter(|line| !words.contains("stale") || !line.contains(" dev eth"));
            lines.extend(lines_of.map(|line| format!("{words}: {}", settled(line))));
        }
        found.insert(target, lines);
    }
    assert!(found.len() >= 7, "{:?}", found.keys());
    found
}

/// A line without what time alone changes.
fn settled(line: &str) -> String {
    let mut words = Vec::new();
    let mut all = line.split_whitespace();
    while let Some(word) = all.next() {
        match word {
            "expires" | "used" | "probes" | "ref" => drop(all.next()),
            "REACHABLE" | "STALE" | "DELAY" | "PROBE" => {}
            _ => words.push(word),
        }
    }
    words.join(" ")
}

/// Lines that came or went, but for neighbours and bridge entries of the lab's own devices.
fn news(lab: &Lab<'_>, before: &BTreeMap<String, BTreeSet<String>>, known: &BTreeSet<String>) -> Vec<String> {
    let after = state(lab);
    let is_known = |line: &String| {
        let is_entry = line.starts_with("bridge fdb") || line.contains("nud reachable");
        is_entry && line.split_whitespace().any(|word| known.contains(word))
    };
    let mut news = Vec::new();
    for (namespace, lines) in before {
        let Some(now) = after.get(namespace) else { continue };
        news.extend(now.difference(lines).filter(|line| !is_known(line)).map(|line| format!("{namespace} + {line}")));
        // Bridges between hosts forget addresses in time, and so do neighbour tables.
        let stays = |line: &&String| !is_known(line);
        news.extend(lines.difference(now).filter(stays).map(|line| format!("{namespace} - {line}")));
    }
    news
}

/// The Ethernet addresses of devices of the lab's hosts.
fn devices(before: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let lines = before.values().flatten().filter(|line| line.starts_with("bridge fdb"));
    lines.filter_map(|line| line.split_whitespace().nth(3)).map(str::to_owned).collect()
}

fn attacked(seconds: u32) {
    let seed = std::env::var("SLIPWAY_TEST_SEED")
        .map_or_else(|_| u64::from(rand::random::<u32>()), |seed| seed.parse().expect("SLIPWAY_TEST_SEED is a number"));
    println!("to see the same again: SLIPWAY_TEST_SEED={seed}");
    let place = Place::new();
    let labs = [lab(&place, "attacked"), lab(&place, "other")];
    let mut clients = Vec::new();
    for lab in &labs {
        for (client, server) in PAIRS {
            let program = format!("{FRAMES}\n{CLIENT}");
            let mut command = lab.program(client, ["python3", "-c", &program, server]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
            let mut says = BufReader::new(child.stdout.take().expect("piped"));
            let mut line = String::new();
            says.read_line(&mut line).expect("it begins");
            clients.push((client, child, says));
        }
    }
    let before = labs.each_ref().map(state);
    let known = before.each_ref().map(devices);
    let routers = labs.each_ref().map(Lab::router_processes);

    let answer = place.json(["inspect", &labs[0].name]);
    let interfaces = || {
        let nodes = answer["lab"]["nodes"].as_array().expect("listed").iter();
        nodes.flat_map(|node| node["interfaces"].as_array().expect("listed"))
    };
    let each = |key: &str| interfaces().map(|one| one[key].clone()).filter(|one| !one.is_null()).collect::<Vec<_>>();
    let vnis: Vec<&Value> = answer["lab"]["networks"]
        .as_array()
        .expect("listed")
        .iter()
        .map(|network| &network["vni"])
        .filter(|vni| !vni.is_null())
        .collect();
    let facts = json!({"macs": each("mac"), "ipv4": each("ipv4"), "ipv6": each("ipv6"), "vnis": vnis}).to_string();
    let program = format!("{FRAMES}\n{FUZZ}");
    let (seed, seconds) = (seed.to_string(), seconds.to_string());
    let sent = labs[0].exec("evil", ["python3", "-c", &program, &seed, &seconds, &facts]);
    println!("{} frames", sent.trim());
    assert!(sent.trim().parse::<u64>().expect("a number") > 1000);

    for (client, mut child, mut says) in clients {
        drop(child.stdin.take());
        let mut count = String::new();
        says.read_line(&mut count).expect("it says how often");
        assert!(child.wait().expect("it ends").success(), "{client} was answered each time");
        assert!(count.trim().parse::<u64>().expect("a number") > 0, "{client}");
    }
    for (number, lab) in labs.iter().enumerate() {
        assert_eq!(news(lab, &before[number], &known[number]), Vec::<String>::new(), "{}", lab.name);
        assert_eq!(lab.router_processes(), routers[number]);
        for (client, server) in PAIRS {
            assert!(lab.pings(client, server), "{client} to {server}");
        }
    }
    assert!(labs[0].is_silent("evil", "srv", "near"));
    let came: Vec<(&str, String)> = [&labs[0], &labs[1]]
        .iter()
        .flat_map(|lab| {
            if lab.name == labs[0].name { vec!["srv"] } else { SERVERS.to_vec() }
                .into_iter()
                .map(move |node| (lab, node))
        })
        .map(|(lab, node)| (node, lab.exec(node, ["cat", "/tmp/came"])))
        .filter(|(_, frames)| !frames.is_empty())
        .collect();
    assert_eq!(came, []);
}

#[test]
fn nothing_changes_under_attack() {
    attacked(5);
}

#[test]
#[ignore = "takes a minute: make test-long"]
fn nothing_changes_under_attack_for_a_minute() {
    attacked(60);
}
