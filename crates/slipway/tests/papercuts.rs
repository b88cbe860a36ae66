//! Small promises of the command line: reports of changes, dry runs, suggestions, and places of results. Labs go down
//! with the command that brought them up.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use common::{Place, await_that, told};
use rustix::process::{Pid, Signal, kill_process};

const TWO: &str = "nodes: {n: {count: 2}}\n";

#[test]
fn commands_say_what_they_did_not_change() {
    let place = Place::new();
    let lab = place.up("same", TWO);
    let name = &lab.name;
    let unchanged = |what: &str| format!("unchanged: {what} of lab {name}\n");
    assert_eq!(place.run(["start", name, "n1"]), unchanged("n1"));
    assert_eq!(place.run(["thaw", name, "n1"]), unchanged("n1"));
    assert_eq!(place.run(["heal", name]), unchanged("nothing"));
    assert_eq!(place.run(["heal", name, "n1"]), unchanged("n1:eth0"));
    place.run(["freeze", name, "n1"]);
    assert_eq!(place.run(["freeze", name, "n1", "n2"]), format!("frozen n2 of lab {name}\n{}", unchanged("n1")));
    assert_eq!(place.run(["thaw", name, "n*", "--dry-run"]), format!("would thaw n1, n2 of lab {name}\n"));
    place.run(["cut", name, "n1"]);
    let cut = place.json(["cut", name, "n1", "n2"]);
    assert_eq!(cut["unchanged"], serde_json::json!(["n1:eth0"]));
}

#[test]
fn a_key_of_another_tool_is_told_by_this_tools_name() {
    let place = Place::new();
    let lab = place.up("words", TWO);
    for (theirs, ours) in [("latency=5ms", "`delay`"), ("bandwidth=1mbit", "`rate`"), ("packet_loss=1%", "`loss`")] {
        let error = place.fails(2, ["set", &lab.name, "n1", theirs]);
        assert!(error.contains(&format!("did you mean {ours}")), "{error}");
    }
    let macs = place.json(["inspect", &lab.name]);
    let mac = macs["lab"]["nodes"][0]["interfaces"][0]["mac"].as_str().expect("text").to_owned();
    assert_eq!((mac.len(), mac.matches(':').count()), (17, 5), "{mac}");
}

#[test]
fn a_dry_run_of_what_is_played_or_imported_changes_nothing() {
    let place = Place::new();
    let text = "nodes: {n: }\nscenario: {length: 60s, events: [{at: 50s, freeze: n}]}\n";
    let lab = place.up("dry", text);
    let name = lab.name.as_str();
    place.fails(4, ["pause", name, "--dry-run"]);
    assert!(place.run(["play", name, "--dry-run"]).contains("freeze"), "the schedule");
    let mut play = place.slipway(["play", name, "--out", "played"]).spawn().expect("slipway can be started");
    let events = place.path().join("played/events.jsonl");
    await_that("the scenario is played", || fs::read_to_string(&events).is_ok_and(|log| log.ends_with('\n')));
    assert_eq!(place.run(["pause", name, "--dry-run"]), format!("would pause the scenario of lab {name}\n"));
    assert_eq!(place.run(["resume", name, "--dry-run"]), format!("would resume the scenario of lab {name}\n"));
    let log = fs::read_to_string(&events).expect("the log");
    assert!(!log.contains("paused") && !log.contains("resumed"), "{log}");
    // Known by its hash, though it is in the lab's file and that was not read.
    let first: serde_json::Value = serde_json::from_str(log.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["scenario_sha256"].as_str().map(str::len), Some(64), "{first}");
    kill_process(Pid::from_child(&play), Signal::INT).expect("it can be ended");
    play.wait().expect("it ends");

    let platform = place.path().join("p.json");
    fs::write(&platform, r#"{"vplatform": {"vnodes": [{"name": "a", "vifaces": []}], "vnetworks": []}}"#)
        .expect("written");
    let words = ["import", "p.json", "--format", "distem", "-o", "out.yaml", "--dry-run"];
    let output = place.slipway(words).output().expect("slipway can be started");
    assert!(!place.path().join("out.yaml").exists(), "{}", told(&output));
}

#[test]
fn results_that_are_not_placed_go_to_one_folder() {
    let place = Place::new();
    let lab = place.up("kept", TWO);
    place.run(["run", &lab.name, "--", "true"]);
    let kept: Vec<_> = common::entries(&place.path().join("slipway-results")).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let mut command = place.slipway(["run", &lab.name, "--", "true"]);
    assert!(command.env("SLIPWAY_RESULTS", "elsewhere").status().expect("it starts").success());
    assert_eq!(common::entries(&place.path().join("elsewhere")).count(), 1);
}

#[test]
fn labs_of_a_command_that_is_killed_go_with_it() {
    let place = Place::new();
    let file = place.file("passing", TWO);
    let other = place.file("other", TWO);
    place.run(["up".as_ref(), other.as_os_str()]);
    let words = ["compare", "--drivers", "bridge,macvlan", "--repeat", "1", "--warm-up", "0"];
    let mut command = place.slipway(words);
    command.arg(file).args(["--", "sh", "-c", "echo measured >&2; sleep 600"]).stderr(Stdio::piped());
    let mut compare = command.spawn().expect("slipway can be started");
    let labs = || place.json(["ps"])["labs"].as_array().map_or(0, Vec::len);
    await_that("both labs and the one of before are up", || labs() == 3);
    // Its programs die with it, and so its standard error ends only when its labs' own processes let go of it.
    compare.kill().expect("it can be killed");
    compare.wait().expect("it ends");
    let mut said = BufReader::new(compare.stderr.take().expect("a pipe")).lines();
    while said.next().is_some() {}
    await_that("its labs are down", || labs() == 1);
    let left = place.json(["ps"]);
    assert!(left.to_string().contains(&place.name("other")), "{left}");
}

#[test]
fn a_comparison_leaves_a_lab_alone_that_was_there_before() {
    let place = Place::new();
    let file = place.file("mine", TWO);
    let same = fs::read_to_string(&file).expect("the file").replace("-mine", "-mine-bridge");
    fs::write(place.path().join("same.yaml"), same).expect("written");
    place.run(["up", "same.yaml"]);
    let words = ["compare", "--drivers", "bridge,macvlan", "--repeat", "1", "--warm-up", "0"];
    let output = place.slipway(words).arg(file).args(["--", "true"]).output().expect("slipway can be started");
    assert!(told(&output).contains("leaving out driver bridge"), "{}", told(&output));
    assert_eq!(place.json(["ps"])["labs"].as_array().map_or(0, Vec::len), 1, "it still runs");
}

#[test]
fn networks_without_a_subnet_are_one_error() {
    let place = Place::new();
    let networks = (0..200).map(|i| format!("  net{i}: bridge\n")).collect::<Vec<_>>().concat();
    let text = format!("networks:\n{networks}nodes: {{n: {{networks: [net0, net199]}}}}\n");
    let file = place.file("many", &text);
    let error = place.fails(2, ["up".as_ref(), file.as_os_str()]);
    assert_eq!(error.matches("no subnet is left").count(), 1, "{error}");
    assert!(error.contains("1 error") || !error.contains("errors"), "{error}");
}
