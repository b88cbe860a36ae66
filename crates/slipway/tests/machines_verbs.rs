//! RDMA over machines: unmodified programs of Debian, in two nodes on two machines.

mod common;

use std::process::Stdio;

use common::machines::Machines;
use common::{await_that, told};

const LAB: &str = "networks: {net: {driver: fast, rdma: true}}\nnodes: {n: {count: 2}}\n";

/// The port by which the two sides of perftest find each other.
const PORT: u16 = 18515;

/// A client of `rdma_cm` in `n2`, on machine `b`. Gives what it said, and whether it was served.
fn asks(machines: &Machines) -> (bool, String) {
    let words = ["exec", "lab", "n2", "--", "timeout", "30", "rping", "-c", "-C", "2", "-v", "-a", "10.64.0.1"];
    let output = machines.slipway(1, words).output().expect("slipway can be started");
    (output.status.success(), told(&output))
}

#[test]
fn queue_pairs_join_over_machines_under_policy_cuts_and_conditions() {
    common::verbs::plug_in();
    let machines = Machines::new(2);
    let file = machines.file("lab", LAB);
    machines.run(0, ["up".as_ref(), file.as_os_str()]);

    let server = ["exec", "lab", "n1", "--", "timeout", "60", "ib_write_bw", "-n", "100"];
    let server = machines.slipway(0, server).stdout(Stdio::null()).spawn();
    let mut server = server.expect("slipway can be started");
    let listens = format!("grep -qi ':{PORT:04x} .* 0A ' /proc/net/tcp /proc/net/tcp6");
    await_that("the server listens", || {
        let asked = machines.slipway(0, ["exec", "lab", "n1", "--", "sh", "-c", &listens]).status();
        asked.is_ok_and(|status| status.success())
    });
    let said = machines.run(1, ["exec", "lab", "n2", "--", "timeout", "60", "ib_write_bw", "-n", "100", "n1"]);
    assert!(said.contains("#iterations") && server.wait().expect("it ends").success(), "{said}");
    let said = machines.run(0, ["fast", "explain", "lab", "n1", "n2"]);
    assert!(said.contains("the nodes are on two machines"), "{said}");

    let server = ["exec", "lab", "n1", "--", "timeout", "120", "rping", "-s", "-P"];
    let server = machines.slipway(0, server).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut server = server.expect("slipway can be started");
    await_that("the server listens", || asks(&machines).0);
    // An order is given on either machine, about the node of either.
    for (machine, before, after) in [
        (0, &["cut", "lab", "n2"][..], &["heal", "lab", "n2"][..]),
        (1, &["cut", "lab", "n2"], &["heal", "lab", "n2"]),
        (1, &["partition", "lab", "n1", "rest"], &["join", "lab"]),
        (0, &["set", "lab", "n2:eth0", "delay=1ms"], &["set", "lab", "n2:eth0", "delay=none"]),
        (1, &["set", "lab", "n1:eth0", "delay=1ms"], &["set", "lab", "n1:eth0", "delay=none"]),
    ] {
        machines.run(machine, before);
        let (is_served, said) = asks(&machines);
        assert!(!is_served, "{before:?}: {said}");
        machines.run(machine, after);
        await_that("the server is served again", || asks(&machines).0);
    }
    let closed = machines.path().join("closed.yaml");
    std::fs::write(&closed, "policy:\n  - {name: closed, from: n2, to: n1, verdict: deny}\n").expect("written");
    machines.run(0, ["policy", "lab", closed.to_str().expect("plain")]);
    let (is_served, said) = asks(&machines);
    assert!(!is_served && said.contains("UNREACHABLE"), "{said}");

    server.kill().expect("it runs");
    server.wait().expect("it ends");
    machines.run(1, ["down", "lab"]);
    assert_eq!(machines.remains(), [""; 0]);
}
