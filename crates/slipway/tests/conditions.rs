//! Conditions of links, through the command itself, on real namespaces. Times have lower bounds only: how late a busy machine
//! is says nothing about them.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Fault, Inventory, Lab, PATIENCE, Place, await_that, entries, told};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use slipway_sys::process::wait_for_end;

const TWO: &str = "nodes: {n: {count: 2}}\n";
/// For what is about the wire on any kernel.
const WIRE: &str = "mechanism: wire\nnodes: {n: {count: 3}}\n";

/// Round-trip times of pings that were answered, milliseconds, by their sequence numbers.
#[track_caller]
fn ping(lab: &Lab<'_>, from: &str, to: &str, options: &[&str]) -> Vec<(u32, f64)> {
    let words = ["ping", "-n"].into_iter().chain(options.iter().copied()).chain([to]);
    let output = lab.program(from, words).output().expect("slipway can be started");
    // 1: some were not answered.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", told(&output));
    assert!(output.stderr.is_empty(), "a lost packet is lost silently: {}", told(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let word =
        |line: &str, key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key)).map(str::to_owned);
    let answers = text.lines().filter(|line| !line.contains("DUP!"));
    answers
        .filter_map(|line| Some((word(line, "icmp_seq=")?.parse().ok()?, word(line, "time=")?.parse().ok()?)))
        .collect()
}

/// The shortest of three. (Of several packets, ping waits for the last no longer than the others took.)
#[track_caller]
fn shortest(lab: &Lab<'_>, from: &str, to: &str) -> f64 {
    let times: Vec<_> = (0..3).flat_map(|_| ping(lab, from, to, &["-c1", "-W60"])).collect();
    assert_eq!(times.len(), 3, "{from} reaches {to}: {times:?}");
    times.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min)
}

/// One interface of `slipway inspect`.
#[track_caller]
fn link(lab: &Lab<'_>, node: &str, slot: usize) -> Value {
    let answer = lab.place.json(["inspect", &lab.name, node]);
    let links = answer["links"]["interfaces"].as_array().expect("a list").clone();
    links.into_iter().find(|link| link["slot"] == slot).unwrap_or(Value::Null)
}

fn set<'a>(lab: &'a Lab<'_>, words: &[&'a str]) -> String {
    lab.place.run(["set", &lab.name].into_iter().chain(words.iter().copied()))
}

/// The process that carries the lab's frames.
fn wire_of(lab: &Lab<'_>) -> Option<i32> {
    let anchor = lab.place.json(["inspect", &lab.name])["state"]["anchor"]["pid"].as_i64().expect("a pid");
    let of = |pid: i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_child = |pid: &i32| {
        let stat = of(*pid);
        stat.contains("(slipway-wire)")
            && stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok()) == Some(anchor)
    };
    let mut pids = entries("/proc".as_ref()).filter_map(|path| path.file_name()?.to_str()?.parse().ok());
    pids.find(is_child)
}

#[test]
fn every_driver_delays_cuts_and_heals() {
    for driver in ["bridge", "ovs", "macvlan", "vxlan"] {
        for hosts in ["", "hosts: 2\n"] {
            let place = Place::new();
            let lab = place.up("drivers", &format!("{hosts}networks: {{net: {driver}}}\nnodes: {{n: {{count: 3}}}}\n"));
            let what = format!("{driver} {hosts}");
            await_that("it is quick without any delay", || shortest(&lab, "n1", "n2") < 20.0);
            set(&lab, &["n1:eth0", "delay=20ms"]);
            assert!(shortest(&lab, "n1", "n2") >= 20.0, "{what}: what n1 sends");
            set(&lab, &["n1:eth0/ingress", "delay=15ms"]);
            assert!(shortest(&lab, "n1", "n2") >= 35.0, "{what}: what n1 receives, too");
            assert!(shortest(&lab, "n2", "ip6-n1") >= 35.0, "{what}: both ways, IPv6 too");
            place.run(["cut", &lab.name, "n2:eth0"]);
            assert!(lab.is_silent("n1", "n2", "n3"), "{what}: cut");
            assert_eq!(lab.row("n2")["links"], serde_json::json!(["cut"]), "{what}");
            place.run(["heal", &lab.name]);
            assert!(shortest(&lab, "n1", "n2") >= 35.0, "{what}: healed, and as it was before");
            place.run(["restore", &lab.name]);
            assert!(lab.pings("n1", "n2"), "{what}");
            assert_eq!(link(&lab, "n1", 0)["egress"]["mechanism"], "native", "{what}");
        }
    }
}

