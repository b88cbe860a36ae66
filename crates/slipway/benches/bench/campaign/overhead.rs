//! The cost of a point beside the cost of its program.

use std::cell::Cell;
use std::process::Command;

use slipway_measure::probe::Sample;

use super::{Campaign, WORKERS, busy, option, peak, python, quantile, script};
use crate::common::{Way, compare, less, more, run as program, seconds};

/// Many points of `true`, by Slipway and by others. Processor time is the whole machine's, so nothing hides.
pub(crate) fn run() {
    let points = option("points", 10_000, 200);
    let (count, python) = (points.to_string(), python());
    let each = f64::from(points);
    // The cost of the programs themselves, from the first round on: the figures are without it.
    let bare = Cell::new(None);
    let figures = |work: &dyn Fn()| {
        let before = busy();
        let took = seconds(work);
        let spent = (busy() - before) / each * 1000.0;
        if bare.get().is_none() {
            bare.set(Some(spent));
        }
        let beyond = spent - bare.get().unwrap_or_default();
        vec![less("processor time of a point, beyond the program", "ms", beyond), more("points", "1/s", each / took)]
    };
    let workers = WORKERS.to_string();
    let peer = |name: &'static str| {
        let mut command = Command::new(&python);
        command.arg(script("peers.py")).args([name, &count, &workers]);
        move || drop(program(Command::new(command.get_program()).args(command.get_args())))
    };
    let alone = || (0..points).for_each(|_| drop(program(&mut Command::new("true"))));
    let slipway = || {
        let text = format!(
            "run: 'true'\nvariables: {{x: {{uniform: [0, 1]}}}}\ndesign: {{random: {count}}}\nkeep: tables\nworkers: {workers}\n"
        );
        let campaign = Campaign::new("bench-overhead", &text);
        assert_eq!(campaign.run()["done"].as_u64(), Some(points.into()));
    };
    let parallel = || {
        let mut command = Command::new("sh");
        command.args(["-c", "seq \"$1\" | parallel --will-cite -j \"$2\" -n1 true '#'", "sh", &count, &workers]);
        program(&mut command);
    };
    let (dask, hyperqueue) = (peer("dask"), peer("hyperqueue"));
    compare(
        &format!("{points} points of `true`, {workers} workers"),
        5,
        &mut [
            Way::new("no scheduler", || figures(&alone)),
            Way::new("slipway", || figures(&slipway)),
            Way::new("GNU parallel", || figures(&parallel)),
            Way::new("Dask", || figures(&dask)),
            Way::new("HyperQueue", || figures(&hyperqueue)),
        ],
    );
    compare("From the end of a program to the start of the next", 5, &mut [Way::new("a warm worker", gaps)]);
}

/// One worker, and points that are too long for batches. Each says when it began and ended; bash starts meanwhile.
fn gaps() -> Vec<Sample> {
    let points = option("points", 200, 20).min(200);
    let text = format!(
        "run: [bash, -c, 'echo begin $EPOCHREALTIME; sleep 0.11; echo end $EPOCHREALTIME']\n\
         variables: {{x: {{uniform: [0, 1]}}}}\ndesign: {{random: {points}}}\nkeep: tables\nworkers: 1\n\
         outputs: {{begin: 'begin ([0-9.]+)', end: 'end ([0-9.]+)'}}\n"
    );
    let campaign = Campaign::new("bench-gaps", &text);
    campaign.run();
    let rows = campaign.ask(&["results"]);
    let mut times: Vec<(f64, f64)> = rows
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| (row["begin"].as_f64().expect("a time"), row["end"].as_f64().expect("a time")))
        .collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The first points tell the coordinator how long they take.
    let gaps: Vec<f64> = times.windows(2).skip(10).map(|pair| (pair[1].0 - pair[0].1) * 1000.0).collect();
    vec![
        less("latency, median", "ms", quantile(gaps.clone(), 0.5)),
        less("latency, 95 % below", "ms", quantile(gaps, 0.95)),
    ]
}

/// Memory of the coordinator, and of commands that ask it, with very many points.
pub(crate) fn memory() {
    let points = option("points", 100_000, 500);
    compare(&format!("Memory with {points} points"), 1, &mut [Way::new("slipway", || of_points(points))]);
}

fn of_points(points: u32) -> Vec<Sample> {
    let text = format!(
        "run: [echo, '{{x}}']\nvariables: {{x: {{uniform: [0, 1]}}}}\ndesign: {{random: {points}}}\nkeep: tables\n\
         outputs: {{x_again: '(.+)'}}\n"
    );
    let campaign = Campaign::new("bench-memory", &text);
    let mut run = campaign.start();
    let coordinator = super::watch(&mut run, peak);
    let ask = |words: &[&str]| {
        let mut command = campaign.command(words);
        let mut child = command.stdout(std::process::Stdio::null()).spawn().expect("slipway can be started");
        let mut most = 0.0;
        let took = seconds(|| most = super::watch(&mut child, peak));
        (most, took * 1000.0)
    };
    let [status, points, results] = [&["status"][..], &["points"], &["results"]].map(ask);
    // A page is what people look at.
    let page = ask(&["points", "--from", "90000", "--limit", "50"]);
    vec![
        less("coordinator", "MiB", coordinator),
        less("status", "MiB", status.0),
        less("points, all", "MiB", points.0),
        less("results, all, JSON", "MiB", results.0),
        less("status takes", "ms", status.1),
        less("a page of points takes", "ms", page.1),
    ]
}
