//! Scenarios, played on real labs through the command: what happens, what the log says of it, and what is left.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Instant;

use common::{Inventory, Lab, Place, as_before, await_that, told};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};
use slipway_measure::play::{Change, Line, Outcome, Played};

const FOUR: &str = "nodes: {n: {count: 4}}\n";

/// Writes a scenario's file.
fn scenario(place: &Place, name: &str, text: &str) -> PathBuf {
    let path = place.path().join(format!("{name}.yaml"));
    std::fs::write(&path, text).expect("a scenario can be written");
    path
}

/// The log of a folder that `slipway play --out` made.
#[track_caller]
fn log(place: &Place, folder: &str) -> Played {
    let path = place.path().join(folder).join("events.jsonl");
    let text = std::fs::read_to_string(&path).expect("there is a log");
    Played::read(&text).expect("the log is what it should be")
}

/// Every event is in the log once, none acted before it was due, and the log has its end.
#[track_caller]
fn accounts_for_all(played: &Played) {
    let numbers: BTreeSet<usize> = played.events().map(|event| event.number).collect();
    assert_eq!(played.events().count(), numbers.len(), "once each: {played:#?}");
    assert_eq!(numbers.len(), played.begin.events, "all of them: {played:#?}");
    for event in played.events() {
        assert!(event.begun.is_none_or(|begun| begun >= event.due), "{event:?}");
    }
    assert!(played.end().is_some(), "{played:#?}");
}

fn events<'a>(played: &'a Played, kind: &str) -> Vec<&'a Outcome> {
    played.events().filter(|event| event.kind == kind).map(|event| &event.outcome).collect()
}

/// Starts `slipway play` with `--out log`.
fn playing(lab: &Lab<'_>, file: &str, more: &[&str]) -> Child {
    let mut play = lab.place.slipway(["play", &lab.name, file, "--out", "log"]);
    play.args(more).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("slipway can be started")
}

/// Waits until the log of [`playing`] has so many events.
#[track_caller]
fn await_events(place: &Place, count: usize) {
    let path = place.path().join("log/events.jsonl");
    let has = || std::fs::read_to_string(&path).ok().and_then(|text| Played::read(&text).ok());
    await_that("events are played", || has().is_some_and(|played| played.events().count() >= count));
}

fn signal(process: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(process.id()).expect("pids are small")).expect("not zero");
    kill_process(pid, signal).expect("the process is there");
}

/// A scenario of everything, in half a second.
fn random_scenario(random: &mut ChaCha8Rng) -> String {
    let mut text = String::from("length: 500ms\nevents:\n");
    for _ in 0..random.random_range(5..15) {
        let at = random.random_range(0..400);
        let node = random.random_range(1..=4);
        let held = format!("for: {}ms", random.random_range(10..200));
        let event = match random.random_range(0..11) {
            0 => format!("set: {{delay: {}ms}}, nodes: n{node}, {held}", random.random_range(1..20)),
            1 => format!("set: {{loss: 1%, rate: 10mbit}}, interfaces: 'n{node}:eth0', direction: ingress"),
            2 => format!("set: {{delay: 5ms}}, between: [n{node}, n], {held}"),
            3 => format!("set: {{cpu: {}%}}, nodes: n{node}, {held}", random.random_range(10..90)),
            4 => format!("cut: n{node}, {held}"),
            5 => format!("partition: [n{node}, rest], {held}"),
            6 => format!("freeze: n{node}, {held}"),
            7 => format!("kill: n{node}, how: {}, for: 50ms", ["soft", "hard"][random.random_range(0..2)]),
            8 => format!("kill: n{node}, how: graceful, grace: 100ms"),
            9 => format!("start: n{node}"),
            _ => format!("run: {{nodes: n{node}, command: sleep 0.1}}"),
        };
        writeln!(text, "  - {{at: {at}ms, {event}}}").expect("a string takes all");
    }
    text
}