#[test]
fn the_lab_file_holds_from_the_first_packet_on_and_after_a_stop() {
    let place = Place::new();
    let text = "networks: {net: {driver: bridge, conditions: {delay: 5ms}}}
nodes:
  a: {command: ping -n -c1 -W60 b}
  b: {networks: {net: {conditions: {ingress: {delay: 10ms}}}}}
";
    let lab = place.up("file", text);
    await_that("the first packet is answered", || lab.row("a")["program"]["code"] == 0);
    let first = place.run(["logs", &lab.name, "a"]);
    let time = first.split("time=").nth(1).and_then(|rest| rest.split(' ').next()).expect("answered");
    assert!(time.parse::<f64>().expect("a time") >= 20.0, "{first}");
    let name = &lab.name;
    place.run(["stop", name, "b", "--grace", "0s"]);
    place.run(["start", name, "b"]);
    assert!(shortest(&lab, "a", "b") >= 20.0, "a node that was stopped has its conditions again");
    let b = link(&lab, "b", 0);
    assert_eq!((&b["egress"]["now"]["delay"], &b["ingress"]["now"]["delay"]), (&"5ms".into(), &"10ms".into()));
}

#[test]
fn setting_one_key_leaves_the_others() {
    let place = Place::new();
    let text = format!("networks: {{net: {{driver: bridge, conditions: {{delay: 20ms}}}}}}\n{WIRE}");
    let lab = place.up("keys", &text);
    let now = || link(&lab, "n1", 0)["egress"]["now"].clone();
    set(&lab, &["n1:eth0", "loss=0.5%"]);
    assert_eq!(now(), serde_json::json!({"delay": "20ms", "loss": "0.5%"}));
    set(&lab, &["n1", "loss=none", "jitter=1ms"]);
    assert_eq!(now(), serde_json::json!({"delay": "20ms", "jitter": "1ms"}));
    let asked = link(&lab, "n1", 0)["egress"]["asked"].clone();
    assert_eq!(asked, serde_json::json!({"delay": "20ms"}), "what the file says is shown beside it");
    assert_eq!(link(&lab, "n2", 0)["egress"]["now"], serde_json::json!({"delay": "20ms"}), "others stay");
    assert!(
        place
            .run(["inspect", &lab.name, "n1"])
            .contains("eth0 sends delay=20ms jitter=1ms (wire: the lab file asks for it; in the lab file: delay=20ms)")
    );

    let name = lab.name.as_str();
    let before = place.json(["inspect", name])["links"].clone();
    place.run(["set", "--dry-run", name, "n1:eth0", "delay=1s"]);
    for (code, words) in [
        (1, &["n1:eth0", "reorder=1%", "delay=none"][..]),
        (2, &["n1:eth0", "dely=20ms"]),
        (2, &["n1:eth0", "delay=20"]),
        (2, &["n1:eth7", "delay=20ms"]),
        (2, &["n1:eth0", "cpu=50%"]),
        (2, &["n1", "cpu=50%", "delay=1ms"]),
        (2, &["n1"]),
        (4, &["n9:eth0", "delay=20ms"]),
    ] {
        let error = place.fails(code, ["set", name].iter().chain(words));
        assert!(error.contains("Hint: "), "{words:?}: {error}");
    }
    assert_eq!(place.json(["inspect", name])["links"], before, "what is wrong changes nothing");
}

