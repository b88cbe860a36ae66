//! Settings change and come back through the command itself, in network namespaces of the tests' own.

mod common;
#[path = "tune/files.rs"]
mod files;
#[path = "tune/hosts.rs"]
mod hosts;
#[path = "tune/net.rs"]
mod net;

use std::fs;
use std::os::fd::AsFd as _;
use std::process::Stdio;

use common::{Place, await_that};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use slipway_sys::ns::with_net;

use net::{Net, WISHES, kill_at};

#[test]
fn settings_change_and_come_back() {
    let net = Net::new();
    let before = net.values();
    let answer = net.json(&[&["apply", "--yes"], &WISHES[..]].concat());
    let applied = answer["applied"].as_array().expect("applied");
    assert_eq!(applied.len(), WISHES.len());
    for (applied, wish) in applied.iter().zip(WISHES) {
        assert_eq!(applied["now"].as_str(), wish.split_once('=').map(|(_, value)| value), "{wish}");
    }
    let status = net.json(&["status", "--strict"]);
    let standings = status["settings"].as_array().expect("settings").iter().map(|one| one["standing"].clone());
    assert!(standings.eq(WISHES.map(|_| Value::from("kept"))), "{status}");
    let again = net.json(&[&["apply", "--yes"], &WISHES[..]].concat());
    assert_eq!(again["plan"]["same"].as_array().map(Vec::len), Some(WISHES.len()), "nothing is left to do: {again}");

    // A second change of one, then a change by somebody else of another.
    net.json(&["apply", "--yes", "nic v0 mtu=4000"]);
    with_net(net.namespace.as_fd(), || fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 5000 6000"))
        .expect("entering works")
        .expect("written");
    assert_eq!(net.output(&["status", "--strict"]).status.code(), Some(5));
    assert!(net.fails(1, &["rollback"]).contains("net.ipv4.tcp_rmem"));
    net.json(&["rollback", "--force"]);
    assert_eq!(net.values(), before);
    assert_eq!(net.journal(), "", "no journal is left");
}

#[test]
fn nothing_changes_without_a_yes_or_beyond_the_namespace() {
    let net = Net::new();
    let before = net.values();
    assert!(net.fails(2, &["apply", "nic v0 mtu=9000"]).contains("--yes"));
    for of_the_machine in
        ["sysctl net.core.rmem_max=1000000", "sysctl vm.swappiness=1", "thp=never", "irq 1=0", "cpu governor=x"]
    {
        let told = net.fails(3, &["apply", "--yes", "nic v0 mtu=9000", of_the_machine]);
        assert!(told.contains("the whole machine"), "{told}");
    }
    for wrong in ["mtu=1", "nic v0 nothing=1", "sysctl ../x.y=1", "sysctl kernel.core_pattern=|/x", "nic v0 mtu"] {
        assert!(
            net.fails(2, &["apply", "--yes", wrong]).contains("Hint")
                || wrong.contains("pattern")
                || wrong.contains("..")
        );
    }
    assert!(net.fails(3, &["apply", "--yes", "nic v9 mtu=9000"]).contains("find nic v9 mtu"));
    assert!(net.fails(3, &["apply", "--yes", "nic v0 mtu=9000", "nic v0 mtu=8000"]).contains("wants"));
    assert_eq!(net.values(), before);
}

#[test]
fn where_one_is_refused_those_before_it_come_back() {
    let net = Net::new();
    let before = net.values();
    for refused in ["sysctl net.ipv4.tcp_congestion_control=nonesuch", "nic v1 mtu=1000", "nic v1 qdisc=nonesuch"] {
        net.fails(1, &[&["apply", "--yes"], &WISHES[..], &[refused]].concat());
        assert_eq!(net.values(), before, "{refused}");
        assert_eq!(net.journal(), "", "{refused}");
    }
}

#[test]
fn advice_of_a_rule_is_followed_and_undone() {
    let net = Net::new();
    let aim = ["--rule", "tcp-idle-restart", "--rule", "governor"];
    let before = net.values();
    let answer = net.json(&[&["apply", "--yes"], &aim[..]].concat());
    let applied = answer["applied"].as_array().expect("applied");
    assert!(applied.iter().all(|one| one["rule"] == "tcp-idle-restart"), "the governor is the machine's: {answer}");
    assert_eq!(net.values()[1], "0", "{answer}");
    net.json(&["rollback"]);
    assert_eq!(net.values(), before);
    assert!(net.fails(2, &["apply", "--rule", "nonesuch", "--yes"]).contains("Hint"));
    assert!(net.fails(2, &["apply", "--yes"]).contains("SETTING=VALUE"));
}

#[test]
fn a_command_that_is_killed_anywhere_is_undone_exactly() {
    let net = Net::new();
    let before = net.values();
    let count = |journal: &str| journal.matches("\"former\"").count();
    for round in 0..14 {
        let entries = 1 + round % WISHES.len();
        kill_at(&net, &[&["apply", "--yes"], &WISHES[..]].concat(), |journal| count(journal) >= entries);
        if round % 2 == 1 {
            let there = count(&net.journal());
            kill_at(&net, &["rollback"], |journal| count(journal) < there.max(1));
        }
        let answer = net.json(&["rollback"]);
        assert_eq!(net.values(), before, "round {round}: {answer}");
        assert_eq!(net.journal(), "", "round {round}");
    }
}

#[test]
fn commands_take_turns() {
    let net = Net::new();
    let state = net.place.path().join("tune");
    fs::create_dir(&state).expect("made");
    let lock = fs::File::open(&state).expect("opened");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    assert!(net.fails(1, &["rollback"]).contains("another command"));
    drop(lock);
    await_that("the folder is free", || net.output(&["rollback"]).status.success());
}

#[test]
fn a_trial_keeps_settings_that_help_and_reverts_those_that_hurt() {
    let place = Place::new();
    let lab =
        place.up("trial", "networks: {net: {driver: bridge, conditions: {delay: 5ms}}}\nnodes: {n: {count: 2}}\n");
    let mut server =
        lab.program("n2", ["iperf3", "--server"]).stdout(Stdio::null()).spawn().expect("it can be started");
    lab.listens("n2", 5201);
    // The network of a node, seen by a command that is not confined to it.
    let net = fs::File::open(format!("/proc/{}/ns/net", lab.row("n1")["pid"])).expect("its init lives");
    let net = Net { place: Place::new(), namespace: net.into(), boot: None };
    let address = lab.interface("n2", 0)["ipv4"].as_str().expect("an address").to_owned();
    let words = ["--peer", &address, "--time", "1s", "--repeat", "5", "--yes"];
    let trial = |setting: &str, name: &str| {
        let out = net.place.path().join(name).display().to_string();
        net.json(&[&["try", setting][..], &words, &["--out", &out]].concat())
    };
    let read = || {
        let text = with_net(net.namespace.as_fd(), || fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem"));
        text.expect("entering works").expect("it is there").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let kept = |tried: &Value| (tried["outcome"].clone(), tried["kept"].clone());
    let before = read();
    // With a page of buffer, a page leaves every ten milliseconds: a hundredth of what leaves without.
    let hurts = trial("sysctl net.ipv4.tcp_wmem=4096 4096 4096", "hurts");
    assert_eq!(kept(&hurts), (Value::from("hurts"), Value::from(false)), "{hurts}");
    assert_eq!((read(), net.journal()), (before.clone(), String::new()), "nothing is left to undo");

    with_net(net.namespace.as_fd(), || fs::write("/proc/sys/net/ipv4/tcp_wmem", "4096 4096 4096"))
        .expect("entering works")
        .expect("written");
    let helps = trial(&format!("sysctl net.ipv4.tcp_wmem={before}"), "helps");
    assert_eq!(kept(&helps), (Value::from("helps"), Value::from(true)), "{helps}");
    assert_eq!(read(), before);
    assert!(net.place.path().join("helps/report.html").exists());
    // A second trial would not know what the former value was.
    assert!(
        net.fails(2, &[&["try", "sysctl net.ipv4.tcp_wmem=4096 8192 8192"][..], &words].concat()).contains("rollback")
    );
    net.json(&["rollback"]);
    assert_eq!(read(), "4096 4096 4096");
    let _ = kill_process(Pid::from_child(&server), Signal::TERM);
    let _ = server.wait();
}
