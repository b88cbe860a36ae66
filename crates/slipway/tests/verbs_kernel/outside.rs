//! Nodes and RDMA peers outside of the lab, which are ordinary programs on another machine.

use std::process::Stdio;

use super::common::rdma::program;
use super::common::{Lab, Place, await_that, told};
use super::{DEVICE, on_b, on_machine, sent, serves};

const LAB: &str = "
networks:
  net: {driver: fast, rdma: true, rdma_peers: [192.0.2.0/24]}
  inner: {driver: fast, rdma: true}
nodes:
  n: {count: 2, networks: [net]}
  other: {networks: [inner]}
";

/// A program on machine `b` serves one in a node, which gets these words and the address more. Both succeed.
fn served(lab: &Lab<'_>, words: &[&str]) {
    let server = [&["timeout", "80"][..], words].concat();
    let mut server = on_b(&server).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let client = [words, &["192.0.2.2"]].concat();
    let mut said = String::new();
    await_that("the client is served", || {
        let asked = program(lab, "n1", &client).output().expect("started");
        said = told(&asked);
        // A server that has failed serves nobody.
        let is_over = server.try_wait().expect("a child").is_some_and(|status| !status.success());
        assert!(!is_over, "{words:?}: {said}");
        eprintln!("{words:?}: {said}");
        asked.status.success()
    });
    let heard = server.wait_with_output().expect("ended");
    assert!(heard.status.success(), "{words:?}: {said} {}", told(&heard));
}

fn gateways() -> Vec<String> {
    on_machine(&["sh", "-c", "pgrep slipway-gateway || true"]).lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "it takes two machines, each with a device: `make test-vm`"]
fn nodes_reach_peers_outside_of_the_lab() {
    super::common::verbs::plug_in();
    on_machine(&["sh", "-ec", DEVICE]);
    await_that("machine b answers", || on_b(&["true"]).status().is_ok_and(|status| status.success()));
    assert!(on_b(&[DEVICE]).status().expect("ssh can be started").success());

    let place = Place::new();
    let lab = place.up("outside", LAB);
    let slipway = |words: &[&str]| place.run(words.iter().copied());
    let said = slipway(&["fast", "status", &lab.name]);
    assert!(said.contains("0 queue pairs with peers outside of the lab, by rxe0"), "{said}");

    let said = slipway(&["fast", "explain", &lab.name, "n1", "192.0.2.2"]);
    assert!(said.contains("verbs from n1 to 192.0.2.2 run by the RDMA device of the machine"), "{said}");
    let said = slipway(&["fast", "explain", &lab.name, "other", "192.0.2.2"]);
    assert!(said.contains("no network of other has it among its `rdma_peers`"), "{said}");

    // The peer reads the node's memory, and writes it: `rping` on `b` is the server.
    let server = || on_b(&["timeout", "80", "rping", "-s", "-P", "-a", "192.0.2.2"]);
    let client = || program(&lab, "n1", &["rping", "-c", "-v", "-C", "3", "-a", "192.0.2.2"]);
    let before = sent("rxe0");
    serves(server(), client);
    assert!(sent("rxe0") > before, "the device carries it");
    // Messages of every kind, checked by programs that know nothing of labs.
    for words in [
        ["ib_send_bw", "-R", "-n", "50"],
        ["ib_write_bw", "-R", "-n", "50"],
        ["ib_read_bw", "-R", "-n", "50"],
        ["ib_send_lat", "-R", "-n", "50"],
        ["ib_atomic_bw", "-R", "-n", "50"],
    ] {
        served(&lab, &words);
    }

    // Within the lab all is as it was, beside such peers.
    let address = lab.exec("n2", ["hostname", "-i"]);
    let before = sent("rxe0");
    let inner = || program(&lab, "n1", &["rping", "-c", "-v", "-C", "3", "-a", address.trim()]);
    serves(program(&lab, "n2", &["rping", "-s", "-P"]), inner);
    assert_eq!(sent("rxe0"), before, "nothing of the lab goes by the machine's device");

    // A node whose networks have no such peers reaches none, and neither does one that is cut off.
    let mut listening = server().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
    let reaches = |node: &str| {
        let words = ["rping", "-c", "-C", "1", "-a", "192.0.2.2"];
        program(&lab, node, &words).output().expect("started").status.success()
    };
    await_that("the server listens", || reaches("n2"));
    assert!(!reaches("other"));
    // A connection that goes on and on ends with the link, though the server is there.
    let mut asking = program(&lab, "n1", &["rping", "-c", "-a", "192.0.2.2"]).stdout(Stdio::null()).spawn().unwrap();
    let before = sent("rxe0");
    await_that("it is served", || sent("rxe0") > before + 100);
    let said = slipway(&["fast", "status", "--flows", &lab.name]);
    assert!(said.contains("n1:") && said.contains("192.0.2.2:7174") && said.contains("device, outside"), "{said}");
    slipway(&["cut", &lab.name, "n1"]);
    asking.wait().expect("it ends");
    assert!(!reaches("n1"));
    assert!(reaches("n2"));
    slipway(&["heal", &lab.name, "n1"]);
    await_that("a healed node reaches it", || reaches("n1"));

    // A gateway that is killed is followed by another.
    let before = gateways();
    assert_eq!(before.len(), 1);
    on_machine(&["kill", "-KILL", &before[0]]);
    await_that("the next gateway runs", || !gateways().is_empty() && gateways() != before);
    await_that("the next one reaches it", || reaches("n1"));
    listening.kill().expect("it runs");
    listening.wait().expect("it ends");

    drop(lab);
    let name = place.name("outside");
    place.run(["down", &name]);
    assert_eq!(gateways(), [""; 0]);
}