#[test]
fn what_has_no_conditions_has_nothing_put_in_its_way() {
    let place = Place::new();
    let lab = place.up("native", TWO);
    let doctor = place.json(["doctor"]);
    let checks = doctor["checks"].as_array().expect("a list");
    let has_netem = checks.iter().any(|check| check["subject"] == "links by netem" && check["verdict"] == "good");
    let queues = || lab.exec("n1", ["tc", "qdisc", "show", "dev", "eth0"]);
    let before = queues();
    assert!(!before.contains("clsact"), "{before}");
    assert_eq!(wire_of(&lab), None, "nothing has needed it");
    place.run(["cut", &lab.name, "n1"]);
    assert!(queues().contains("clsact"));
    assert_eq!(wire_of(&lab), None, "a cut does not");
    place.run(["heal", &lab.name, "n1"]);
    assert_eq!(queues(), before);
    set(&lab, &["n1", "rate=10mbit"]);
    assert!(queues().contains("tbf"));
    set(&lab, &["n1", "delay=1ms"]);
    let mechanism = if has_netem { "netem" } else { "wire" };
    assert_eq!(link(&lab, "n1", 0)["egress"]["mechanism"], mechanism);
    assert_eq!((queues().contains("netem"), wire_of(&lab).is_some()), (has_netem, !has_netem));
    set(&lab, &["n1", "rate=none", "delay=none"]);
    assert_eq!(queues(), before);
    set(&lab, &["n1", "--ingress", "rate=10mbit"]);
    assert!(queues().contains("clsact"), "to a queue on a detour");
    assert!(lab.pings("n2", "n1"));
    set(&lab, &["n1", "--ingress", "rate=none"]);
    assert_eq!(queues(), before);
    assert!(!lab.exec("n1", ["ls", "/sys/class/net"]).contains("eth0-shape"));
}

/// However long the delay, packets under way do not count; those that wait for the rate do.
#[test]
fn a_queue_is_apart_from_what_is_delayed() {
    let place = Place::new();
    let lab = place
        .up("queue", "networks: {net: {conditions: {delay: 1s, rate: 1kbit, queue: 3}}}\nnodes: {n: {count: 2}}\n");
    // A packet takes eleven seconds.
    let burst = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor _ in range(10): s.sendto(bytes(1400), ('n2', 9))";
    lab.exec("n1", ["python3", "-c", burst]);
    let count = |of: &str| link(&lab, "n1", 0)["egress"]["statistics"][of].as_u64().expect("counted");
    // The kernel of the node may have something to say too.
    await_that("the wire has read them", || count("received") >= 10);
    assert_eq!(link(&lab, "n1", 0)["egress"]["mechanism"], "wire");
    assert_eq!((count("waiting"), count("over_limit")), (3, count("received") - 3 - count("sent")));
    // At a thousand times the rate, more are under way than may wait.
    set(&lab, &["n1", "n2", "rate=1mbit", "delay=100ms"]);
    let answers = ping(&lab, "n1", "n2", &["-c20", "-i0.01", "-w60"]);
    assert_eq!(answers.len(), 20);
    lab.down();
}

/// The first thousand packets that were answered of those that n1 sent to n2: however late the last ones are, ping waits for
/// them, and sends more meanwhile.
#[track_caller]
fn first_thousand(lab: &Lab<'_>) -> BTreeSet<u32> {
    let answers = ping(lab, "n1", "n2", &["-c1000", "-i0.002", "-w60"]);
    let answers: BTreeSet<u32> = answers.into_iter().map(|(sequence, _)| sequence).collect();
    assert_eq!(answers.len(), 1000);
    answers
}

/// Of packets of which three in ten are lost: 1429 and 3.89 standard deviations of the negative binomial distribution: 99.99 %.
#[track_caller]
fn is_seven_in_ten(answers: &BTreeSet<u32>) {
    let last = answers.last().expect("there are some");
    assert!((1333..=1525).contains(last), "1000 of {last} get through");
}

