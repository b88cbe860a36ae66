//! Nodes whose own programs route: the example of two routers of FRR. Needs root and the packages of `scripts/setup.sh test`.

mod common;

use std::path::Path;
use std::process::Stdio;

use common::{Lab, Place, await_that};
use serde_json::Value;

/// Where a router sends packets for `b`, as its kernel has it.
fn way(lab: &Lab<'_>, router: &str) -> String {
    let output = lab.program(router, ["ip", "-o", "route", "get", "10.2.0.1"]).output().expect("started");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn neighbours(lab: &Lab<'_>) -> usize {
    let output = lab.program("r1", ["vtysh", "-c", "show ip ospf neighbor json"]).output().expect("started");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let lists = answer["neighbors"].as_object().into_iter().flat_map(serde_json::Map::values);
    let all = lists.filter_map(Value::as_array).flatten();
    all.filter(|one| one.to_string().contains("Full")).count()
}

/// The sequence number of what r2 tells of its links (its router-LSA), as a router has it.
fn told_by_r2(lab: &Lab<'_>, at: &str) -> Option<String> {
    let show = ["vtysh", "-c", "show ip ospf database router adv-router 10.4.0.2"];
    let output = lab.program(at, show).output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.trim().strip_prefix("LS Seq Number:").map(str::to_owned))
}

/// A line of text through a connection from `a` to `b`.
#[track_caller]
fn talks(lab: &Lab<'_>) {
    let server = lab.program("b", ["socat", "-u", "TCP-LISTEN:7000,reuseaddr", "-"]).stdout(Stdio::piped()).spawn();
    let server = server.expect("started");
    lab.listens("b", 7000);
    lab.exec("a", ["sh", "-c", "echo through both routers | socat -u - TCP:b:7000"]);
    let heard = server.wait_with_output().expect("it ends").stdout;
    assert_eq!(String::from_utf8_lossy(&heard), "through both routers\n");
}

#[test]
fn two_routers_find_the_ways_and_find_others() {
    let place = Place::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ospf");
    std::fs::copy(folder.join("router.conf"), place.path().join("router.conf")).expect("copied");
    let lab = place.up("ospf", &std::fs::read_to_string(folder.join("ospf.yaml")).expect("read"));
    let name = lab.name.as_str();
    await_that("both links have neighbours", || neighbours(&lab) == 2);
    await_that("both learn the way", || {
        way(&lab, "r1").contains("dev eth1") && lab.exec("r2", ["ip", "route"]).contains("10.1.0.0/24")
    });
    assert!(lab.pings("a", "b"));
    talks(&lab);
    // Slipway gave them no routes, and says that it knows none.
    let r1 = place.json(["inspect", name, "r1"]);
    assert_eq!(r1["node"]["routes"].as_array().map(Vec::len), Some(0), "{r1}");
    let said = place.fails(2, ["verify", name, "a->b"]);
    assert!(said.contains("route by themselves"), "{said}");

    place.run(["cut", name, "r1:eth1"]);
    await_that("they take the other link", || way(&lab, "r1").contains("dev eth2"));
    await_that("both ways", || lab.exec("r2", ["ip", "route", "get", "10.1.0.1"]).contains("dev eth2"));
    assert!(lab.pings("a", "b"));
    place.run(["heal", name]);
    await_that("they go back", || way(&lab, "r1").contains("dev eth1"));

    // No reply comes from where its only neighbour is gone: the way to it is forgotten.
    place.run(["kill", name, "r2"]);
    await_that("the way is forgotten", || way(&lab, "r1").is_empty());
    place.run(["start", name, "r2"]);
    // Until r2 has told it anew, r1 believes what r2 told before it was killed, and forgets the way once more.
    await_that("r1 has heard what r2 says now", || {
        told_by_r2(&lab, "r1").is_some_and(|heard| told_by_r2(&lab, "r2") == Some(heard))
    });
    await_that("it is found again", || way(&lab, "r1").contains("dev eth1"));
    await_that("both ways", || lab.exec("r2", ["ip", "route"]).contains("10.1.0.0/24"));
    talks(&lab);
}
