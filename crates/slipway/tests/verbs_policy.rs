//! RDMA under policy and through faults, by the command itself: rates, caps, revocation, and the ends of brokers and peers.

mod common;

use std::process::{Child, Command, Stdio};

use common::{Lab, Place, await_that, told};
use serde_json::Value;

const LAB: &str = "\
networks: {net: {driver: fast, rdma: true}}
nodes:
  a:
  b:
";

/// A program in a node, which ends within a minute.
fn program(lab: &Lab<'_>, node: &str, words: &[&str]) -> Command {
    let mut command = lab.program(node, ["timeout", "60"].iter().chain(words).copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a program of perftest in `a`, and its client in `b` once it listens.
fn perftest(lab: &Lab<'_>, words: &[&str]) -> (Child, Child) {
    let server = program(lab, "a", words).spawn().expect("started");
    let listens = "grep -qi ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6";
    await_that("the server listens", || {
        lab.program("a", ["sh", "-c", listens]).status().is_ok_and(|status| status.success())
    });
    let client = program(lab, "b", &[words, &["a"]].concat()).spawn().expect("started");
    (server, client)
}

/// A number of the first connection of a node: 0 is `a`, 1 is `b`.
fn link<'a>(status: &'a Value, node: usize, of: &str) -> &'a Value {
    &status["brokers"][0]["nodes"][node]["links"][0][of]
}

/// Waits until the client's queue pair has written.
#[track_caller]
fn await_writes(place: &Place, lab: &Lab<'_>) {
    await_that("the client writes", || {
        link(&place.json(["fast", "status", &lab.name]), 1, "writes").as_u64().is_some_and(|writes| writes > 0)
    });
}

fn set_policy(place: &Place, lab: &Lab<'_>, rules: &str) -> String {
    let file = place.path().join("rules.yaml");
    std::fs::write(&file, rules).expect("written");
    place.run(["policy", &lab.name, file.to_str().expect("plain")])
}

/// `ib_write_bw` for as long as a test takes.
const LONG: [&str; 3] = ["ib_write_bw", "-D", "50"];

/// Ends a pair of programs, and gives the client's account.
fn account((mut server, client): (Child, Child)) -> String {
    let heard = client.wait_with_output().expect("ended");
    assert!(!heard.status.success(), "the client fails: {}", told(&heard));
    let _ = server.kill();
    server.wait().expect("ended");
    told(&heard)
}

#[test]
fn a_revoked_program_ends_with_its_own_error() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("revoked", LAB);
    let running = perftest(&lab, &LONG);
    await_writes(&place, &lab);
    let said = set_policy(&place, &lab, "- {name: closed, from: b, to: a, verdict: deny}\n");
    // The pair of queues; and the programs' TCP connection, unless they end before it is looked for.
    assert!(said.contains("fast connection") && !said.contains("0 fast"), "{said}");
    // IBV_WC_WR_FLUSH_ERR
    let said = account(running);
    assert!(said.contains("Failed status 5"), "{said}");
    let said = place.run(["fast", "explain", &lab.name, "b", "a"]);
    assert!(said.contains("are refused (EACCES): policy forbids it"), "{said}");
    set_policy(&place, &lab, "[]\n");
    let running = perftest(&lab, &LONG);
    await_writes(&place, &lab);
    place.run(["set", &lab.name, "b:eth0", "delay=1ms"]);
    let said = account(running);
    assert!(said.contains("Failed status 5"), "{said}");
    let said = place.run(["fast", "explain", &lab.name, "a", "b"]);
    assert!(said.contains("are refused (EOPNOTSUPP): the pair is under conditions"), "{said}");
}

#[test]
fn requests_to_a_peer_that_was_killed_fail() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("killed", LAB);
    for program in ["ib_write_bw", "ib_read_bw"] {
        let running = perftest(&lab, &[program, "-D", "50"]);
        let word = if program == "ib_read_bw" { "reads" } else { "writes" };
        await_that("the client asks", || {
            link(&place.json(["fast", "status", &lab.name]), 1, word).as_u64().is_some_and(|asked| asked > 0)
        });
        lab.exec("a", ["pkill", "-KILL", program]);
        // IBV_WC_RETRY_EXC_ERR
        let said = account(running);
        assert!(said.contains("Failed status 12"), "{said}");
    }
}

