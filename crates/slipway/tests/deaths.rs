//! Nodes that are dead or frozen answer nothing and forward nothing. Needs root and the packages of `scripts/setup.sh test`.

mod common;

use std::process::Stdio;

use common::{Fault, Lab, Place, await_that, told};
use rustix::process::{Pid, Signal, kill_process};
use slipway_measure::play::Played;

/// Two networks and a gateway between them, and a node beside it that always answers.
const CROSSING: &str = "hosts: 2\nnetworks:\n  front: {driver: FRONT}\n  back: {driver: bridge, ipv4: 10.80.0.0/24, ipv6: \"fd00:80::/64\"}\nnodes:\n  \
    client: {host: CLIENT, networks: [front]}\n  witness: {host: host1, networks: [front]}\n  \
    router: {host: host1, networks: [front, back], gateway: true}\n  server: {host: host1, networks: [back]}\n";

/// A gateway that does not live passes nothing and answers nothing, by every driver, and does both when it is back.
#[test]
fn a_dead_or_frozen_gateway_forwards_and_answers_nothing() {
    let place = Place::new();
    for (driver, host) in
        [("bridge", "host1"), ("vxlan", "host2"), ("ovs", "host1"), ("macvlan", "host1"), ("fast", "host2")]
    {
        let lab = place.up(&format!("dead{driver}"), &CROSSING.replace("FRONT", driver).replace("CLIENT", host));
        let name = lab.name.as_str();
        let own = lab.row("router")["addresses"][0].as_str().expect("an address").to_owned();
        let silent = |there: &str| lab.is_silent("client", there, "witness");
        assert!(!silent("server") && !silent(&own), "{driver}");
        for (end, back) in [
            (&["kill", name, "router"][..], "start"),
            (&["kill", name, "router", "--how", "graceful"], "start"),
            (&["kill", name, "router", "--how", "hard"], "start"),
            (&["freeze", name, "router"], "thaw"),
        ] {
            place.run(end.iter().copied());
            let heard = lab.kernel_count("server", "Icmp", "InEchos");
            for there in ["server", own.as_str()] {
                assert!(silent(there), "{driver}: {there} answers after {end:?}");
            }
            assert_eq!(lab.kernel_count("server", "Icmp", "InEchos"), heard, "{driver}: forwarded after {end:?}");
            place.run([back, name, "router"]);
            for there in ["server", own.as_str(), "ip6-server"] {
                assert!(lab.pings("client", there), "{driver}: {there} does not answer after {end:?} and {back}");
            }
            assert!(lab.pings("server", "client"), "{driver}: {end:?}");
        }
        lab.down();
    }
}

#[test]
fn a_freeze_that_half_fails_lets_programs_go_on() {
    /// `BPF_MAP_UPDATE_ELEM` (`linux/bpf.h`).
    const UPDATE: u32 = 2;
    let place = Place::new();
    let file = place.file("half", "networks: {net: bridge}\nnodes: {n: {count: 2}}\n");
    let failing = place.path().join("failing");
    let fault = Fault::of(nix::libc::SYS_bpf, rustix::io::Errno::NOMEM).where_argument(0, UPDATE).only_while(&failing);
    let output = place.failing(&fault, ["up".as_ref(), file.as_os_str()]).output().expect("it can be started");
    assert!(output.status.success(), "{}", told(&output));
    let lab = Lab { place: &place, name: place.name("half") };

    std::fs::write(&failing, "").expect("written");
    let said = place.fails(1, ["freeze", &lab.name, "n2"]);
    std::fs::remove_file(&failing).expect("removed");
    assert!(said.contains("Cannot allocate memory"), "{said}");
    assert_eq!(lab.row("n2")["status"], "running");
    assert!(lab.pings("n1", "n2"));

    place.run(["freeze", &lab.name, "n2"]);
    std::fs::write(&failing, "").expect("written");
    place.fails(1, ["thaw", &lab.name, "n2"]);
    std::fs::remove_file(&failing).expect("removed");
    assert_eq!(lab.row("n2")["status"], "frozen");
    place.run(["thaw", &lab.name, "n2"]);
    assert!(lab.pings("n1", "n2"));
}

/// Its network is its host's, and lives on.
#[test]
fn a_node_on_driver_host_is_warned_of() {
    let place = Place::new();
    let text =
        "networks: {net: {driver: host}}\nnodes: {n: {count: 2}}\nscenario:\n  events: [{at: 1ms, freeze: n2}]\n";
    let lab = place.up("host", text);
    for words in [&["kill", &lab.name, "n1"][..], &["freeze", &lab.name, "n2"], &["play", &lab.name, "--dry-run"]] {
        let output = place.slipway(words).output().expect("slipway can be started");
        assert!(output.status.success(), "{}", told(&output));
        let warned = String::from_utf8_lossy(&output.stderr).contains("shares its host's network");
        assert!(warned, "{words:?}: {}", told(&output));
    }
    lab.down();
}

/// In a scenario too, whose end takes it back.
#[test]
fn a_scenario_freezes_and_thaws_what_answers() {
    let place = Place::new();
    let text = "networks: {net: bridge}\nnodes: {n: {count: 3}}\nscenario:\n  length: 10min\n  events: [{at: 1ms, freeze: n2}]\n";
    let lab = place.up("scene", text);
    let mut player = place.slipway(["play", &lab.name, "--out", "log"]).stdout(Stdio::null()).spawn().expect("started");
    let log = || std::fs::read_to_string(place.path().join("log/events.jsonl")).unwrap_or_default();
    await_that("the event is over", || Played::read(&log()).is_ok_and(|played| played.events().count() == 1));
    assert_eq!(lab.row("n2")["status"], "frozen");
    assert!(lab.is_silent("n1", "n2", "n3"));
    kill_process(Pid::from_child(&player), Signal::TERM).expect("it plays");
    player.wait().expect("waited for");
    assert_eq!(lab.row("n2")["status"], "running");
    assert!(lab.pings("n1", "n2"));
    lab.down();
}
