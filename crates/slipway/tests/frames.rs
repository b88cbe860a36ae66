//! Frames that a hostile node makes by hand: they reach no tunnel, no host, and no network that the node is not on. Needs root
//! and the packages of `scripts/setup.sh test`.

mod common;

use common::{Lab, Place, await_that};
use serde_json::{Value, json};

/// Python with which programs in nodes make frames.
const FRAMES: &str = include_str!("threats/frames.py");
const WATCHER: &str = include_str!("threats/watcher.py");

fn watcher() -> Value {
    json!(["python3", "-c", format!("{FRAMES}\n{WATCHER}")])
}

/// Runs a program after [`FRAMES`] in a node, and gives the JSON that it prints.
#[track_caller]
fn run(lab: &Lab<'_>, node: &str, program: &str) -> Value {
    let said = lab.exec(node, ["python3", "-c", &format!("{FRAMES}\n{program}")]);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn came(lab: &Lab<'_>, node: &str) -> Vec<String> {
    lab.exec(node, ["cat", "/tmp/came"]).lines().map(|line| line.split(' ').next().unwrap_or(line).to_owned()).collect()
}

/// Sends `frame`, made of each sender's and each target's host, to all that may be a host's own. Says who answered for a host.
const INJECT: &str = r#"
HOSTS = ["10.63.0.1", "10.63.0.2"]
s, me = raw(), own()
macs, answers = of_hosts(s, me, HOSTS)
inner = frame4(VICTIM, FRIEND, packet4(17, udp(7, 5001, b"secret-tunnel"), FRIEND_IP, VICTIM_IP))
for to in macs + GROUPS:
    for source in HOSTS:
        for target in HOSTS:
            if source == target: continue
            for vni in VNIS:
                try_send(s, frame4(to, me, packet4(17, udp(50000, TUNNEL, vxlan(vni, inner)), source, target)))
            quoted = packet4(17, udp(TUNNEL, TUNNEL, bytes(8)), target, source)
            for ours in (quoted, packet4(1, struct.pack("!BBHHH", 0, 0, 0, 1, 1), target, source)):
                try_send(s, frame4(to, me, icmp4(3, 4, struct.pack("!HH", 0, 552) + ours[:28], source, target)))
            try_send(s, frame4(to, me, icmp4(5, 1, ip4(source) + quoted[:28], source, target)))
print(json.dumps(answers))
"#;

/// From a node on each kind of network into tunnels of others, by way of both hosts.
#[test]
fn what_a_node_sends_gets_into_no_tunnel() {
    let mut found = Vec::new();
    for driver in ["vxlan", "fast", "bridge", "macvlan", "ovs", "host"] {
        let place = Place::new();
        let watch = watcher();
        let text = format!(
            "hosts: 2\nnetworks: {{mine: {driver}, other: vxlan, guarded: fast, open: host}}\nnodes:\n  evil: {{host: host1, networks: [mine]}}\n  mate: {{host: host2, networks: [mine]}}\n  friend: {{host: host1, networks: [other, guarded]}}\n  victim: {{host: host2, networks: [other, guarded], command: {watch}}}\n  here: {{host: host1, networks: [open]}}\n  there: {{host: host2, networks: [open]}}\n"
        );
        let lab = place.up("tunnel", &text);
        await_that("the victim looks", || {
            lab.program("victim", ["test", "-e", "/tmp/came"]).status().expect("started").success()
        });
        let state = place.json(["inspect", &lab.name]);
        let networks = state["lab"]["networks"].as_array().expect("listed");
        let vnis: Vec<&Value> = networks.iter().map(|network| &network["vni"]).filter(|vni| !vni.is_null()).collect();
        let mut answers = 0;
        for network in [1, 2] {
            let (friend, victim) = (lab.interface("friend", network), lab.interface("victim", network));
            let program = format!(
                "VICTIM, FRIEND, VICTIM_IP, FRIEND_IP, VNIS = {}, {}, {}, {}, {}\n{INJECT}",
                bytes(&victim["mac"]),
                bytes(&friend["mac"]),
                victim["ipv4"],
                friend["ipv4"],
                json!(vnis)
            );
            if driver == "host" {
                from_within(&lab, &program);
            } else {
                answers += run(&lab, "evil", &program).as_u64().expect("a number");
            }
        }
        // Once a ping is answered, the frames before it have arrived, or never will.
        assert!(driver == "host" || lab.pings("evil", "mate"));
        assert!(lab.pings("friend", "victim"));
        let arrived = came(&lab, "victim").len();
        let changed = |(node, other)| {
            let route = lab.exec(node, ["ip", "route", "get", other]);
            usize::from(route.contains("mtu") || route.contains("via"))
        };
        let changed: usize = [("here", "10.63.0.2"), ("there", "10.63.0.1")].into_iter().map(changed).sum();
        found.push((driver, answers, arrived, changed));
    }
    let nothing: Vec<_> = found.iter().map(|&(driver, ..)| (driver, 0, 0, 0)).collect();
    assert_eq!(found, nothing, "hosts that answered, frames that arrived, routes of hosts that changed");
}

/// A node that is in its host's own network sends datagrams to where tunnels would end.
fn from_within(lab: &Lab<'_>, program: &str) {
    let inner = program.split_once('\n').map(|(names, _)| names).expect("lines");
    let send = format!(
        "{inner}\ninner = frame4(VICTIM, FRIEND, packet4(17, udp(7, 5001, b'secret-tunnel'), FRIEND_IP, VICTIM_IP))\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor host in ('10.63.0.1', '10.63.0.2'):\n  for vni in VNIS:\n    try:\n      s.sendto(vxlan(vni, inner), (host, TUNNEL))\n      s.sendto(vxlan(vni, inner), (host, TUNNEL))\n    except OSError: pass\nprint(0)"
    );
    run(lab, "evil", &send);
}

/// Frames under addresses that are not the node's own, and one under its own after them.
const DISGUISES: &str = r#"
s, me = raw(), own()
for sender in (FRIEND, mac("02:de:ad:00:00:01"), bytes([2, 0xB0, 0, 0, 0, 101])):
    s.send(frame4(VICTIM, sender, packet4(17, udp(7, 5001, b"secret-name"), FRIEND_IP, VICTIM_IP)))
    s.send(frame4(b"\xff" * 6, sender, packet4(17, udp(7, 5001, b"secret-name"), FRIEND_IP, VICTIM_IP)))
s.send(frame4(VICTIM, me, packet4(17, udp(7, 5001, b"marker-own"), FRIEND_IP, VICTIM_IP)))
print(0)
"#;

#[test]
fn a_node_sends_under_its_own_ethernet_address() {
    for driver in ["bridge", "vxlan", "fast"] {
        let place = Place::new();
        let watch = watcher();
        let text = format!(
            "hosts: 2\nnetworks: {{net: {driver}}}\nnodes:\n  evil: {{host: host1}}\n  friend: {{host: host2}}\n  near: {{host: host1, command: {watch}}}\n  far: {{host: host2, command: {watch}}}\n"
        );
        let lab = place.up("names", &text);
        for victim in ["near", "far"] {
            await_that("the victim looks", || {
                lab.program(victim, ["test", "-e", "/tmp/came"]).status().expect("started").success()
            });
            let (friend, victim_at) = (lab.interface("friend", 0), lab.interface(victim, 0));
            let program = format!(
                "VICTIM, FRIEND, VICTIM_IP, FRIEND_IP = {}, {}, {}, {}\n{DISGUISES}",
                bytes(&victim_at["mac"]),
                bytes(&friend["mac"]),
                victim_at["ipv4"],
                friend["ipv4"],
            );
            run(&lab, "evil", &program);
            await_that("what it sends as itself arrives", || {
                came(&lab, victim).iter().any(|word| word == "marker-own")
            });
            assert!(came(&lab, victim).iter().all(|word| word == "marker-own"), "{driver}, to {victim}");
        }
        // Nobody's way has changed.
        assert!(lab.pings("near", "friend") && lab.pings("evil", "friend"));
    }
}

/// An Ethernet address as an expression of Python.
fn bytes(mac: &Value) -> String {
    match mac {
        Value::String(text) => format!("mac('{text}')"),
        _ => format!("bytes({mac})"),
    }
}

/// Advertises a way to everywhere, with this prefix. Once as a machine that has just come, once as its host part changes.
const ADVERTISE: &str = r#"
s, me = raw(), own()
link = socket.inet_ntop(socket.AF_INET6, bytes([0xfe, 0x80]) + bytes(6) + bytes([me[0] ^ 2]) + me[1:3] + b"\xff\xfe" + me[3:])
prefix = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 7200, 7200, 0) + ip6(PREFIX)
message = icmp6(134, 0, struct.pack("!BBHII", 64, 0, 1800, 0, 0) + b"\x01\x01" + me + prefix, link, "ff02::1")
s.send(frame6(mac("33:33:00:00:00:01"), me, message))
# Behind a header that says nothing.
options = bytes([58, 0, 1, 4, 0, 0, 0, 0])
longer = message[:4] + struct.pack("!HB", len(message) - 40 + 8, 0) + message[7:40] + options + message[40:]
s.send(frame6(mac("33:33:00:00:00:01"), me, longer))
print(0)
"#;