/// A program that is killed in the middle of a one-sided operation leaves nothing at its peer, and holds nobody up.
#[test]
fn a_killed_program_leaves_its_peer_as_it_was() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("midway", LAB);
    for (program, word) in [("ib_write_bw", "writes"), ("ib_read_bw", "reads"), ("ib_atomic_bw", "atomics")] {
        let (mut server, mut client) = perftest(&lab, &[program, "-D", "50"]);
        await_that("the client asks", || {
            link(&place.json(["fast", "status", &lab.name]), 1, word).as_u64().is_some_and(|asked| asked > 0)
        });
        lab.exec("b", ["pkill", "-KILL", program]);
        client.wait().expect("ended");
        await_that("the broker has forgotten it", || {
            let status = place.json(["fast", "status", &lab.name]);
            let node = |at: usize| status["brokers"][0]["nodes"][at].clone();
            node(1)["queue_pairs"] == 0
                && [0, 1].iter().all(|&at| node(at)["links"].as_array().is_some_and(Vec::is_empty))
        });
        let _ = server.kill();
        server.wait().expect("ended");
        lab.exec("a", ["sh", "-c", "pkill -KILL $0 || true", program]);
        let (server, client) = perftest(&lab, &[program, "-n", "100"]);
        let heard = [client, server].map(|child| child.wait_with_output().expect("ended"));
        assert!(heard.iter().all(|heard| heard.status.success()), "{} {}", told(&heard[0]), told(&heard[1]));
    }
}

#[test]
fn pairs_survive_their_broker_and_the_next_one_serves() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("broker", LAB);
    let (server, client) = perftest(&lab, &["ib_write_bw", "-D", "3"]);
    await_writes(&place, &lab);
    let pid = || place.json(["fast", "status", &lab.name])["brokers"][0]["pid"].as_i64();
    let first = pid().expect("it runs");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(first).expect("a process")),
        nix::sys::signal::Signal::SIGKILL,
    )
    .expect("it lives");
    await_that("there is another broker", || pid().is_some_and(|pid| pid != first));
    let heard = [client, server].map(|child| child.wait_with_output().expect("ended"));
    assert!(heard.iter().all(|heard| heard.status.success()), "{} {}", told(&heard[0]), told(&heard[1]));
    let (server, client) = perftest(&lab, &["ib_write_bw", "-n", "100"]);
    let heard = [client, server].map(|child| child.wait_with_output().expect("ended"));
    assert!(heard.iter().all(|heard| heard.status.success()), "{} {}", told(&heard[0]), told(&heard[1]));
}

#[test]
fn pairs_under_a_rate_are_relayed_and_every_operation_runs() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("rated", LAB);
    set_policy(&place, &lab, "- {name: slow, from: b, to: a, rate: 1gbit}\n");
    let said = place.run(["fast", "explain", &lab.name, "a", "b"]);
    assert!(said.contains("verbs from a to b are relayed: a rule limits the pair"), "{said}");
    for words in [
        &["ib_write_bw", "-n", "200"][..],
        &["ib_read_bw", "-n", "200"],
        &["ib_send_bw", "-n", "200", "-e"],
        &["ib_atomic_lat", "-n", "100"],
        &["ib_send_lat", "-c", "UD", "-n", "100"],
        &["ib_write_lat", "-n", "100"],
    ] {
        let (server, client) = perftest(&lab, words);
        let heard = [client, server].map(|child| child.wait_with_output().expect("ended"));
        let [one, other] = &heard;
        assert!(one.status.success() && other.status.success(), "{words:?}: {} {}", told(one), told(other));
    }
    let running = perftest(&lab, &LONG);
    await_writes(&place, &lab);
    let status = place.json(["fast", "status", &lab.name]);
    assert_eq!((link(&status, 0, "relayed"), link(&status, 1, "relayed")), (&true.into(), &true.into()), "{status}");
    // Another rate holds at once, and no connection ends.
    let said = set_policy(&place, &lab, "- {name: slow, from: b, to: a, rate: 100mbit}\n");
    assert!(said.contains("0 fast connections"), "{said}");
    lab.exec("a", ["pkill", "-KILL", "ib_write_bw"]);
    let said = account(running);
    assert!(said.contains("Failed status 12"), "{said}");
    // A pair through shared memory ends where a rule limits it from now on.
    set_policy(&place, &lab, "[]\n");
    let running = perftest(&lab, &LONG);
    await_writes(&place, &lab);
    let said = set_policy(&place, &lab, "- {name: slow, from: a, to: b, rate: 1gbit}\n");
    // The pair of queues; and the programs' TCP connection, unless they end before it is looked for.
    assert!(said.contains("fast connection") && !said.contains("0 fast"), "{said}");
    let said = account(running);
    assert!(said.contains("Failed status 5"), "{said}");
}

#[test]
fn caps_of_the_lab_file_refuse_the_next() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("caps", &LAB.replace("b:", "b: {rdma: {queue_pairs: 2, regions: 1}}"));
    let (mut server, client) = perftest(&lab, &["ib_write_bw", "-n", "10", "-q", "3"]);
    let said = told(&client.wait_with_output().expect("ended"));
    let _ = server.kill();
    server.wait().expect("ended");
    assert!(said.contains("Unable to create QP"), "{said}");
    let (server, client) = perftest(&lab, &["ib_write_bw", "-n", "10", "-q", "2"]);
    let heard = [client, server].map(|child| child.wait_with_output().expect("ended"));
    assert!(heard.iter().all(|heard| heard.status.success()), "{} {}", told(&heard[0]), told(&heard[1]));
}