#[test]
fn losses_are_as_many_as_asked_and_the_same_for_the_same_seed() {
    let text = |seed: u32| format!("seed: {seed}\nnetworks: {{net: {{driver: bridge, ipv6: false}}}}\n{WIRE}");
    let place = Place::new();
    let answered = |seed| -> BTreeSet<u32> {
        let lab = place.up("loss", &text(seed));
        set(&lab, &["n1:eth0", "loss=100%"]);
        assert!(lab.is_unheard("n1", "n2", "n3"), "all are lost");
        assert_eq!(link(&lab, "n1", 0)["egress"]["mechanism"], "gate");
        set(&lab, &["n1:eth0", "loss=30%"]);
        let answers = first_thousand(&lab);
        is_seven_in_ten(&answers);
        let counts = link(&lab, "n1", 0)["egress"]["statistics"].clone();
        let count = |what: &str| counts[what].as_u64().expect("a count");
        // Some may have been on their way when the last answer came.
        let lost = u64::from(*answers.last().expect("there are some")) - 1000;
        assert!((lost..=count("received") - 1000).contains(&count("lost")), "{counts}, {lost} before the last answer");
        lab.down();
        answers
    };
    let (first, again, other) = (answered(7), answered(7), answered(8));
    assert_eq!(first, again, "the same seed and the same packets give the same losses");
    assert_ne!(first, other);
}

#[test]
fn a_partition_parts_its_groups_and_nobody_else() {
    let place = Place::new();
    let lab = place.up("partition", "nodes: {n: {count: 4}, m: }\n");
    // `m` is in no group, and answers all.
    let witness = |to: &str| if to.starts_with("ip6-") { "ip6-m" } else { "m" };
    let is_so = |from, to, reaches| if reaches { lab.pings(from, to) } else { lab.is_silent(from, to, witness(to)) };
    let name = lab.name.as_str();
    place.run(["partition", name, "n1,n2", "n3,n4"]);
    for (from, to, expected) in [
        ("n1", "n2", true),
        ("n3", "ip6-n4", true),
        ("n1", "n3", false),
        ("n4", "ip6-n2", false),
        ("m", "n1", true),
        ("n4", "m", true),
    ] {
        assert!(is_so(from, to, expected), "{from} to {to}");
    }
    assert_eq!(lab.row("n1")["links"], serde_json::json!(["parted"]));
    assert!(place.run(["inspect", name, "n1"]).contains("parted: n1, n2 | n3, n4"));
    place.run(["partition", name, "n1", "rest"]);
    assert!(lab.is_unheard("n1", "n2", "m") && lab.is_silent("m", "n1", "n2") && lab.pings("n3", "n4"), "they add up");
    place.run(["join", name]);
    assert!(lab.pings("n1", "n3") && lab.pings("m", "ip6-n1"));
    assert_eq!(lab.row("n1")["links"], serde_json::json!([]));
    assert!(place.fails(1, ["partition", name, "n1,n2", "n2"]).contains("n2 is in two groups"));
    assert!(place.fails(2, ["partition", name, "n1"]).contains("two groups"));
    assert!(place.fails(4, ["partition", name, "n1", "q*"]).contains("no node fits"));
}

