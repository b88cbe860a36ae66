//! What runs leave behind of the conditions they ran under: links measured beforehand, and scenarios beside a comparison.
//! How late a busy machine is decides no test here: what was asked is compared, and links that are off are off by a dead wire.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use common::{Lab, Place, entries, told};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use slipway_measure::check::CheckedPath;
use slipway_measure::play::{Line, Outcome, Played};
use slipway_measure::record::Comparison;

const FAR: &str =
    "mechanism: wire\nnetworks: {net: {driver: bridge, conditions: {delay: 5ms}}}\nnodes: {n: {count: 2}}\n";

fn read(place: &Place, file: &str) -> String {
    fs::read_to_string(place.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Both ways between two nodes 5 ms apart.
#[track_caller]
fn are_far(checks: &[CheckedPath]) {
    let paths: Vec<(&str, &str)> = checks.iter().map(|path| (path.from.as_str(), path.to.as_str())).collect();
    assert_eq!(paths, [("n1", "n2"), ("n2", "n1")]);
    for path in checks {
        let delay = path.checks.iter().find(|check| check.what == "delay").expect("the delay is checked");
        assert!(delay.asked >= 0.005 && delay.measured >= 0.005 && delay.within.1 > delay.asked, "{delay:?}");
        assert_eq!((path.mechanism.as_str(), path.network.as_str()), ("wire", "net"));
    }
}

/// Kills the process that carries the lab's frames: nothing arrives any more, whatever was asked.
fn kill_wire(lab: &Lab<'_>) {
    let anchor = lab.place.json(["inspect", &lab.name])["state"]["anchor"]["pid"].as_i64().expect("a pid");
    let is_wire = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains("(slipway-wire)")
            && stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok()) == Some(anchor)
    };
    let mut pids = entries("/proc".as_ref()).filter_map(|path| path.file_name()?.to_str()?.parse().ok());
    let wire = pids.find(is_wire).expect("the lab has a wire");
    kill_process(Pid::from_raw(wire).expect("a pid"), Signal::KILL).expect("it can be killed");
}

