//! RDMA between virtual hosts, through the command itself: unmodified programs of Debian, in two nodes on two hosts.

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use common::rdma::{by_rdma_cm, hpcc, program};
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

/// UCX carries Open MPI by verbs, by the counts of the device too, and TCP does where verbs are refused.
#[test]
fn verbs_carry_open_mpi_between_hosts_and_tcp_does_where_they_are_refused() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("farmpi", LAB);
    let said = hpcc(&place, &lab);
    assert!(said.contains("Success=1") && said.matches("selected ucx best priority").count() == 2, "{said}");
    let run = ["run", &lab.name, "--on", "a,b", "--mpi", "openmpi", "-e", "OMPI_MCA_pml_base_verbose=10"];
    let netpipe = || {
        let output = place.slipway(run.into_iter().chain(["--", "NPopenmpi", "-u", "65536", "-n", "5"])).output();
        let said = told(&output.expect("slipway can be started"));
        assert!(said.contains("65536 bytes"), "{said}");
        said
    };
    let sent = || {
        let status = place.json(["fast", "status", &lab.name]);
        let totals = status["brokers"][0]["nodes"][0]["totals"].as_array().cloned().unwrap_or_default();
        let bytes = |of: &str| totals.iter().filter_map(|total| total[of].as_u64()).sum::<u64>();
        bytes("send_bytes") + bytes("read_bytes") + bytes("write_bytes")
    };
    let before = sent();
    assert!(netpipe().contains("selected ucx best priority"));
    let carried = sent() - before;
    // Five messages of each size, 64 KiB being the largest.
    assert!(carried > 5 * 65536, "{carried}");
    place.run(["set", &lab.name, "b:eth0", "delay=100us"]);
    assert!(!netpipe().contains("selected ucx best priority"));
    assert_eq!(sent(), before + carried);
}

/// Both brokers relay queue pairs under a rate, whatever their programs do, and every operation runs.
#[test]
fn pairs_under_a_rate_are_relayed_between_hosts() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("farrate", LAB);
    let rules = |text: &str| {
        let file = place.path().join("rules.yaml");
        std::fs::write(&file, text).expect("written");
        place.run(["policy", &lab.name, file.to_str().expect("plain")]);
    };
    rules("- {name: slow, from: b, to: a, rate: 500mbit}\n");
    let said = place.run(["fast", "explain", &lab.name, "a", "b"]);
    assert!(said.contains("verbs from a to b are relayed: a rule limits the pair"), "{said}");
    for words in [
        &["ib_read_bw", "-n", "100"][..],
        &["ib_send_bw", "-n", "100", "-e"],
        &["ib_atomic_lat", "-n", "100"],
        &["ib_send_lat", "-c", "UD", "-n", "100"],
        &["ib_write_lat", "-n", "100"],
    ] {
        assert!(by_tcp(&lab, words).contains("#iterations"), "{words:?}");
    }
    let said = by_tcp(&lab, &["ib_write_bw", "-n", "400", "--report_gbits"]);
    let line = said.lines().find(|line| line.trim_start().starts_with("65536")).expect("a result");
    let rate: f64 = line.split_whitespace().nth(3).and_then(|word| word.parse().ok()).expect("a rate");
    // A slow machine makes it less, and nothing makes it more but ten milliseconds of a quarter of a second.
    assert!(rate > 0.0 && rate < 0.55, "{rate} Gb/s: {said}");
    rules("- {name: few, from: b, to: a, connections: 2}\n");
    assert!(by_tcp(&lab, &["ib_write_bw", "-n", "100", "-q", "2"]).contains("#iterations"));
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
    // IBV_WC_RETRY_EXC_ERR
    assert!(!failed.status.success() && said.contains("ailed status 12"), "{said}");
    let _ = server.wait();
    let old = brokers()[0]["pid"].as_i64().expect("a process");
    let pid = rustix::process::Pid::from_raw(i32::try_from(old).expect("a number")).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    await_that("another broker runs", || brokers()[0]["pid"].as_i64().is_some_and(|pid| pid != old));
    assert!(by_tcp(&lab, &["ibv_rc_pingpong", "-g", "0", "-n", "100"]).contains("Mbit/sec"));
}

#[test]
fn datagrams_to_a_group_reach_members_on_other_hosts() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("fargroup", LAB);
    let member = common::rdma::Member::join(&lab, "a", "ff0e::17:1");
    let sender = program(&lab, "b", &["mckey", "-m", "ff0e::17:1", "-s", "-C", "5"]).output().expect("started");
    assert!(sender.status.success(), "{}", told(&sender));
    member.hears_all();
}