#[test]
fn rules_between_nodes_and_a_matrix_hold_by_peer() {
    let place = Place::new();
    let matrix = "ms,a,b,c\na,,10,20\nb,30,,-\nc,40,50,\n";
    fs::write(place.path().join("delays.csv"), matrix).expect("the matrix can be written");
    let text = "networks: {net: {driver: bridge}, other: bridge}
nodes: {a: {networks: [net, other]}, b: {networks: [net, other]}, c: }
links:
  - {matrix: delays.csv, network: net}
  - {from: c, to: b, delay: 60ms}
";
    let lab = place.up("matrix", text);
    for (from, to, delay) in [("a", "b", 40.0), ("a", "c", 60.0), ("b", "c", 60.0), ("c", "a", 60.0)] {
        assert!(shortest(&lab, from, to) >= delay, "{from} to {to}");
        assert!(shortest(&lab, from, &format!("ip6-{to}")) >= delay, "{from} to {to}, IPv6");
    }
    let peers = |node: &str, slot| -> Vec<(i64, Value)> {
        let link = link(&lab, node, slot);
        let peers = link["egress"]["peers"].as_array().cloned().unwrap_or_default();
        peers.iter().map(|peer| (peer["node"].as_i64().expect("a node"), peer["conditions"]["delay"].clone())).collect()
    };
    assert_eq!(peers("a", 0), [(1, "10ms".into()), (2, "20ms".into())]);
    assert_eq!(peers("b", 0), [(0, "30ms".into())], "`-` says nothing");
    assert_eq!(peers("c", 0), [(0, "40ms".into()), (1, "60ms".into())], "a rule holds over a matrix");
    assert_eq!(peers("a", 1), [], "another network is not meant");

    set(&lab, &["a->b", "loss=100%", "--network", "net"]);
    assert!(lab.is_silent("a", "b", "c"));
    assert!(shortest(&lab, "a", "c") >= 60.0, "only between those two");
    set(&lab, &["a", "--to", "b", "loss=none", "--network", "net"]);
    assert!(shortest(&lab, "a", "b") >= 40.0, "and the delay is as it was");

    fs::write(place.path().join("delays.csv"), "ms,a,q\na,,10\n").expect("the matrix can be written");
    let file = place.file("wrong", text);
    let before = Inventory::of(&place);
    let error = place.fails(2, ["up".as_ref(), file.as_os_str()]);
    assert!(error.contains("delays.csv, line 1, column 6: ") && error.contains("Hint: "), "{error}");
    assert_eq!(Inventory::of(&place), before);
}

/// What iperf3 says of a transfer from `from` to `to`, while `meanwhile` happens.
#[track_caller]
fn transfer(lab: &Lab<'_>, from: &str, to: &str, seconds: &str, meanwhile: impl FnOnce()) -> Value {
    // The one before it may not have ended yet.
    await_that("no server listens", || lab.exec(to, ["ss", "-Hltn", "sport", "=", "5201"]).is_empty());
    lab.exec(to, ["iperf3", "-s", "-1", "-D"]);
    lab.listens(to, 5201);
    let mut client = lab.program(from, ["iperf3", "-J", "-t", seconds, "-c", to]);
    let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slipway can be started");
    meanwhile();
    let output = client.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", told(&output));
    serde_json::from_slice(&output.stdout).expect("iperf3 writes JSON")
}

#[test]
fn a_rate_is_not_exceeded_by_either_mechanism() {
    let place = Place::new();
    for (text, mechanism) in [(TWO, "tbf"), (WIRE, "wire")] {
        let lab = place.up(mechanism, text);
        for (words, node, way, most) in [
            (&["n1:eth0", "rate=20mbit"][..], "n1", "egress", 20e6),
            (&["n2:eth0/ingress", "rate=10mbit"], "n2", "ingress", 10e6),
        ] {
            set(&lab, words);
            assert_eq!(link(&lab, node, 0)[way]["mechanism"], mechanism, "{words:?}");
            let begun = Instant::now();
            let answer = transfer(&lab, "n1", "n2", "2", || ());
            // By this test's clock: a server that looks at its own late counts what came before.
            let bits = answer["end"]["sum_received"]["bytes"].as_f64().expect("bytes") * 8.0;
            let rate = bits / begun.elapsed().as_secs_f64();
            assert!(rate > 0.0 && rate <= most, "{mechanism} {words:?}: {rate} bit/s");
        }
    }
}

