//! This build beside another one, in turn: what a change cost.
//! `SLIPWAY_BEFORE=/path/to/slipway cargo bench -p slipway --bench bench -- versions`.
//!
//! Anchor and router belong to the build that made the lab, so each build has labs of its own.

use std::fs;
use std::process::Command;

use slipway_measure::play::Played;
use slipway_measure::probe::{Sample, Server};

use super::common::{Slipway, Way, arg, compare, less, more, run as program, seconds};
use super::pair::{Pair, end};
use super::{fast, lifecycle, scenario};

/// The variable that names the other build.
const BEFORE: &str = "SLIPWAY_BEFORE";
/// The place of this program in nodes.
const MOUNTED: &str = "/bench";
/// Programs that enter a node, in a row.
const ENTERED: u32 = 100;
/// Connections in a row.
const CONNECTIONS: &str = "2000";
const PORT: u16 = 5201;

pub(super) fn run() {
    let Some(before) = std::env::var_os(BEFORE) else {
        return println!("Left out: versions, which compares with the build that {BEFORE} names\n");
    };
    let builds = [("before", Slipway::of(before)), ("now", Slipway::new())];
    let each = |title, rounds, measure: fn(&Slipway) -> Vec<Sample>| {
        let mut ways: Vec<Way<'_>> =
            builds.iter().map(|(name, slipway)| Way::new(name, move || measure(slipway))).collect();
        compare(title, rounds, &mut ways);
    };
    each("A lab", 10, |slipway| {
        let per_node = |nodes: u16| lifecycle::up_and_down(slipway, nodes.into()) * 1000.0 / f64::from(nodes);
        vec![
            less("up + down, 100 nodes, per node", "ms", per_node(100)),
            less("up + down, 1000 nodes, per node", "ms", per_node(1000)),
        ]
    });
    each("A program in a node", 10, entering);
    each("1,000 events a minute", 5, lateness);
    each("Connections on the fast path", 10, connecting);
}

/// Runs `work` in a lab of two nodes that is up meanwhile.
fn with_lab<T>(slipway: &Slipway, name: &str, text: &str, work: impl FnOnce() -> T) -> T {
    let file = slipway.lab(name, text);
    slipway.run(&["up", "--quiet", arg(&file)]);
    let done = work();
    slipway.run(&["down", "--quiet", name]);
    done
}

fn entering(slipway: &Slipway) -> Vec<Sample> {
    let took = with_lab(slipway, "enter", "lab: enter\nnodes: {n: {count: 2}}\n", || {
        seconds(|| (0..ENTERED).for_each(|_| drop(slipway.run(&["exec", "enter", "n1", "--", "/bin/true"]))))
    });
    let bare = seconds(|| (0..ENTERED).for_each(|_| drop(program(&mut Command::new("/bin/true")))));
    let each = |took: f64| took * 1000.0 / f64::from(ENTERED);
    vec![less("`exec` of /bin/true", "ms", each(took)), less("the same, above /bin/true", "ms", each(took - bare))]
}

fn lateness(slipway: &Slipway) -> Vec<Sample> {
    let events = slipway.lab("events", scenario::EVENTS);
    let out = tempfile::tempdir().expect("a temporary folder");
    let text = with_lab(slipway, "late", "lab: late\nnodes: {n: {count: 4}}\n", || {
        slipway.run(&["play", "--quiet", "late", arg(&events), "--out", arg(&out.path().join("out"))]);
        fs::read_to_string(out.path().join("out/events.jsonl")).expect("there is a log")
    });
    scenario::samples(&Played::read(&text).expect("the log is what it should be"))
}

fn connecting(slipway: &Slipway) -> Vec<Sample> {
    let mounts = format!("mounts: [\"{}:{MOUNTED}:ro\"]", std::env::current_exe().expect("a file").display());
    let mut samples = Vec::new();
    for (hosts, figure) in [(1, "within a host, 1 client"), (2, "between hosts, 1 client")] {
        let text =
            format!("lab: connect\nhosts: {hosts}\nnetworks: {{net: fast}}\nnodes: {{n: {{count: 2, {mounts}}}}}\n");
        samples.push(with_lab(slipway, "connect", &text, || more(figure, "1/s", rate(slipway))));
    }
    samples
}

/// Connections a second, one after the other.
fn rate(slipway: &Slipway) -> f64 {
    let [server, client] = ["n2", "n1"].map(|node| slipway.words("connect", node));
    let hosts = slipway.run(&["exec", "connect", "n1", "--", "getent", "hosts", "n2"]).stdout;
    let hosts = String::from_utf8_lossy(&hosts).into_owned();
    let address = hosts.split_whitespace().next().and_then(|word| word.parse().ok()).expect("n2 has an address");
    let pair = Pair { server, client, address };
    let argv = [MOUNTED, fast::LOAD, "answer", &PORT.to_string(), "1"].map(str::to_owned).to_vec();
    let serving = pair.serve(&Server { argv, port: PORT }).expect("the server listens");
    let words = [MOUNTED, fast::LOAD, "connect", &format!("{address}:{PORT}"), CONNECTIONS, "1"].map(str::to_owned);
    let client = [pair.client, words.to_vec()].concat();
    let said = program(Command::new(&client[0]).args(&client[1..])).stdout;
    end(serving);
    String::from_utf8_lossy(&said).split_whitespace().next().and_then(|word| word.parse().ok()).expect("a rate")
}