/// A node that asks for it hears gateways; the others hear nobody.
#[test]
fn who_is_no_gateway_advertises_nothing() {
    for driver in ["bridge", "vxlan", "fast"] {
        let place = Place::new();
        let text = format!(
            "hosts: 2\nnetworks: {{net: {driver}, back: {driver}}}\nnodes:\n  evil: {{host: host1, networks: [net]}}\n  deaf: {{host: host2, networks: [net]}}\n  hears: {{host: host2, networks: [net], sysctls: {{net.ipv6.conf.default.accept_ra: 1}}}}\n  way: {{host: host1, networks: [net, back], gateway: true}}\n"
        );
        let lab = place.up("advertises", &text);
        run(&lab, "evil", &format!("PREFIX = '2001:db8:bad::'\n{ADVERTISE}"));
        run(&lab, "way", &format!("PREFIX = '2001:db8:600d::'\n{ADVERTISE}"));
        let has = |node: &str, prefix: &str| {
            let all = lab.exec(node, ["ip", "-6", "-o", "address"]) + &lab.exec(node, ["ip", "-6", "route"]);
            all.contains(prefix)
        };
        await_that("the gateway is heard", || has("hears", "2001:db8:600d:"));
        assert!(!has("hears", "2001:db8:bad:"), "{driver}");
        for prefix in ["2001:db8:600d:", "2001:db8:bad:", "default via"] {
            assert!(!has("deaf", prefix), "{driver}: {prefix}");
        }
    }
}