#[test]
fn netem_does_what_it_is_asked_or_is_refused() {
    let place = Place::new();
    let text = "mechanism: netem\nnodes: {n: {count: 2}}\n";
    let lab = place.up("netem", text);
    let set = |words: &[&str]| {
        let mut command = place.slipway(["set", &lab.name].iter().chain(words));
        let output = command.output().expect("slipway can be started");
        (output.status.code(), told(&output))
    };
    let doctor = place.json(["doctor"]);
    let checks = doctor["checks"].as_array().expect("a list");
    let netem = checks.iter().find(|check| check["subject"] == "links by netem").expect("it is looked at");
    let (code, told) = set(&["n1->n2", "delay=1ms"]);
    assert!(code == Some(1) && told.contains("use netem for conditions between nodes"), "{told}");
    if netem["verdict"] == "good" {
        assert_eq!(set(&["n1", "delay=20ms"]).0, Some(0));
        assert!(shortest(&lab, "n1", "n2") >= 20.0);
        assert_eq!(set(&["n1", "--ingress", "delay=20ms", "duplicate=10%"]).0, Some(0));
        assert!(shortest(&lab, "n1", "n2") >= 40.0);
        assert_eq!(link(&lab, "n1", 0)["ingress"]["mechanism"], "netem");
        assert_eq!(set(&["n1", "loss=30%"]).0, Some(0));
        is_seven_in_ten(&first_thousand(&lab));
    } else {
        let (code, told) = set(&["n1", "delay=20ms"]);
        assert!(code == Some(1) && told.contains("the kernel has no netem") && told.contains("Hint: "), "{told}");
        assert!(lab.pings("n1", "n2"), "and nothing has changed");
        let file = place
            .file("netem-file", &format!("networks: {{net: {{driver: bridge, conditions: {{delay: 1ms}}}}}}\n{text}"));
        let refusal = place.fails(3, ["up".as_ref(), file.as_os_str()]);
        assert!(refusal.contains("n1:eth0: use netem for egress"), "{refusal}");
    }
}

#[test]
fn conditions_change_under_a_connection_without_breaking_it() {
    let place = Place::new();
    let lab = place.up("live", WIRE);
    let changes: [&[&str]; 9] = [
        &["n1:eth0", "delay=5ms"],
        &["n1:eth0", "rate=50mbit", "loss=0.5%"],
        &["n2:eth0/ingress", "delay=3ms", "jitter=1ms"],
        &["n1->n2", "delay=15ms"],
        &["n1:eth0", "delay=none", "loss=none"],
        &["n1->n2", "delay=none"],
        &["n1:eth0", "rate=none"],
        &["n2:eth0/ingress", "delay=none", "jitter=none"],
        &["n1:eth0", "corrupt=0.1%", "duplicate=1%"],
    ];
    let answer = transfer(&lab, "n1", "n2", "3", || {
        for words in changes {
            set(&lab, words);
        }
    });
    assert!(answer.get("error").is_none(), "{answer}");
    assert!(answer["end"]["sum_received"]["bytes"].as_u64().expect("bytes") > 0);
}

#[test]
fn with_a_dead_wire_its_links_are_silent_until_it_is_started_again() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let lab = place.up("dead", WIRE);
    set(&lab, &["n1:eth0", "delay=1ms"]);
    assert!(lab.pings("n1", "n2"));
    let wire = wire_of(&lab).expect("it runs");
    kill_process(Pid::from_raw(wire).expect("a pid"), Signal::KILL).expect("it is there");
    let name = lab.name.as_str();
    let state = || place.json(["inspect", name])["links"]["wire"].clone();
    // The anchor looks when it is told, which is at once; that it has looked is what is waited for.
    while state() != "dead" {
        std::thread::yield_now();
    }
    assert!(lab.is_unheard("n1", "n2", "n3"), "no condition is bypassed");
    assert!(lab.pings("n2", "n3"), "links that do not take it are as they were");
    assert_eq!(lab.row("n1")["links"], serde_json::json!(["conditions", "silent"]));
    assert!(place.run(["inspect", name, "n1"]).contains("the wire is dead"));
    set(&lab, &["n3:eth0", "delay=2ms"]);
    assert_eq!(state(), "running", "whatever needs it next starts it for all");
    assert!(shortest(&lab, "n1", "n3") >= 3.0);
    lab.down();
    assert_eq!(Inventory::of(&place), before);
}