#[test]
fn random_scenarios_are_accounted_for_and_leave_nothing() {
    let seed = std::env::var("SLIPWAY_TEST_SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse().expect("SLIPWAY_TEST_SEED is a number"));
    println!("to see the same again: SLIPWAY_TEST_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let place = Place::new();
    let before = Inventory::of(&place);
    let lab = place.up("random", FOUR);
    for round in 0..20 {
        let text = random_scenario(&mut random);
        let file = scenario(&place, "scenario", &text);
        let out = format!("out-{round}");
        let output = place.slipway(["play", &lab.name, file.to_str().expect("plain"), "--out", &out]).output();
        let output = output.expect("slipway can be started");
        assert!(output.status.success(), "round {round}: {text}{}", told(&output));
        accounts_for_all(&log(&place, &out));
        place.run(["restore", &lab.name, "--nodes"]);
        let inspected = place.json(["inspect", &lab.name]);
        for row in inspected["nodes"].as_array().expect("all nodes") {
            assert_eq!(row["status"], "running", "after round {round}: {text}");
        }
        assert!(lab.pings("n1", "n4") && lab.pings("n3", "n2"), "after round {round}: {text}");
    }
    lab.down();
    as_before(&place, &before, "after down");
}

/// A cut every 40 ms, for 10 s: long enough to be found in the midst of it.
const CUTS: &str = "events:\n  - {every: 40ms, times: 250, cut: n2, for: 20ms}\n  - {at: 10ms, freeze: n3}\n";

#[test]
fn a_killed_player_is_resumed() {
    let place = Place::new();
    let lab = place.up("resumed", FOUR);
    scenario(&place, "cuts", CUTS);
    let mut child = playing(&lab, "cuts.yaml", &[]);
    await_events(&place, 5);
    assert!(place.fails(1, ["play", &lab.name, "cuts.yaml"]).contains("is being played"));
    child.kill().expect("it can be killed");
    child.wait().expect("it has ended");

    let labs = place.json(["ps"]);
    assert_eq!(labs["labs"][0]["scenario"]["standing"], "interrupted", "{labs}");
    assert!(place.run(["ps"]).contains("interrupted at event "), "{}", place.run(["ps"]));
    assert_eq!(lab.row("n3")["status"], "frozen", "what was changed stays");
    let cut_short = log(&place, "log").events().count();

    place.run(["play", &lab.name, "--resume"]);
    let whole = log(&place, "log");
    accounts_for_all(&whole);
    assert!(whole.events().count() > cut_short);
    assert_eq!(lab.row("n3")["status"], "running", "and goes with the end");
    assert!(lab.pings("n1", "n2"));
    assert!(place.fails(4, ["play", &lab.name, "--resume"]).contains("the last one has ended"));
}

#[test]
fn a_killed_player_is_restored() {
    let place = Place::new();
    let lab = place.up("restored", "nodes: {n: {count: 5}}\n");
    scenario(
        &place,
        "mixed",
        "length: 1min\nevents:\n  - {at: 0s, cut: n2}\n  - {at: 10ms, set: {cpu: 20%}, nodes: n1}\n  - {at: 20ms, freeze: n3}\n  - {at: 30ms, kill: n4}\n",
    );
    let mut child = playing(&lab, "mixed.yaml", &[]);
    await_events(&place, 4);
    child.kill().expect("it can be killed");
    child.wait().expect("it has ended");
    assert!(lab.is_silent("n1", "n2", "n5"));

    place.run(["restore", &lab.name]);
    assert!(lab.pings("n1", "n2"));
    assert_eq!((&lab.row("n3")["status"], &lab.row("n4")["status"]), (&"running".into(), &"dead".into()));
    assert!(log(&place, "log").end().is_some_and(|end| end.why.contains("put back")));
    place.run(["restore", &lab.name, "--nodes"]);
    assert_eq!(lab.row("n4")["status"], "running");
    assert!(!place.run(["ps"]).contains("interrupted"));
}

#[test]
fn ctrl_c_ends_it_and_takes_changes_back() {
    let place = Place::new();
    let lab = place.up("interrupted", FOUR);
    scenario(&place, "long", "events:\n  - {at: 0s, cut: n2}\n  - {at: 1h, cut: n3}\n");
    let mut child = playing(&lab, "long.yaml", &[]);
    await_events(&place, 1);
    assert!(lab.is_silent("n1", "n2", "n3"));
    signal(&child, Signal::INT);
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(lab.pings("n1", "n2"));
    let played = log(&place, "log");
    accounts_for_all(&played);
    assert!(matches!(events(&played, "cut")[1], Outcome::Unplayed { .. }), "{played:#?}");
}

#[test]
fn a_pause_holds_the_clock() {
    let place = Place::new();
    let lab = place.up("paused", FOUR);
    scenario(&place, "later", "events:\n  - {at: 0s, cut: n2}\n  - {at: 1h, cut: n3}\n");
    assert!(place.fails(4, ["pause", &lab.name]).contains("there is none"));
    let mut child = playing(&lab, "later.yaml", &[]);
    await_events(&place, 1);
    place.run(["pause", &lab.name]);
    assert_eq!(place.json(["ps"])["labs"][0]["scenario"]["standing"], "paused");
    let paused = Instant::now();
    place.run(["resume", &lab.name]);
    let held = paused.elapsed();
    signal(&child, Signal::INT);
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let played = log(&place, "log");
    accounts_for_all(&played);
    let clock: Vec<_> =
        played.lines.iter().filter_map(|line| if let Line::Clock(clock) = line { Some(clock) } else { None }).collect();
    assert_eq!((clock.len(), clock[0].at == clock[1].at), (2, true), "it stood still for {held:?}: {clock:?}");
}

#[test]
fn it_plays_beside_a_job() {
    let place = Place::new();
    let lab = place.up("job", FOUR);
    scenario(&place, "cut", "events:\n  - {at: 0s, cut: n2}\n  - {at: 1h, cut: n3}\n");
    // The job ends once it is told to, which is when the scenario has cut it off.
    lab.exec("n2", ["mkfifo", "/tmp/over"]);
    let job = ["--on", "n2", "--", "sh", "-c", "echo begun; cat /tmp/over; exit 3"];
    let words = ["play", &lab.name, "cut.yaml", "--out", "log"].into_iter().chain(job);
    let play = place.slipway(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    await_events(&place, 1);
    assert!(lab.is_unheard("n2", "n1", "n3"));
    lab.exec("n2", ["sh", "-c", ": > /tmp/over"]);
    let output = play.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert_eq!(output.stdout, b"begun\n");
    let played = log(&place, "log");
    accounts_for_all(&played);
    assert_eq!(played.end().map(|end| end.why.as_str()), Some("the job has ended"));
    assert_eq!(std::fs::read_to_string(place.path().join("log/n2.stdout")).expect("kept"), "begun\n");
    assert!(lab.pings("n1", "n2"), "what it was cut off by is taken back");

    let until = ["play", &lab.name, "short.yaml", "--until", "scenario", "--out", "log2", "--", "sleep", "1000"];
    scenario(&place, "short", "events:\n  - {at: 50ms, cut: n2, for: 50ms}\n");
    place.run(until);
    assert_eq!(log(&place, "log2").end().map(|end| end.why.as_str()), Some("the scenario is over"));
    place.fails(2, ["play", &lab.name, "short.yaml", "--until", "job"]);
}

#[test]
fn what_events_need_is_there_before_they_are_due_and_gone_afterwards() {
    let place = Place::new();
    let lab = place.up("ready", FOUR);
    let text = "events:\n  - {at: 1h, cut: n2}\n  - {at: 2h, partition: [n3, rest]}\n";
    scenario(&place, "later", text);
    let queues = ["tc", "qdisc", "show", "dev", "eth0"];
    let words = ["play", &lab.name, "later.yaml", "--out", "log", "--on", "n2,n3", "--"].into_iter().chain(queues);
    let seen = place.run(words);
    assert_eq!(seen.matches("clsact").count(), 2, "{seen}");
    for node in ["n2", "n3"] {
        assert!(!lab.exec(node, queues).contains("clsact"));
    }
}

#[test]
fn an_event_that_waited_for_the_anchor_says_so() {
    let place = Place::new();
    // So many that they still start when a busy machine lets the player go on.
    let lab = place.up("waited", "nodes: {n: {count: 100}}\n");
    place.run(["kill", &lab.name, "n*"]);
    scenario(&place, "start", "events:\n  - {at: 0s, start: 'n*'}\n  - {at: 1ms, cut: n1}\n");
    place.run(["play", &lab.name, "start.yaml", "--out", "log"]);
    let played = log(&place, "log");
    let [Outcome::Done { note: Some(note) }] = events(&played, "cut")[..] else { panic!("{played:#?}") };
    assert!(note.ends_with("ms for the lab's anchor, which was starting nodes"), "{note}");
}

#[test]
fn programs_that_events_run_are_logged_with_their_ends() {
    let place = Place::new();
    let lab = place.up("programs", FOUR);
    let text = "length: 10s\nevents:\n  - {at: 0s, run: {nodes: n1, command: 'sh -c \"echo said; exit 7\"'}}\n  - {at: 0s, run: {nodes: n2, command: no-such}}\n  - {at: 0s, run: {nodes: n3, command: sleep 1000}}\n";
    scenario(&place, "programs", text);
    place.run(["play", &lab.name, "programs.yaml", "--out", "log"]);
    let played = log(&place, "log");
    accounts_for_all(&played);
    let mut codes: Vec<(usize, u8)> = played
        .lines
        .iter()
        .filter_map(|line| if let Line::Program(ran) = line { Some((ran.number, ran.code)) } else { None })
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [(0, 7), (1, 127), (2, 143)], "the last is ended with the scenario");
    assert_eq!(std::fs::read_to_string(place.path().join("log/event-0/n1.stdout")).expect("kept"), "said\n");
}

#[test]
fn a_node_that_dies_by_itself_is_in_the_log() {
    let place = Place::new();
    let lab = place.up("dies", FOUR);
    scenario(&place, "quiet", "length: 11s\nevents:\n  - {at: 0s, freeze: n1, for: 10ms}\n  - {at: 10s, kill: n2}\n");
    let mut child = playing(&lab, "quiet.yaml", &[]);
    await_events(&place, 1);
    let init = lab.row("n2")["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    kill_process(init.expect("it runs"), Signal::KILL).expect("it is there");
    assert!(child.wait().expect("it ends").success());
    let played = log(&place, "log");
    accounts_for_all(&played);
    let news: Vec<_> =
        played.lines.iter().filter_map(|line| if let Line::Node(news) = line { Some(news) } else { None }).collect();
    assert_eq!((news.len(), news[0].name.as_str(), news[0].change), (1, "n2", Change::Died), "{played:#?}");
    assert!(news[0].at > 0 && news[0].at < 10_000_000_000, "{news:?}");
    assert!(matches!(events(&played, "kill")[0], Outcome::Skipped { .. }));
}

#[test]
fn the_same_seed_is_the_same_plan() {
    let place = Place::new();
    let file = place.file("planned", FOUR);
    scenario(
        &place,
        "drawn",
        "length: 1min\nevents:\n  - {every: {exponential: {mean: 2s}}, kill: n, for: {uniform: [1s, 5s]}}\n",
    );
    let plan = |seed: &str| place.run(["play", "--plan", file.to_str().expect("plain"), "drawn.yaml", "--seed", seed]);
    assert_eq!(plan("7"), plan("7"));
    assert_ne!(plan("7"), plan("8"));
    let json = place.json(["play", "--plan", file.to_str().expect("plain"), "drawn.yaml", "--seed", "7"]);
    assert!(json["events"].as_array().is_some_and(|events| !events.is_empty()), "{json}");
    assert_eq!(place.json(["ps"])["labs"].as_array().map(Vec::len), Some(0), "nothing was touched");
}

#[test]
fn a_lab_that_is_not_up_is_brought_up_for_the_playing() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let file = place.file("passing", &format!("{FOUR}scenario:\n  events:\n    - {{at: 10ms, kill: n2, how: hard}}\n"));
    place.run(["play", file.to_str().expect("plain"), "--out", "log"]);
    accounts_for_all(&log(&place, "log"));
    assert_eq!(Inventory::of(&place), before);
}

/// Accepts one connection and reads nothing from it.
const SERVER: &str = "
import socket, time
server = socket.create_server(('', 5000))
print('listening', flush=True)
peer, _ = server.accept()
time.sleep(1000)";

/// Connects, says something, and tells how the connection ends.
const CLIENT: &str = "
import socket
peer = socket.create_connection(('n2', 5000))
peer.sendall(b'hello')
print('connected', flush=True)
try:
    print('end' if peer.recv(1) == b'' else 'data', flush=True)
except ConnectionResetError:
    print('reset', flush=True)";

/// A connection from n1 to n2: both programs, and what n1's goes on to say.
fn connection(lab: &Lab<'_>) -> ([Child; 2], impl BufRead + use<>) {
    let start = |node: &str, program: &str, word: &str| {
        let mut child = lab.program(node, ["python3", "-c", program]).stdout(Stdio::piped()).spawn().expect("started");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says so");
        assert_eq!(line.trim(), word);
        (child, said)
    };
    let (server, _) = start("n2", SERVER, "listening");
    let (client, said) = start("n1", CLIENT, "connected");
    ([client, server], said)
}

fn end(children: [Child; 2]) {
    for mut child in children {
        // Its node may have ended it.
        let _ = child.kill();
        child.wait().expect("a child can be waited for");
    }
}

#[test]
fn peers_of_a_node_killed_softly_see_it() {
    let place = Place::new();
    let lab = place.up("soft", FOUR);
    let (children, mut said) = connection(&lab);
    place.run(["kill", &lab.name, "n2"]);
    let mut line = String::new();
    said.read_line(&mut line).expect("the connection ends");
    assert_eq!(line.trim(), "reset");
    assert_eq!(lab.row("n2")["status"], "dead");
    assert!(lab.is_silent("n1", "n2", "n3"), "it is dead");
    end(children);
    place.run(["start", &lab.name, "n2"]);
    assert!(lab.pings("n1", "n2"));
}

/// A frozen node keeps its connections, its carrier, and what is asked of its links.
#[test]
fn a_frozen_node_is_silent_and_its_connections_outlive_it() {
    let place = Place::new();
    let lab = place.up("still", FOUR);
    let name = lab.name.as_str();
    let (children, mut said) = connection(&lab);
    place.run(["freeze", name, "n2"]);
    assert_eq!(lab.row("n2")["status"], "frozen");
    // Changes of its links do not wake it.
    place.run(["set", name, "n2", "delay=1ms"]);
    place.run(["cut", name, "n2"]);
    place.run(["heal", name]);
    let carrier = ["cat", "/sys/class/net/eth0/carrier"];
    assert!(lab.is_silent("n1", "n2", "n3"));
    place.run(["thaw", name, "n2"]);
    assert!(lab.pings("n1", "n2"));
    assert_eq!(lab.exec("n2", carrier), "1\n");
    let connections = lab.exec("n1", ["cat", "/proc/net/tcp", "/proc/net/tcp6"]);
    assert!(connections.lines().any(|line| line.contains(":1388 01 ")), "{connections}");
    place.run(["kill", name, "n2"]);
    let mut line = String::new();
    said.read_line(&mut line).expect("the connection ends");
    assert_eq!(line.trim(), "reset");
    end(children);
}

#[test]
fn peers_of_a_node_killed_hard_see_nothing() {
    let place = Place::new();
    let lab = place.up("hard", FOUR);
    let (children, _said) = connection(&lab);
    place.run(["kill", &lab.name, "n2", "--how", "hard"]);
    assert_eq!(lab.row("n2")["status"], "dead");
    // By when the witness has answered, a reset or an end would have come, and the connection would not be established.
    assert!(lab.is_silent("n1", "n2", "n3"));
    // 01 is established, 1388 is port 5000 (`proc(5)`).
    let connections = lab.exec("n1", ["cat", "/proc/net/tcp", "/proc/net/tcp6"]);
    assert!(connections.lines().any(|line| line.contains(":1388 01 ")), "{connections}");
    end(children);
}

#[test]
fn programs_of_a_node_killed_gracefully_end_by_themselves() {
    let place = Place::new();
    let lab = place.up("graceful", FOUR);
    let program = "trap 'echo tidied > /root/tidy; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let mut child = lab.program("n2", ["sh", "-c", program]).stdout(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it says so");
    scenario(&place, "graceful", "events:\n  - {at: 10ms, kill: n2, how: graceful, grace: 10s}\n");
    place.run(["play", &lab.name, "graceful.yaml", "--out", "log"]);
    accounts_for_all(&log(&place, "log"));
    child.wait().expect("it has ended");
    place.run(["start", &lab.name, "n2"]);
    assert_eq!(lab.exec("n2", ["cat", "/root/tidy"]), "tidied\n");
}

#[test]
fn a_node_that_was_frozen_when_it_was_killed_comes_back_thawed() {
    let place = Place::new();
    let lab = place.up("cold", FOUR);
    for how in ["soft", "hard"] {
        place.run(["freeze", &lab.name, "n2"]);
        place.run(["kill", &lab.name, "n2", "--how", how]);
        place.run(["start", &lab.name, "n2"]);
        assert_eq!(lab.row("n2")["status"], "running");
        assert!(lab.pings("n1", "n2"));
    }
}
