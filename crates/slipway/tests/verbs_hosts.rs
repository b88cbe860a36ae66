//! RDMA between virtual hosts, through the command itself: unmodified programs of Debian, in two nodes on two hosts.

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use common::rdma::{by_rdma_cm, program};
use common::{Lab, Place, await_that, told};

const LAB: &str = "\
hosts: 2
networks: {net: {driver: fast, rdma: true}}
nodes:
  a: {host: host1}
  b: {host: host2}
";

/// The port by which the two sides of perftest, and of the examples of libibverbs, find each other.
const PORT: u16 = 18515;

fn await_listener(lab: &Lab<'_>) {
    let listens = format!("grep -qi ':{PORT:04x} .* 0A ' /proc/net/tcp /proc/net/tcp6");
    await_that("the server listens", || {
        lab.program("a", ["sh", "-c", &listens]).status().is_ok_and(|status| status.success())
    });
}

/// A program whose two sides find each other by TCP.
#[track_caller]
fn by_tcp(lab: &Lab<'_>, words: &[&str]) -> String {
    let child = program(lab, "a", words).spawn().expect("started");
    await_listener(lab);
    let asked = program(lab, "b", &[words, &["a"]].concat()).output().expect("started");
    let heard = child.wait_with_output().expect("ended");
    assert!(asked.status.success() && heard.status.success(), "{words:?}: {} {}", told(&asked), told(&heard));
    String::from_utf8_lossy(&heard.stdout).into_owned() + &String::from_utf8_lossy(&asked.stdout)
}

#[test]
fn programs_of_verbs_run_unmodified_between_hosts() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("far", LAB);
    for words in [
        &["ibv_rc_pingpong", "-g", "0", "-n", "100"][..],
        &["ibv_rc_pingpong", "-g", "0", "-n", "100", "-e"],
        &["ibv_uc_pingpong", "-g", "0", "-n", "100"],
        &["ibv_ud_pingpong", "-g", "0", "-n", "100"],
        &["ibv_srq_pingpong", "-g", "0", "-n", "100"],
        &["ib_write_bw", "-n", "300"],
        &["ib_write_bw", "-n", "100", "-q", "4"],
        &["ib_send_lat", "-n", "200"],
        &["ib_send_lat", "-n", "200", "-e"],
        &["ib_send_bw", "-n", "300"],
        &["ib_read_bw", "-n", "300"],
        &["ib_atomic_bw", "-n", "300"],
        &["ib_write_lat", "-n", "200"],
    ] {
        let said = by_tcp(&lab, words);
        assert!(said.contains("Mbit/sec") || said.contains("#iterations"), "{words:?}: {said}");
    }
}

#[test]
fn programs_connect_by_rdma_cm_between_hosts() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("farcm", LAB);
    let address = lab.exec("a", ["hostname", "-i"]);
    let address = address.split_whitespace().next().expect("an address");
    let said = by_rdma_cm(&lab, &["rping", "-s", "-C", "5", "-v"], &["rping", "-c", "-a", address, "-C", "5", "-v"]);
    assert!(said.contains("ping data: rdma-ping-4"), "{said}");
    let said = by_rdma_cm(&lab, &["ucmatose"], &["ucmatose", "-s", address]);
    assert_eq!(said.matches("return status 0").count(), 2, "{said}");
    let client = ["rstream", "-s", address, "-S", "1024", "-C", "100", "-T", "s"];
    let said = by_rdma_cm(&lab, &["rstream", "-S", "1024", "-C", "100", "-T", "s"], &client);
    assert!(said.contains("usec/xfer"), "{said}");
    // A rule of the lab's policy is heard of on both hosts.
    let closed = place.path().join("closed.yaml");
    std::fs::write(&closed, "policy:\n  - {name: closed, from: b, to: a, verdict: deny}\n").expect("written");
    place.run(["policy", &lab.name, closed.to_str().expect("plain")]);
    let refused = program(&lab, "b", &["rping", "-c", "-a", address, "-C", "1"]).output().expect("started");
    assert!(!refused.status.success() && told(&refused).contains("UNREACHABLE"), "{}", told(&refused));
}

/// The stream between two queue pairs leads a hostile program nowhere else.
#[test]
fn a_stream_is_of_no_use_but_to_its_peer() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("stream", LAB);
    let script = include_str!("threats/verbs_stream.py");
    let mut waiting = program(&lab, "a", &["python3", "-c", script]).stdin(Stdio::piped()).spawn().expect("started");
    let mut number = String::new();
    BufReader::new(waiting.stdout.as_mut().expect("a pipe")).read_line(&mut number).expect("it says a number");
    let address = lab.exec("a", ["hostname", "-i"]);
    let address = address.split_whitespace().next().expect("an address");
    let said = lab.exec("b", ["python3", "-c", script, number.trim(), address]);
    let refused = ["connect", "bind", "options of TCP", "another interface"];
    let refused = refused.map(|what| format!("{what} Operation not permitted\n")).concat();
    assert_eq!(said, format!("{refused}names 0.0.0.0\n"));
    drop(waiting.stdin.take());
    assert!(waiting.wait().expect("ended").success());
}

/// A peer that is killed is found out: requests fail, and nothing hangs. So is one whose broker was replaced meanwhile.
#[test]
fn a_killed_peer_fails_requests_and_a_new_broker_joins_new_queue_pairs() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("killed", LAB);
    let words = ["ib_write_bw", "--run_infinitely", "-D", "1"];
    let mut server = program(&lab, "a", &words).spawn().expect("started");
    await_listener(&lab);
    let client = program(&lab, "b", &[&words[..], &["a"]].concat()).spawn().expect("started");
    let brokers = || place.json(["fast", "status", &lab.name])["brokers"].clone();
    let joined = |broker: &serde_json::Value| {
        broker["nodes"][0]["links"].as_array().is_some_and(|links| links.iter().any(|link| link["joined"] == true))
    };
    await_that("queue pairs are joined", || {
        brokers().as_array().is_some_and(|brokers| brokers.len() == 2 && brokers.iter().all(joined))
    });
    lab.exec("a", ["pkill", "-9", "ib_write_bw"]);
    let failed = client.wait_with_output().expect("ended");
    let said = told(&failed);
    assert!(!failed.status.success() && (said.contains("12") || said.contains('5')), "{said}");
    let _ = server.wait();
    let old = brokers()[0]["pid"].as_i64().expect("a process");
    let pid = rustix::process::Pid::from_raw(i32::try_from(old).expect("a number")).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    await_that("another broker runs", || brokers()[0]["pid"].as_i64().is_some_and(|pid| pid != old));
    assert!(by_tcp(&lab, &["ibv_rc_pingpong", "-g", "0", "-n", "100"]).contains("Mbit/sec"));
}
