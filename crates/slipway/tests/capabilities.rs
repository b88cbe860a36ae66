//! Nodes whose programs may change their own network (`capabilities`): what they can do there, and that no more comes of it.
//! Needs root and the packages of `scripts/setup.sh test`.

mod common;

use common::{Inventory, Lab, Place, as_before, await_that};
use serde_json::{Value, json};

const FRAMES: &str = include_str!("threats/frames.py");
const WATCHER: &str = include_str!("threats/watcher.py");
const NETLINK: &str = include_str!("threats/netlink.py");
const ADMINISTRATOR: &str = include_str!("threats/administrator.py");

const SEND_MARKER: &str = r#"
s = raw()
s.send(frame4(VICTIM, own(), packet4(17, udp(7, 5001, WORD), "10.64.9.9", VICTIM_IP)))
"#;

/// The addresses of `evil`, `friend` and `victim`, as programs in Python know them.
fn names(lab: &Lab<'_>) -> String {
    let [evil, friend, victim] = ["evil", "friend", "victim"].map(|node| lab.interface(node, 0));
    let ([evil, friend, victim], [friend_mac, victim_mac]) =
        ([&evil, &friend, &victim].map(|of| &of["ipv4"]), [&friend["mac"], &victim["mac"]]);
    format!(
        "EVIL_IP, FRIEND_IP, VICTIM_IP, FRIEND, VICTIM = {evil}, {friend}, {victim}, mac({friend_mac}), mac({victim_mac})"
    )
}

/// Has `evil` try everything against what it is held to. Gives what arrived at the victim of it, with its sender.
#[track_caller]
fn attack(lab: &Lab<'_>, number: usize) -> Vec<String> {
    let names = names(lab);
    let program = format!("{FRAMES}\n{names}\n{ADMINISTRATOR}\nattack(b'secret-{number}-')");
    lab.exec("evil", ["python3", "-c", &program]);
    // Once this has arrived, whatever was to arrive before it has.
    let marker = format!("marker-{number}-");
    lab.exec("friend", ["python3", "-c", &format!("{FRAMES}\n{names}\nWORD = b'{marker}'\n{SEND_MARKER}")]);
    let came = || lab.exec("victim", ["cat", "/tmp/came"]);
    await_that("the friend's frame arrives", || came().contains(&marker));
    came().lines().filter(|line| line.starts_with(&format!("secret-{number}-"))).map(str::to_owned).collect()
}

/// A lab of an administrator, its friend and its victim, which looks. The victim would let all pass too, if it could.
fn three<'a>(place: &'a Place, name: &str, driver: &str, more: &str) -> Lab<'a> {
    let watch = json!(["python3", "-c", format!("{FRAMES}\n{WATCHER}")]);
    let text = format!(
        "hosts: 2\nmechanism: wire\nnetworks: {{net: {driver}}}\nnodes:\n  evil: {{host: host1, capabilities: [NET_ADMIN, SYS_ADMIN]{more}}}\n  friend: {{host: host1}}\n  victim: {{host: host2, capabilities: [NET_ADMIN], command: {watch}}}\n"
    );
    let lab = place.up(name, &text);
    await_that("the victim looks", || {
        lab.program("victim", ["test", "-e", "/tmp/came"]).status().expect("started").success()
    });
    lab
}

