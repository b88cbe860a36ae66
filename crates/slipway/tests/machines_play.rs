//! Scenarios over several machines: each plays its own part, by its own clock.

mod common;

use std::process::{Child, Stdio};

use common::machines::Machines;
use common::{await_that, told};
use serde_json::Value;

/// The lines of a log.
fn log(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn of_type<'a>(log: &'a [Value], kind: &str) -> Vec<&'a Value> {
    log.iter().filter(|line| line["type"] == kind).collect()
}

/// The log of a machine's own part.
fn part(machines: &Machines, machine: &str, lab: &str) -> Option<String> {
    std::fs::read_to_string(machines.path().join(machine).join("state").join(lab).join("scenario/events.jsonl")).ok()
}

/// Starts a playing on machine a, and waits until every part has begun its first event.
fn playing(machines: &Machines, lab: &str) -> Child {
    let mut play = machines.slipway(0, ["play", lab, "--out"]);
    play.arg(machines.path().join("out"));
    let play = play.stdout(Stdio::null()).spawn().expect("slipway can be started");
    for machine in ["a", "b", "c"] {
        await_that("the machine plays", || {
            part(machines, machine, lab).is_some_and(|log| log.contains(r#""type":"event""#))
        });
    }
    play
}

/// Whether a part has ended, and taken its changes back.
fn is_over(machines: &Machines, machine: &str, lab: &str) -> bool {
    part(machines, machine, lab).is_some_and(|log| log.contains(r#""type":"end""#))
}

const SCENARIO: &str = "\
networks: {net: vxlan}
nodes: {n: {count: 6}}
scenario:
  length: 1500ms
  events:
    - {at: 0s, set: {delay: 20ms}, nodes: n1}
    - {at: 300ms, freeze: 'n*', for: 300ms}
    - {at: 400ms, cut: n3}
    - {at: 700ms, run: {nodes: n2, command: [touch, /run/played]}}
    - {at: 900ms, kill: n5, how: hard}
";

#[test]
fn every_machine_plays_its_own_events_and_one_log_has_all() {
    let machines = Machines::new(3);
    let file = machines.file("wide", SCENARIO);
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    let out = machines.path().join("out");
    machines.run(1, ["play".as_ref(), "wide".as_ref(), "--out".as_ref(), out.as_os_str()]);
    let log = log(&std::fs::read_to_string(machines.path().join("out/events.jsonl")).expect("a log"));
    let events = of_type(&log, "event");
    assert_eq!(events.len(), 6, "the thaw is one: {log:#?}");
    assert!(events.iter().all(|event| event["outcome"] == "done"), "{events:#?}");
    let on = |number: u64| -> Vec<&str> {
        let event = events.iter().find(|event| event["number"] == number).expect("the event");
        event["machines"].as_array().unwrap().iter().map(|one| one["machine"].as_str().unwrap()).collect()
    };
    let number = |kind: &str| events.iter().find(|event| event["kind"] == kind).unwrap()["number"].as_u64().unwrap();
    assert_eq!(on(number("freeze")), ["a", "b", "c"]);
    assert_eq!(on(number("kill")), ["b"]);
    assert_eq!(on(number("cut")), ["c"]);
    assert_eq!(of_type(&log, "begin").len(), 1);
    let end = of_type(&log, "end")[0];
    assert_eq!(end["why"], "the scenario is over");
    for machine in ["a", "b", "c"] {
        assert!(of_type(&log, "clocks").iter().any(|line| line["machine"] == machine), "{log:#?}");
    }
    let program = of_type(&log, "program")[0];
    assert_eq!((&program["node"], &program["code"]), (&"n2".into(), &0.into()), "{log:#?}");
    // Its changes are taken back, and the node that it killed stays dead.
    let nodes: Value = serde_json::from_str(&machines.run(0, ["--json", "ps", "wide"])).expect("JSON");
    let status = |at: usize| nodes["nodes"][at]["status"].as_str().unwrap();
    assert_eq!((status(0), status(2), status(4)), ("running", "running", "dead"));
    machines.run(0, ["exec", "wide", "n1", "--", "ping", "-q", "-c1", "-W5", "n3"]);
    machines.run(0, ["down", "wide"]);
    assert_eq!(machines.remains(), [""; 0]);
}

const LONG: &str = "\
networks: {net: vxlan}
nodes: {n: {count: 3}}
scenario:
  length: 2500ms
  events:
    - {at: 0s, freeze: 'n*'}
    - {at: 2s, thaw: 'n*'}
";

#[test]
fn a_scenario_outlives_its_coordinator_and_its_connections() {
    let machines = Machines::new(3);
    let file = machines.file("long", LONG);
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    let mut play = playing(&machines, "long");
    play.kill().expect("it can be killed");
    play.wait().expect("it ends");
    for machine in ["a", "b", "c"] {
        await_that("the part plays to its end", || is_over(&machines, machine, "long"));
        let log = log(&part(&machines, machine, "long").unwrap());
        let thawed = of_type(&log, "event").into_iter().find(|event| event["kind"] == "thaw").expect("its event");
        assert_eq!(thawed["outcome"], "done", "{log:#?}");
    }

    // The remote shell ends, and the coordinator fetches the log when the part is over.
    std::fs::rename(machines.path().join("out"), machines.path().join("first")).expect("it can be renamed");
    for machine in ["a", "b", "c"] {
        let events = machines.path().join(machine).join("state/long/scenario/events.jsonl");
        std::fs::remove_file(events).expect("it is there");
    }
    let play = playing(&machines, "long");
    let own = play.id().to_string();
    let found = std::process::Command::new("pgrep").args(["-P", &own, "-x", "ssh"]).output().expect("pgrep runs");
    let shell = String::from_utf8(found.stdout).expect("numbers").lines().next().expect("one leads to b").to_owned();
    let pid = rustix::process::Pid::from_raw(shell.parse().expect("a number")).expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it can be killed");
    let output = play.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", told(&output));
    let log = log(&std::fs::read_to_string(machines.path().join("out/events.jsonl")).expect("a log"));
    for event in of_type(&log, "event") {
        assert_eq!((&event["outcome"], event["machines"].as_array().unwrap().len()), (&"done".into(), 3), "{event}");
    }
    machines.run(0, ["down", "long"]);
    assert_eq!(machines.remains(), [""; 0]);
}

#[test]
fn an_interrupt_takes_everything_back_everywhere() {
    let machines = Machines::new(3);
    let text = "networks: {net: vxlan}\nnodes: {n: {count: 3}}\nscenario:\n  length: 10min\n  events:\n    - {at: 0s, freeze: 'n*'}\n";
    let file = machines.file("stop", text);
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    let play = playing(&machines, "stop");
    let pid = rustix::process::Pid::from_raw(i32::try_from(play.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it can be interrupted");
    let output = play.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    let nodes: Value = serde_json::from_str(&machines.run(0, ["--json", "ps", "stop"])).expect("JSON");
    let all: Vec<&str> =
        nodes["nodes"].as_array().unwrap().iter().map(|node| node["status"].as_str().unwrap()).collect();
    assert_eq!(all, ["running"; 3]);
    let log = log(&std::fs::read_to_string(machines.path().join("out/events.jsonl")).expect("a log"));
    assert_eq!(of_type(&log, "end")[0]["why"], "interrupted by SIGINT");
    assert_eq!(of_type(&log, "restored").len(), 3, "{log:#?}");

    // One that cannot begin has none begin.
    machines.run(1, ["down", "stop", "--part"]);
    let said = machines.fails(0, 1, ["play", "stop", "--out", &machines.path().join("none").display().to_string()]);
    assert!(said.contains("failed to play the scenario on machine b"), "{said}");
    machines.run(0, ["down", "stop"]);
    assert_eq!(machines.remains(), [""; 0]);
}
