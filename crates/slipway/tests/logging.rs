//! Logs under `-v`, `-vv` and `SLIPWAY_LOG`, of the command and of a lab's processes.

mod common;

use std::fs;

use common::Place;

const FAST: &str = "hosts: 2\nnetworks: {net: fast}\nnodes: {n: {count: 2}}\n";

fn log(place: &Place, lab: &str, name: &str) -> String {
    fs::read_to_string(place.path().join("state").join(place.name(lab)).join(name)).expect("the log can be read")
}

#[test]
fn nothing_is_logged_unless_asked() {
    let place = Place::new();
    let file = place.file("quiet", FAST);
    let output = place.slipway(["--quiet", "up"]).arg(file).output().expect("slipway can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    place.run(["exec", &place.name("quiet"), "n1", "--", "true"]);
    assert_eq!(log(&place, "quiet", "anchor.log"), "");
    assert!(!log(&place, "quiet", "fast.log").contains("call{"), "{}", log(&place, "quiet", "fast.log"));
}

#[test]
fn each_process_logs_its_spans_with_their_durations() {
    let place = Place::new();
    let file = place.file("loud", FAST);
    let lab = place.name("loud");
    let filter = "slipway_engine=debug,slipway_fast=debug,slipway_wire=debug,slipway_sys=trace";
    let output = place.slipway(["up"]).arg(file).env("SLIPWAY_LOG", filter).output().expect("slipway can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("up{{lab={lab}}}: slipway_engine::lab::up: close time.busy=")), "{said}");

    place.run(["set", &lab, "n1", "delay=1ms"]);
    place.run(["exec", &lab, "n2", "--", "bash", "-c", "exec 3<>/dev/tcp/n1/9 || true"]);
    place.run(["kill", &lab, "n1"]);
    let anchor = log(&place, "loud", "anchor.log");
    for span in [
        "bear{nodes=2}: slipway_engine::anchor::birth::start: close time.busy=",
        "netlink{requests=",
        "start{host=host2}: slipway_engine::fast::process: close time.busy=",
        "request{what=\"changing links\"}: slipway_engine::protocol::server: close time.busy=",
        "request{what=\"ending nodes\"}: slipway_engine::protocol::server: close time.busy=",
        "wire: slipway_wire::shuttle: taken request=Set",
    ] {
        assert!(anchor.contains(span), "{span} is not in\n{anchor}");
    }
    let connect = "}: slipway_fast::call: served answer=";
    let routers = log(&place, "loud", "fast.log");
    assert!(routers.contains(connect), "{connect} is not in\n{routers}");
}

#[test]
fn arguments_and_environment_stay_out_of_logs() {
    let place = Place::new();
    let text = "nodes: {n: {command: [sleep, '86419'], env: {TOKEN: hidden-in-env}}}\n";
    let file = place.file("secret", text);
    let lab = place.name("secret");
    let trace = |words: &[&str]| {
        let output = place.slipway(words).env("SLIPWAY_LOG", "trace").output().expect("slipway can be started");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let file = file.to_string_lossy().into_owned();
    let said = [trace(&["up", &file]), trace(&["exec", &lab, "n", "--", "echo", "hidden-in-argument"])].concat();
    let all = said + &log(&place, "secret", "anchor.log");
    for secret in ["hidden-in-env", "hidden-in-argument", "86419"] {
        assert!(!all.contains(secret), "{secret} is in\n{all}");
    }
}