#[test]
fn its_own_network_is_a_nodes_to_change_and_nothing_else() {
    let place = Place::new();
    let lab = place.up("rights", "nodes:\n  ruler: {capabilities: [NET_ADMIN, SYS_ADMIN]}\n  plain:\n  other:\n");
    let succeeds = |node: &str, words: &[&str]| {
        lab.program(node, words.iter().copied()).output().expect("started").status.success()
    };
    // In this order: each goes on from those before.
    for words in [
        "iptables -A INPUT -p icmp -j DROP",
        "ip6tables -A FORWARD -j DROP",
        "nft list ruleset",
        "tc qdisc add dev eth0 root tbf rate 1mbit burst 10k limit 100k",
        "tc qdisc del dev eth0 root",
        "ip link add pair type veth",
        "ip address add 10.99.0.1/24 dev eth0",
        "ip route add 10.98.0.0/16 via 10.64.0.2",
        "ip rule add from 10.99.0.1 table 7",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        assert!(succeeds("ruler", &words), "{words:?}");
        assert!(words[0] == "nft" || !succeeds("plain", &words), "{words:?} without a capability");
    }
    assert!(lab.is_silent("plain", "ruler", "other"), "it drops pings, as it was told");
    assert!(succeeds("ruler", &["iptables", "-F"]) && lab.pings("plain", "ruler"));
    // The rest is as in every node.
    for words in [
        "mount -t tmpfs none /mnt",
        "unshare --net true",
        "unshare --user true",
        "unshare --mount true",
        "hostname other",
        "sysctl -w net.ipv4.ip_forward=1",
        "sysctl -w kernel.hostname=other",
        "chroot /proc/1/root true",
        "cat /proc/1/environ",
        "mknod /tmp/null c 1 3",
        "nsenter --net=/proc/1/ns/net true",
        "tc filter add dev lo bpf object-file /dev/null",
        "modprobe dummy",
        "renice -n -5 1",
        "ip tuntap add tap7 mode tap",
    ] {
        assert!(!succeeds("ruler", &words.split(' ').collect::<Vec<_>>()), "{words}");
    }
    let status = lab.exec("ruler", ["grep", "-E", "^Cap(Prm|Eff|Bnd)", "/proc/self/status"]);
    assert!(status.lines().all(|line| line.ends_with("00000000a02435fb")), "{status}");
    // Ids are the same within, and programs may still be somebody else.
    let who = lab.place.run(["exec", "--user", "nobody", &lab.name, "ruler", "--", "id", "-u"]);
    assert_eq!(who.trim(), "65534");
}

/// Numbers and processes by which the kernel finds other network namespaces lead nowhere.
#[test]
fn a_node_reaches_no_other_network_namespace() {
    let place = Place::new();
    let lab = place.up("elsewhere", "nodes:\n  evil: {capabilities: [NET_ADMIN, SYS_ADMIN]}\n  other:\n");
    let look = r#"
found = {}
for there in range(8):
    of = number(TARGET_NETNSID, there)
    found[f"look {there}"] = ask(RTM_GETLINK, of + attribute(IFNAME, b"other.0\0"))
    found[f"make {there}"] = ask(RTM_NEWLINK, pair(b"mine", of), flags=5 | 0x600)
    found[f"take {there}"] = ask(RTM_DELLINK, of + attribute(IFNAME, b"mine\0"))
print(json.dumps(found))
"#;
    let program = format!("{NETLINK}\n{look}");
    let found: Value = serde_json::from_str(&lab.exec("evil", ["python3", "-c", &program])).expect("JSON");
    let refused = |answer: &Value| answer.as_str().is_some_and(|word| ["EPERM", "EACCES", "EINVAL"].contains(&word));
    assert!(found.as_object().expect("a map").values().all(refused), "{found}");

    // The attack is a real one: whoever has the capability everywhere gets into the namespace of the host's bridges.
    let pid = lab.row("evil")["pid"].as_i64().expect("it runs").to_string();
    let output = std::process::Command::new("nsenter")
        .args(["--target", &pid, "--net", "python3", "-c", &program])
        .output()
        .expect("nsenter and python3 are there");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(found.as_object().expect("a map").values().any(|answer| answer == "ok"), "{found}");

    // A program on its way into the node is in the node's list of processes before it is in the node's network.
    let hunt = r#"
import threading
name, hits, stop = b"prey\0", set(), False
def chase():
    seen = 1
    while not stop:
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            if pid != os.getpid():
                hits.add(ask(RTM_NEWLINK, pair(b"prey", number(NET_NS_PID, pid)), flags=5 | 0x600))
threads = [threading.Thread(target=chase) for _ in range(2)]
[one.start() for one in threads]
open("/tmp/hunts", "w").close()
sys.stdin.read()
stop = True
[one.join() for one in threads]
print(json.dumps(sorted(hits)))
"#;
    let machine = || std::fs::read_dir("/sys/class/net").expect("there").count();
    let before = machine();
    let mut hunter = lab
        .program("evil", ["python3", "-c", &format!("{NETLINK}\n{hunt}")])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    await_that("it hunts", || lab.program("evil", ["test", "-e", "/tmp/hunts"]).status().expect("started").success());
    for _ in 0..40 {
        lab.exec("evil", ["true"]);
    }
    drop(hunter.stdin.take());
    let said = String::from_utf8(hunter.wait_with_output().expect("it ends").stdout).expect("text");
    assert!(said.contains("EEXIST") || said.contains("ok"), "it found processes of the node: {said}");
    assert_eq!(machine(), before, "{said}");
    assert!(!std::path::Path::new("/sys/class/net/prey").exists());
}