/// Redirects that claim to be of the gateway, and errors that quote answers to pings.
const MISLEAD: &str = r#"
s, me = raw(), own()
reply = struct.pack("!BBHHH", 0, 0, 0, 1, 1)
reply6 = struct.pack("!BBHHH", 129, 0, 0, 1, 1)
for source in (OTHER_IP, WAY_IP, BEHIND_IP, ME_IP):
    for target in (OTHER_IP, BEHIND_IP):
        quoted = packet4(1, reply, VICTIM_IP, target)
        error = frame4(VICTIM, me, icmp4(3, 4, struct.pack("!HH", 0, 600) + quoted, source, VICTIM_IP))
        # The kernel strips tags of number 0, one within another.
        s.send(error[:12] + b"\x81\x00\x00\x00" + error[12:])
        s.send(error[:12] + b"\x88\xa8\x00\x00\x81\x00\x00\x00" + error[12:])
        s.send(frame4(VICTIM, me, icmp4(5, 1, ip4(ME_IP) + quoted, source, VICTIM_IP)))
        s.send(frame4(VICTIM, me, icmp4(3, 4, struct.pack("!HH", 0, 600) + quoted, source, VICTIM_IP)))
        s.send(frame4(VICTIM, me, packet4(1, icmp4(3, 4, struct.pack("!HH", 0, 600) + quoted, source, VICTIM_IP)[20:], source, VICTIM_IP, b"\x01" * 8)))
for source in (OTHER_IP6, ME_IP6):
    quoted = packet6(58, reply6, VICTIM_IP6, OTHER_IP6)
    s.send(frame6(VICTIM, me, icmp6(2, 0, struct.pack("!I", 1300) + quoted, source, VICTIM_IP6)))
    options = ip6(ME_IP6) + ip6(OTHER_IP6) + b"\x02\x01" + me
    s.send(frame6(VICTIM, me, icmp6(137, 0, bytes(4) + options, "fe80::1", VICTIM_IP6)))
s.send(frame4(VICTIM, me, packet4(17, udp(7, 5001, b"marker-end"), ME_IP, VICTIM_IP)))
print(0)
"#;