#[test]
fn a_lab_whose_anchor_was_killed_comes_up_again_at_once_and_meets_no_old_wire() {
    let place = Place::new();
    let before = Inventory::of(&place);
    for _ in 0..3 {
        let lab = place.up("again", WIRE);
        set(&lab, &["n1:eth0", "delay=1ms"]);
        let wire = Pid::from_raw(wire_of(&lab).expect("it runs")).expect("a pid");
        let wire = pidfd_open(wire, PidfdFlags::empty()).expect("it runs");
        let anchor = place.json(["inspect", &lab.name])["state"]["anchor"]["pid"].as_i64().expect("a pid");
        let anchor = i32::try_from(anchor).ok().and_then(Pid::from_raw).expect("a pid");
        let dead = pidfd_open(anchor, PidfdFlags::empty()).expect("it runs");
        kill_process(anchor, Signal::KILL).expect("it is there");
        // Until then the lab is up.
        assert!(wait_for_end(&dead, PATIENCE).expect("looks"), "SIGKILL ends an anchor");
        let again = place.up("again", WIRE);
        assert!(wait_for_end(&wire, Duration::ZERO).expect("looks"), "the wire went with its lab");
        assert!(again.pings("n1", "n2"));
        again.down();
    }
    assert_eq!(Inventory::of(&place), before);
}

#[test]
fn what_runs_below_conditions_is_gone_with_the_lab() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let lab = place.up("gone", WIRE);
    set(&lab, &["n*", "delay=1ms", "rate=1gbit"]);
    set(&lab, &["n*", "--ingress", "loss=1%"]);
    place.run(["partition", &lab.name, "n1", "n2"]);
    assert!(wire_of(&lab).is_some());
    lab.down();
    assert_eq!(Inventory::of(&place), before);
    let file = place.file("host", "networks: {net: host}\nnodes: {n: {count: 2}}\n");
    place.run(["up".as_ref(), file.as_os_str()]);
    let name = place.name("host");
    let lab = Lab { place: &place, name };
    for words in [&["set", "n1", "delay=1ms"][..], &["cut", "n1"]] {
        let refusal = place.fails(2, [words[0], &lab.name].iter().chain(&words[1..]));
        assert!(refusal.contains("driver host") && refusal.contains("Hint: "), "{refusal}");
    }
    assert!(place.fails(1, ["partition", &lab.name, "n1", "n2"]).contains("driver host"));
}

#[test]
fn a_change_that_the_kernel_refuses_leaves_links_and_belief_as_they_were() {
    /// `BPF_MAP_UPDATE_ELEM` (`linux/bpf.h`).
    const UPDATE: u32 = 2;
    let place = Place::new();
    let file = place.file("refused", "nodes: {n: {count: 3}}\n");
    let failing = place.path().join("failing");
    let fault = Fault::of(nix::libc::SYS_bpf, rustix::io::Errno::NOMEM).where_argument(0, UPDATE).only_while(&failing);
    let output = place.failing(&fault, ["up".as_ref(), file.as_os_str()]).output().expect("it can be started");
    assert!(output.status.success(), "{}", told(&output));
    let lab = Lab { place: &place, name: place.name("refused") };
    // The report lists links that were ever touched.
    set(&lab, &["n", "loss=100%"]);
    set(&lab, &["n", "loss=none"]);
    assert!(lab.pings("n1", "n2"));
    let before = place.json(["inspect", &lab.name])["links"].clone();

    for change in [&["cut", "n1"][..], &["set", "n1", "loss=100%"], &["partition", "n1", "n2"]] {
        std::fs::write(&failing, "").expect("written");
        let words = [&[change[0], &lab.name], &change[1..]].concat();
        let said = place.fails(1, &words);
        std::fs::remove_file(&failing).expect("removed");
        assert!(said.contains("Cannot allocate memory"), "{change:?}: {said}");
        assert_eq!(place.json(["inspect", &lab.name])["links"], before, "{change:?}");
        assert!(lab.pings("n1", "n2"), "{change:?}");
    }
    place.run(["cut", &lab.name, "n1"]);
    assert!(lab.is_unheard("n1", "n2", "n3"));
}

