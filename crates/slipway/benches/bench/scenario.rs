//! How late events are: a thousand a minute on four nodes, of every kind that is over when it has begun.

use std::fs;

use slipway_measure::play::Played;
use slipway_measure::probe::Sample;

use super::common::{Slipway, Way, arg, compare, less};

/// A thousand events in a minute: what the target speaks of.
pub(super) const EVENTS: &str = "\
length: 61s
events:
  - {every: 240ms, times: 250, set: {delay: 5ms}, nodes: n1, for: 60ms}
  - {every: 480ms, times: 125, cut: n2, for: 120ms}
  - {every: 480ms, at: 100ms, times: 125, freeze: n3, for: 60ms}
";

pub(super) fn run() {
    let slipway = Slipway::new();
    let lab = slipway.lab("late", "lab: late\nnodes: {n: {count: 4}}\n");
    let scenario = slipway.lab("events", EVENTS);
    slipway.run(&["up", "--quiet", arg(&lab)]);
    let mut round = 0;
    let play = || {
        round += 1;
        let out = lab.with_file_name(format!("out-{round}"));
        slipway.run(&["play", "--quiet", "late", arg(&scenario), "--out", arg(&out)]);
        let text = fs::read_to_string(out.join("events.jsonl")).expect("there is a log");
        samples(&Played::read(&text).expect("the log is what it should be"))
    };
    compare("scenario: 1,000 events a minute", 5, &mut [Way::new("play", play)]);
    slipway.run(&["down", "late"]);
}

pub(super) fn samples(played: &Played) -> Vec<Sample> {
    let summary = &played.end().expect("it was played to its end").summary;
    assert_eq!((summary.done, summary.failed), (1_000, 0), "{summary:?}");
    let late = summary.lateness.expect("events took effect");
    [("late, median", late.p50), ("late, 99 %", late.p99), ("late, most", late.max)]
        .map(|(figure, nanoseconds)| less(figure, "ms", nanoseconds as f64 / 1e6))
        .into()
}