/// Cuts, partitions, losses and the port's lock hold whatever the node does at its own end.
#[test]
fn a_node_lifts_nothing_that_it_is_held_to() {
    for driver in ["bridge", "vxlan", "fast"] {
        let place = Place::new();
        let lossy = ", networks: {net: {conditions: {loss: 30%, ingress: {loss: 20%}}}}";
        let lab = three(&place, "held", driver, lossy);
        let name = lab.name.as_str();
        let own = lab.interface("evil", 0)["mac"].as_str().expect("text").to_owned();

        let came = attack(&lab, 1);
        assert!(came.iter().any(|line| line.ends_with(&own)), "{driver}: as itself it is heard");
        assert!(came.iter().all(|line| line.ends_with(&own)), "{driver}: {came:?}");
        for (path, share) in [("evil->victim", 0.3), ("victim->evil", 0.2)] {
            let output = place.slipway(["--json", "verify", name, path, "--time", "3s"]).output().expect("it starts");
            let paths: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let checks = paths[0]["checks"].as_array().expect("a list");
            let loss = checks.iter().find(|check| check["what"] == "loss").expect("it is judged");
            assert_eq!((&loss["verdict"], &loss["asked"]), (&json!("met"), &json!(share)), "{driver}, {path}");
        }

        place.run(["set", name, "evil", "loss=none"]);
        place.run(["set", name, "evil", "loss=none", "--ingress"]);
        for (number, hold, release) in
            [(2, &["cut", name, "evil"][..], "heal"), (3, &["partition", name, "evil", "victim"], "join")]
        {
            place.run(hold.iter().copied());
            assert_eq!(attack(&lab, number), [""; 0], "{driver}: {hold:?}");
            let as_asked =
                if number == 3 { lab.pings("friend", "evil") } else { lab.is_silent("friend", "evil", "victim") };
            assert!(as_asked, "{driver}: {hold:?}");
            place.run([release, name]);
            assert!(lab.pings("victim", "evil"), "{driver}: after {release}");
        }
        place.run(["freeze", name, "evil"]);
        assert!(lab.is_silent("friend", "evil", "victim"), "{driver}: frozen");
        place.run(["thaw", name, "evil"]);
        assert!(lab.pings("friend", "evil"), "{driver}: thawed");
    }
}

