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

/// Starts a playing on machine a, and waits until every part has begun its first event. `more` are its last words.
fn playing(machines: &Machines, lab: &str, more: &[&str]) -> Child {
    let mut play = machines.slipway(0, ["play", lab, "--out"]);
    play.arg(machines.path().join("out")).args(more);
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
    let mut play = playing(&machines, "long", &[]);
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
    let play = playing(&machines, "long", &[]);
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
    let play = playing(&machines, "stop", &[]);
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

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it can be killed");
}

/// The number of programs that sleep for so long, in all nodes.
fn sleepers(long: &str) -> usize {
    let output = std::process::Command::new("pgrep").args(["-fc", &format!("^sleep {long}")]).output();
    String::from_utf8_lossy(&output.expect("pgrep can be started").stdout).trim().parse().expect("a count")
}

#[test]
fn a_job_on_all_machines_plays_beside_the_scenario() {
    let machines = Machines::new(3);
    let text = "\
networks: {net: vxlan}
nodes: {n: {count: 3}}
scenario:
  length: 400ms
  events:
    - {at: 0s, cut: n3}
    - {at: 300ms, run: {nodes: 'n*', command: [touch, /run/go]}}
";
    let file = machines.file("beside", text);
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    let out = |name: &str| machines.path().join(name);
    let log_of = |name: &str| log(&std::fs::read_to_string(out(name).join("events.jsonl")).expect("a log"));

    // Conditions of the scenario's end hold until the job's.
    let wait = "until [ -e /run/go ]; do sleep 0.02; done; sleep 0.5; echo seen by $(hostname)";
    let mut play = machines.slipway(0, ["play", "beside", "--out", out("job").to_str().expect("text")]);
    let output = play.args(["--", "sh", "-c", wait]).output().expect("slipway can be started");
    assert!(output.status.success(), "{}", told(&output));
    for node in ["n1", "n2", "n3"] {
        assert!(told(&output).contains(&format!("{node} | seen by {node}")), "{}", told(&output));
    }
    let lines = log_of("job");
    assert_eq!(of_type(&lines, "end")[0]["why"], "the job has ended");
    assert!(of_type(&lines, "event").iter().all(|event| event["outcome"] == "done"), "{lines:#?}");
    assert!(of_type(&lines, "restored").iter().all(|line| line["at"].as_u64() > Some(500_000_000)), "{lines:#?}");
    for machine in ["a", "b", "c"] {
        let own = log(&part(&machines, machine, "beside").expect("its log"));
        assert_eq!(of_type(&own, "end")[0]["why"], "the job has ended", "{own:#?}");
    }

    // The scenario ends the job, wherever it is; a job that fails gives its code.
    let long = format!("7{}", std::process::id());
    let words = ["play", "beside", "--until", "scenario", "--out"];
    let mut play = machines.slipway(1, words);
    let output = play.arg(out("scenario")).args(["--", "sleep", &long]).output().expect("slipway can be started");
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(
        (sleepers(&long), of_type(&log_of("scenario"), "end")[0]["why"].as_str()),
        (0, Some("the scenario is over"))
    );
    let code = "until [ -e /run/go ]; do sleep 0.02; done; test $(hostname) != n3 || exit 7";
    let mut play = machines.slipway(0, ["play", "beside", "--until", "both", "--out"]);
    let output = play.arg(out("both")).args(["--", "sh", "-c", code]).output().expect("slipway can be started");
    assert_eq!(output.status.code(), Some(7), "{}", told(&output));
    assert_eq!(of_type(&log_of("both"), "end")[0]["why"], "the scenario is over and the job has ended");

    // With the coordinator the job ends, and the parts play on to the scenario's end.
    let mut play = playing(&machines, "beside", &["--", "sleep", &long]);
    await_that("the job runs", || sleepers(&long) == 3);
    play.kill().expect("it can be killed");
    play.wait().expect("it ends");
    for machine in ["a", "b", "c"] {
        await_that("the part ends", || is_over(&machines, machine, "beside"));
        let own = log(&part(&machines, machine, "beside").expect("its log"));
        assert_eq!(of_type(&own, "end")[0]["why"], "the scenario is over", "{own:#?}");
    }
    await_that("the job has ended", || sleepers(&long) == 0);
    machines.run(0, ["down", "beside"]);
    assert_eq!(machines.remains(), [""; 0]);
}

#[test]
fn a_scenario_is_resumed_where_its_coordinator_and_a_player_were_killed() {
    let machines = Machines::new(3);
    let file = machines.file("again", LONG);
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    let mut play = playing(&machines, "again", &[]);
    play.kill().expect("it can be killed");
    play.wait().expect("it ends");
    let players = machines.pids(1, "machine --player");
    players.into_iter().for_each(kill);
    let said = machines.fails(2, 4, ["play", "--resume", "again"]);
    assert!(said.contains("this machine's `slipway play` began none"), "{said}");

    machines.run(0, ["play", "--resume", "again"]);
    let lines = log(&std::fs::read_to_string(machines.path().join("out/events.jsonl")).expect("a log"));
    let events = of_type(&lines, "event");
    assert_eq!(events.len(), 2, "{lines:#?}");
    for event in events {
        assert_eq!((&event["outcome"], event["machines"].as_array().expect("a list").len()), (&"done".into(), 3));
    }
    // The machine's clock went on without its player.
    let own = log(&part(&machines, "b", "again").expect("its log"));
    let thaw = of_type(&own, "event").into_iter().find(|event| event["kind"] == "thaw").expect("its event");
    assert!(thaw["done"].as_u64() >= Some(2_000_000_000), "{own:#?}");
    assert!(of_type(&own, "clock")[0]["why"].as_str().expect("text").contains("player was killed"), "{own:#?}");
    assert_eq!(of_type(&lines, "end")[0]["why"], "the scenario is over");
    assert!(machines.path().join("out/timeline.html").exists());
    let said = machines.fails(0, 4, ["play", "--resume", "again"]);
    assert!(said.contains("go on with a scenario on lab `again`"), "{said}");
    machines.run(0, ["down", "again"]);
    assert_eq!(machines.remains(), [""; 0]);
}