/// The checks of a path as `slipway verify` tells them, by what they are of.
#[track_caller]
fn verified(lab: &Lab<'_>, path: &str, options: &[&str]) -> (Value, std::collections::BTreeMap<String, Value>) {
    let words = ["--json", "verify", &lab.name, path].into_iter().chain(options.iter().copied());
    // Its exit code says how late this machine was, too.
    let output = lab.place.slipway(words).output().expect("it starts");
    let paths: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told(&output)));
    let checks = paths[0]["checks"].as_array().expect("a list").clone();
    (
        paths[0].clone(),
        checks.into_iter().map(|check| (check["what"].as_str().expect("words").to_owned(), check)).collect(),
    )
}

/// Shares, which do not depend on how late a machine is.
#[test]
fn right_links_are_found_right() {
    let place = Place::new();
    let file = "mechanism: wire
networks:
  gap: {driver: bridge, conditions: {delay: 20ms, reorder: 25%, gap: 5}}
  all: {driver: bridge, conditions: {loss: 10%, duplicate: 20%, corrupt: 10%}}
  far: {driver: bridge, conditions: {ingress: {loss: 20%}}}
nodes:
  g: {count: 2, networks: [gap]}
  a: {count: 2, networks: [all]}
  gw: {networks: [all, far], gateway: true}
  f: {networks: [far]}
";
    let lab = place.up("right", file);
    for (path, what, expected) in [
        ("g1->g2", "reorder", 0.125),
        // A copy makes up for some of what is lost.
        ("a1->a2", "loss", 0.157),
        ("a1->a2", "duplicate", 0.155),
        // On the second network each copy has a chance of its own: 0.08 + 0.74 * 0.28 + 0.18 * 0.28 * 0.352.
        ("a1->f", "loss", 0.305),
    ] {
        let (route, checks) = verified(&lab, path, &[]);
        let check = &checks[what];
        assert_eq!(check["verdict"], "met", "{path}: {check}");
        let asked = check["asked"].as_f64().expect("a number");
        assert!((asked - expected).abs() < 0.02, "{path}: {check}");
        assert_eq!(route["via"].as_array().map(Vec::len), (path == "a1->f").then_some(1), "{route}");
    }
}

#[test]
fn a_token_bucket_is_not_held_to_a_delay_and_a_slow_one_keeps_to_its_time() {
    let place = Place::new();
    let file = "networks: {quick: {driver: bridge, conditions: {rate: 10mbit}}, slow: {driver: bridge, conditions: {rate: 64kbit}}}
nodes: {q: {count: 2, networks: [quick]}, s: {count: 2, networks: [slow]}}
";
    let lab = place.up("bucket", file);
    let (route, checks) = verified(&lab, "q1->q2", &[]);
    assert_eq!(route["mechanism"], "tbf");
    assert_eq!(checks.keys().map(String::as_str).collect::<Vec<_>>(), ["loss", "rate"]);
    let (route, checks) = verified(&lab, "s1->s2", &["--time", "2s"]);
    assert!(route["packets"].as_u64().is_some_and(|packets| packets < 100), "few are sent: {route}");
    assert_eq!(checks["loss"]["verdict"], "met", "{route}");
    let output = place.slipway(["verify", &lab.name, "s1->s2", "--time", "1s"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("measuring 1 path, for about "), "{said}");
}