#[test]
fn a_run_keeps_what_was_measured_of_its_links() {
    let place = Place::new();
    let lab = place.up("run", FAR);
    let name = lab.name.as_str();
    place.run(["run", name, "--verify=5s", "--out", "kept", "--", "true"]);
    let checks: Vec<CheckedPath> = serde_json::from_str(&read(&place, "kept/checks.json")).expect("a list of paths");
    are_far(&checks);
    assert!(read(&place, "kept/checks.md").contains("| n1->n2 | delay | 5."), "for people too");
    // Its exit code says how late this machine was.
    let verified = place.slipway(["--json", "verify", name, "--packets", "20"]).output().expect("it starts");
    are_far(&serde_json::from_slice::<Vec<CheckedPath>>(&verified.stdout).expect("the same form"));

    place.run(["run", name, "--out", "without", "--", "true"]);
    assert!(!place.path().join("without/checks.json").exists(), "only where it is asked for");
    place.fails(2, ["run", name, "--strict", "--", "true"]);

    kill_wire(&lab);
    let output = place.slipway(["run", name, "--verify=1s", "--out", "off", "--", "true"]).output().expect("it starts");
    assert!(output.status.success(), "it is told, and no failure: {}", told(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("loss of n1->n2 was not as asked"), "{}", told(&output));
    let error = place.fails(5, ["run", name, "--verify=1s", "--strict", "--out", "strict", "--", "true"]);
    assert!(error.contains("0 as asked, 2 not"), "{error}");
    place.fails(3, ["run", name, "--verify=1s", "--strict", "--out", "failed", "--", "sh", "-c", "exit 3"]);
}

#[test]
fn a_run_on_links_without_conditions_has_nothing_to_verify() {
    let place = Place::new();
    let lab = place.up("plain", "nodes: {n: {count: 2}}\n");
    let words = ["run", &lab.name, "--verify", "--strict", "--out", "kept", "--", "true"];
    let output = place.slipway(words).output().expect("it starts");
    assert!(output.status.success(), "{}", told(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing to verify"), "{}", told(&output));
    assert!(!place.path().join("kept/checks.json").exists());
}

#[test]
fn ctrl_c_while_links_are_measured_ends_it_and_takes_the_lab_down() {
    let place = Place::new();
    // So slow that the train alone takes most of a minute.
    let file =
        place.file("slow", "networks: {net: {driver: bridge, conditions: {rate: 10kbit}}}\nnodes: {n: {count: 2}}\n");
    let file = file.to_str().expect("a path in UTF-8");
    for words in [
        &["run", file, "--verify=100s", "--", "true"][..],
        &["compare", file, "--drivers", "bridge", "--verify=100s", "--", "true"],
    ] {
        let mut child = place.slipway(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        assert!(said.any(|line| line.is_ok_and(|line| line == "measuring")), "{words:?}: it measures");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::INT).expect("it is there");
        assert_eq!(child.wait().expect("it ends").code(), Some(130), "{words:?}: {:?}", said.collect::<Vec<_>>());
        assert_eq!(place.json(["ps"])["labs"], serde_json::json!([]), "{words:?}: the lab is down");
    }
}

#[test]
fn a_playing_keeps_what_was_measured_of_its_links() {
    let place = Place::new();
    let lab = place.up("play", FAR);
    fs::write(place.path().join("cut.yaml"), "events:\n  - {at: 0s, cut: n2, for: 10ms}\n").expect("it can be written");
    place.run(["play", &lab.name, "cut.yaml", "--verify=5s", "--out", "log"]);
    let played = Played::read(&read(&place, "log/events.jsonl")).expect("a log");
    are_far(&played.begin.checks);
    assert!(read(&place, "log/timeline.html").contains("measured before it began"));
    fs::remove_file(place.path().join("log/timeline.html")).expect("it is there");
    place.run(["play", "--report", "log"]);
    assert!(read(&place, "log/timeline.html").contains("measured before it began"), "from the log alone");

    kill_wire(&lab);
    place.fails(5, ["play", &lab.name, "cut.yaml", "--verify=1s", "--strict", "--out", "off", "--", "true"]);
    assert!(read(&place, "off/timeline.html").contains("was not as asked"));
    place.fails(2, ["play", &lab.name, "cut.yaml", "--verify", "--plan"]);
}

#[test]
fn a_comparison_under_conditions_measures_them_first() {
    let place = Place::new();
    let file = place.file("under", "mechanism: wire\nnodes: {n: {count: 2}}\n");
    let words =
        ["--drivers", "bridge", "--repeat", "1", "--warm-up", "0", "--under", "near:", "--under", "far: delay=5ms"];
    let compare = |more: &[&'static str]| {
        place.run(["compare".as_ref(), file.as_os_str()].into_iter().chain(words.iter().chain(more).map(AsRef::as_ref)))
    };
    compare(&["--out", "checked", "--", "true"]);
    let comparison = Comparison::read(&read(&place, "checked/records.jsonl")).expect("records");
    are_far(&comparison.begin.checks);
    assert!(comparison.begin.checks.iter().all(|path| path.under == "far"), "{:?}", comparison.begin.checks);
    let report = read(&place, "checked/report.html");
    assert!(report.contains("measured before it began") && report.contains("(far)"));
    let summary: Value = serde_json::from_str(&read(&place, "checked/summary.json")).expect("JSON");
    assert_eq!(summary["checks"].as_array().map(Vec::len), Some(2));

    compare(&["--verify=0s", "--out", "unchecked", "--", "true"]);
    let comparison = Comparison::read(&read(&place, "unchecked/records.jsonl")).expect("records");
    assert!(comparison.begin.checks.is_empty() && !read(&place, "unchecked/report.html").contains("measured before"));
}

#[test]
fn a_comparison_plays_a_scenario_beside_every_job() {
    let place = Place::new();
    let file = place.file("scenario", "nodes: {n: {count: 3}}\n");
    let events = "events:\n  - {at: 100ms, set: {delay: 1ms}, nodes: n1}\n  - {at: 200ms, kill: n2, how: hard}\n  - {at: 1h, cut: n3}\n";
    fs::write(place.path().join("kill.yaml"), events).expect("it can be written");
    // It ends once n2 is dead: before the event is due, if n2 had not come back from the run before.
    let job = "while ping -q -c1 -W2 n2 >/dev/null; do :; done";
    let words =
        ["--drivers", "bridge,vxlan", "--repeat", "2", "--warm-up", "0", "--scenario", "kill.yaml", "--out", "played"];
    let words = words.into_iter().chain(["--", "sh", "-c", job]);
    place.run(["compare".as_ref(), file.as_os_str()].into_iter().chain(words.map(AsRef::as_ref)));
    let comparison = Comparison::read(&read(&place, "played/records.jsonl")).expect("records");
    let scenario = comparison.begin.scenario.as_ref().expect("it says what was played");
    assert_eq!((scenario.file.as_str(), scenario.events, scenario.nodes.len()), ("kill.yaml", 3, 3));
    assert_eq!(comparison.measurements.len(), 4);
    for measurement in &comparison.measurements {
        assert_eq!(measurement.error, None);
        let outcomes: Vec<(&str, &Outcome)> = measurement
            .played
            .iter()
            .filter_map(
                |line| if let Line::Event(event) = line { Some((event.kind.as_str(), &event.outcome)) } else { None },
            )
            .collect();
        assert!(matches!(outcomes[1], ("kill", Outcome::Done { .. })), "n2 was back for every job: {outcomes:?}");
        assert!(matches!(outcomes[2], ("cut", Outcome::Unplayed { .. })), "it ended with the job: {outcomes:?}");
        assert!(matches!(measurement.played.last(), Some(Line::End(end)) if end.why == "the job has ended"));
    }
    let report = read(&place, "played/report.html");
    assert!(report.contains("What was played") && report.contains("kill.yaml, seed 0"), "{report}");
    Played::read(&read(&place, "played/scenario/4/events.jsonl")).expect("the whole log of the last");
    assert_eq!(place.json(["ps"])["labs"], serde_json::json!([]), "and the labs are down");
}

#[test]
fn a_comparison_refuses_a_scenario_that_cannot_be_before_anything_is_up() {
    let place = Place::new();
    let file = place.file("wrong", "nodes: {n: {count: 2}}\n");
    let file = file.to_str().expect("a path in UTF-8");
    assert!(place.fails(2, ["compare", file, "--scenario", "--", "true"]).contains("find a scenario"));
    fs::write(place.path().join("unknown.yaml"), "events:\n  - {at: 0s, kill: n9}\n").expect("it can be written");
    place.fails(2, ["compare", file, "--scenario", "unknown.yaml", "--", "true"]);
    assert!(entries(place.path()).all(|path| !path.to_string_lossy().contains("slipway-results")), "nothing was made");
}