/// Ways and MTUs of a node that another tries to mislead, which may otherwise send it all.
fn misled(lab: &Lab<'_>) -> String {
    let name = |(name, node)| {
        let at = lab.interface(node, 0);
        format!("{name}, {name}_IP, {name}_IP6 = {}, {}, {}\n", bytes(&at["mac"]), at["ipv4"], at["ipv6"])
    };
    let names = [("OTHER", "friend"), ("WAY", "way"), ("ME", "evil"), ("VICTIM", "victim")].map(name).concat();
    let behind = lab.interface("behind", 1);
    let names = format!("{names}BEHIND_IP = {}\n", behind["ipv4"]);
    run(lab, "evil", &(names + MISLEAD));
    await_that("all has come", || came(lab, "victim").iter().any(|word| word == "marker-end"));
    let friend = lab.interface("friend", 0);
    let ways = [&behind["ipv4"], &friend["ipv4"], &friend["ipv6"]];
    ways.map(|to| lab.exec("victim", ["ip", "-o", "route", "get", to.as_str().expect("text")])).concat()
}

#[test]
fn a_node_does_not_change_how_others_send() {
    let policy = "policy: [{from: evil, to: friend, verdict: deny}]\n";
    for (driver, policy) in [("bridge", ""), ("vxlan", ""), ("fast", ""), ("fast", policy)] {
        let place = Place::new();
        let watch = watcher();
        let text = format!(
            "hosts: 2\nnetworks: {{net: {driver}, back: {driver}}}\n{policy}nodes:\n  evil: {{host: host1, networks: [net]}}\n  friend: {{host: host1, networks: [net]}}\n  victim: {{host: host2, networks: [net], command: {watch}}}\n  way: {{host: host1, networks: [net, back], gateway: true}}\n  behind: {{host: host1, networks: [back]}}\n"
        );
        let lab = place.up("misled", &text);
        await_that("the victim looks", || {
            lab.program("victim", ["test", "-e", "/tmp/came"]).status().expect("started").success()
        });
        assert!(lab.pings("victim", "behind") && lab.pings("victim", "friend"));
        let (way, evil) = (lab.interface("way", 0), lab.interface("evil", 0));
        let ways = misled(&lab);
        let via = format!("via {}", way["ipv4"].as_str().expect("text"));
        assert!(ways.contains(&via), "{ways}");
        for key in ["ipv4", "ipv6"] {
            assert!(!ways.contains(&format!("via {} ", evil[key].as_str().expect("text"))), "{driver}: {ways}");
        }
        assert!(!ways.contains("mtu"), "{driver}: {ways}");
    }
}

/// Asks a closed port: the kernel of the node there answers with an error.
const REFUSED: &str = r#"
said = []
for family, to in ((socket.AF_INET, TO), (socket.AF_INET6, TO6)):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(60)
    s.connect((to, 9))
    s.send(b"?")
    try: s.recv(1)
    except ConnectionRefusedError: said.append("refused")
print(json.dumps(said))
"#;

#[test]
fn errors_of_routers_and_of_who_was_asked_arrive() {
    for driver in ["bridge", "vxlan", "fast"] {
        let place = Place::new();
        let text = format!(
            "hosts: 2\nnetworks: {{net: {{driver: {driver}, mtu: 1450}}, back: {{driver: {driver}, mtu: 1300}}}}\nnodes:\n  near: {{host: host1, networks: [net]}}\n  peer: {{host: host2, networks: [net]}}\n  way: {{host: host1, networks: [net, back], gateway: true}}\n  far: {{host: host2, networks: [back]}}\n"
        );
        let lab = place.up("errors", &text);
        let address = |node: &str, key: &str| lab.interface(node, usize::from(node == "far"))[key].clone();
        for node in ["peer", "far"] {
            let (to, to6) = (address(node, "ipv4"), address(node, "ipv6"));
            let said = run(&lab, "near", &format!("TO, TO6 = {to}, {to6}\n{REFUSED}"));
            assert_eq!(said, json!(["refused", "refused"]), "{driver}, {node}");
        }
        for key in ["ipv4", "ipv6"] {
            let far = address("far", key);
            let far = far.as_str().expect("text");
            let said = |options: &[&str]| {
                let ping = [&["ping", "-c1", "-W60"], options, &[far]].concat();
                let output = lab.program("near", ping).output().expect("slipway can be started");
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
            let expired = said(&["-t1"]).to_lowercase();
            assert!(expired.contains("time to live exceeded") || expired.contains("hop limit"), "{driver}: {expired}");
            said(&["-Mdo", "-s1380"]);
            let way = lab.exec("near", ["ip", "-o", "route", "get", far]);
            assert!(way.contains("mtu 1300"), "{driver}: {way}");
        }
    }
}