/// The fast path does not pass by a filter of the node, and tells the reason.
#[test]
fn a_nodes_own_filter_holds_on_a_fast_network() {
    let place = Place::new();
    let listen = json!(["socat", "TCP-LISTEN:7000,fork,reuseaddr", "EXEC:cat"]);
    let lab = place.up(
        "filter",
        &format!(
            "networks: {{net: fast}}\nnodes:\n  ruler: {{capabilities: [NET_ADMIN], command: {listen}}}\n  a: {{command: {listen}}}\n  b:\n"
        ),
    );
    let connects = |from: &str, to: &str| {
        let words = ["socat", "-T3", "-u", "/dev/null", &format!("TCP:{to}:7000,connect-timeout=1")].map(str::to_owned);
        lab.program(from, words.iter().map(String::as_str)).output().expect("started").status.success()
    };
    lab.listens("ruler", 7000);
    lab.listens("a", 7000);
    let fast = lab.connections();
    assert!(connects("b", "ruler") && connects("ruler", "a"));
    assert_eq!(lab.connections(), fast, "these are on the network beneath");
    let left = &lab.routers()[0]["status"]["connections"]["native"]["capabilities"];
    assert!(left.as_u64().is_some_and(|count| count > 0), "{left}");
    lab.exec("ruler", ["iptables", "-A", "INPUT", "-p", "tcp", "--dport", "7000", "-j", "REJECT"]);
    assert!(!connects("b", "ruler") && connects("b", "a"));
}

/// Interfaces that a node has renamed, moved or deleted: tear-down, restart and others' links go on.
#[test]
fn a_node_that_breaks_its_interfaces_breaks_nothing_else() {
    for driver in ["bridge", "vxlan", "fast"] {
        let place = Place::new();
        let before = Inventory::of(&place);
        let text = format!(
            "hosts: 2\nmechanism: wire\nnetworks: {{net: {driver}}}\nnodes:\n  evil: {{host: host1, capabilities: [NET_ADMIN], networks: {{net: {{conditions: {{loss: 30%}}}}}}}}\n  a: {{host: host1}}\n  w: {{host: host1}}\n  b: {{host: host2}}\n"
        );
        let lab = place.up("breaks", &text);
        let name = lab.name.as_str();
        for deed in [
            &["ip", "link", "del", "eth0"][..],
            &["sh", "-c", "ip link set eth0 down && ip link set eth0 name lost && ip link add eth0 type bridge"],
            &["sh", "-c", "ip address flush dev eth0; ip link set eth0 address 02:00:00:00:00:01; nft add table x"],
        ] {
            lab.exec("evil", deed.iter().copied());
            place.run(["partition", name, "evil,a", "b"]);
            assert!(lab.is_silent("a", "b", "w"), "{driver}: {deed:?}");
            place.run(["join", name]);
            place.run(["cut", name, "evil"]);
            place.run(["heal", name]);
            place.run(["freeze", name, "evil", "a"]);
            place.run(["thaw", name, "evil", "a"]);
            place.run(["set", name, "evil", "a", "delay=1ms"]);
            place.run(["restore", name]);
            place.run(["stop", name, "a"]);
            place.run(["start", name, "a"]);
            assert!(lab.pings("a", "b"), "{driver}: {deed:?}");
            // Started again it has a network as at first, held to what it was held to.
            place.run(["kill", name, "evil"]);
            place.run(["start", name, "evil"]);
            let addresses = lab.exec("evil", ["ip", "-o", "-4", "address", "show", "eth0"]);
            assert!(addresses.contains(lab.interface("evil", 0)["ipv4"].as_str().expect("text")), "{addresses}");
            assert!(lab.exec("evil", ["nft", "list", "ruleset"]).is_empty());
            place.run(["set", name, "evil", "loss=none"]);
            assert!(lab.pings("b", "evil"), "{driver}: {deed:?}");
            place.run(["cut", name, "evil"]);
            assert!(lab.is_silent("b", "evil", "w"), "{driver}: {deed:?}");
            place.run(["heal", name]);
        }
        if driver == "fast" {
            lab.exec("evil", ["ip", "link", "del", "eth0"]);
            let rules = place.path().join("rules.yaml");
            std::fs::write(&rules, "- {from: evil, verdict: deny}\n").expect("written");
            place.run(["policy", name, rules.to_str().expect("text")]);
        }
        lab.exec("evil", ["sh", "-c", "ip link del eth0 2>&1 || true"]);
        lab.down();
        as_before(&place, &before, driver);
    }
}
