//! Campaigns whose design searches, with the real optimisers: they converge, and go on with the same points when killed.

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Inventory, Place, as_before, await_that, told};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Test problem ZDT1 (Zitzler, Deb and Thiele 2000): the front is y = 1 - sqrt(x), where `b` and `c` are 0.
const ZDT1: &str = "\
run: >-
  sh -c 'sleep 0.03; awk \"BEGIN { g = 1 + 4.5 * ({b} + {c}); printf \\\"x %.17g y %.17g\\\", {a}, g * (1 - sqrt({a} / g)) }\"'
variables: {a: {uniform: [0, 1]}, b: {uniform: [0, 1]}, c: {uniform: [0, 1]}}
design: {nsga2: {population: 12, generations: 6}}
outputs: {x: 'x ([-0-9.e]+)', y: 'y ([-0-9.e]+)'}
objectives: {x: minimize, y: minimize}
keep: tables
workers: 2
";

/// Writes a campaign of a test's own name.
fn write(place: &Place, file: &str, text: &str) {
    let text = format!("campaign: {}\n{text}", place.name(file));
    std::fs::write(place.path().join(format!("{file}.yaml")), text).expect("the campaign file can be written");
}

/// `slipway ARGS`, with optimisers' libraries that stay for further tests.
fn slipway(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.slipway(arguments);
    command.env("SLIPWAY_PYTHON", Path::new(env!("CARGO_TARGET_TMPDIR")).join("python"));
    command
}

fn start(place: &Place, file: &str) -> Child {
    let mut run = slipway(place, &["--json", "campaign", "run", file]);
    run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slipway can be started")
}

#[track_caller]
fn end(run: Child) -> (Option<i32>, Value) {
    let output = run.wait_with_output().expect("it can be awaited");
    let answer = serde_json::from_slice(&output.stdout);
    (output.status.code(), answer.unwrap_or_else(|error| panic!("{error}: {}", told(&output))))
}

#[track_caller]
fn await_done(place: &Place, file: &str, count: u64) {
    await_that("points have results", || {
        let output = place.slipway(["--json", "campaign", "status", file]).output().expect("slipway can be started");
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status["done"].as_u64().is_some_and(|done| done >= count)
    });
}

/// The values of each point, by its number.
fn points(place: &Place, file: &str, names: &[&str]) -> Vec<Vec<Value>> {
    let rows = place.json(["campaign", "results", file]);
    let mut rows: Vec<Value> = rows.as_array().expect("rows").clone();
    rows.sort_by_key(|row| row["point"].as_u64());
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(row["point"].as_u64(), Some(number as u64), "exactly one result a point");
    }
    rows.iter().map(|row| names.iter().map(|name| row[name].clone()).collect()).collect()
}

/// Kills the optimiser of a coordinator.
fn kill_optimiser(coordinator: &Child) {
    let children = format!("/proc/{0}/task/{0}/children", coordinator.id());
    let optimiser = || {
        let children = std::fs::read_to_string(&children).unwrap_or_default();
        children.split_whitespace().find_map(|child| {
            let line = std::fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
            if line.contains("def ask(") { child.parse::<i32>().ok().and_then(Pid::from_raw) } else { None }
        })
    };
    let optimiser = optimiser().expect("an optimiser runs beside its coordinator");
    kill_process(optimiser, Signal::KILL).expect("it runs");
}

#[test]
fn a_search_goes_on_with_the_same_points_when_its_processes_are_killed() {
    let place = Place::new();
    let before = Inventory::of(&place);
    write(&place, "whole", ZDT1);
    let (code, whole) = end(start(&place, "whole.yaml"));
    assert_eq!((code, &whole["done"], &whole["points"]), (Some(0), &72.into(), &72.into()), "{whole}");
    write(&place, "killed", ZDT1);
    let mut run = start(&place, "killed.yaml");
    await_done(&place, "killed.yaml", 15);
    kill_optimiser(&run);
    await_done(&place, "killed.yaml", 40);
    kill_process(Pid::from_child(&run), Signal::KILL).expect("it runs");
    run.wait().expect("it can be awaited");
    await_that("the campaign no longer runs", || place.json(["campaign", "status", "killed.yaml"])["runs"] == false);
    let (code, killed) = end(start(&place, "killed.yaml"));
    assert_eq!((code, &killed["done"], &killed["failed"]), (Some(0), &72.into(), &0.into()), "{killed}");
    let names = ["a", "b", "c", "x", "y"];
    assert_eq!(points(&place, "killed.yaml", &names), points(&place, "whole.yaml", &names));
    place.run(["campaign", "verify", "killed.yaml"]);

    // It converges: the volume grows, and the front comes near to the true one.
    let best = place.json(["campaign", "best", "killed.yaml"]);
    let steps = best["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 6, "{best}");
    let volume = |step: &Value| step["volume"].as_f64().expect("a volume");
    assert!(volume(&steps[5]) > 1.1 * volume(&steps[0]), "{best}");
    let front = best["best"].as_array().expect("a front");
    assert!(front.len() > 4, "{best}");
    let place_above = |point: &Value| {
        let [x, y] = ["x", "y"].map(|name| point["outputs"][name].as_f64().expect("an output"));
        y - (1.0 - x.sqrt())
    };
    let mean = front.iter().map(place_above).sum::<f64>() / front.len() as f64;
    assert!((0.0..1.5).contains(&mean), "{mean}: {best}");

    // More generations go on from there.
    slipway(&place, &["campaign", "extend", "7", "killed.yaml"]).output().expect("slipway can be started");
    let (code, more) = end(start(&place, "killed.yaml"));
    assert_eq!((code, &more["done"], &more["points"]), (Some(0), &84.into(), &84.into()), "{more}");
    let whole = points(&place, "whole.yaml", &names);
    assert_eq!(points(&place, "killed.yaml", &names)[..72], whole[..]);
    let words = place.run(["campaign", "sensitivity", "killed.yaml"]);
    assert!(words.contains("the design is a search"), "{words}");
    as_before(&place, &before, "nothing is left but the campaigns' folders");
}

#[test]
fn failed_points_count_as_bad_ones_and_choices_are_searched() {
    for method in ["spea2", "pso"] {
        let place = Place::new();
        let text = "\
run: [awk, 'BEGIN { if ({x} > 8) exit 3; print \"d\", ({x} - 3) ^ 2 + ({n} - 4) ^ 2 + (\"{kind}\" != \"good\") }']
variables: {x: {uniform: [0, 10]}, n: {integer: [1, 9]}, kind: [bad, good, worse]}
design: {METHOD: {population: 10, generations: 6}}
outputs: {d: 'd ([-0-9.e]+)'}
objectives: {d: minimize}
attempts: 1
workers: 2
";
        write(&place, "c", &text.replace("METHOD", method));
        let (code, answer) = end(start(&place, "c.yaml"));
        let [done, failed, points] = ["done", "failed", "points"].map(|key| answer[key].as_u64().expect("a count"));
        assert_eq!((code, done + failed, points), (Some(5), 60, 60), "{answer}");
        assert!(failed > 0, "{answer}");
        let best = place.json(["campaign", "best", "c.yaml"]);
        let lost: u64 =
            best["steps"].as_array().expect("steps").iter().filter_map(|step| step["failed"].as_u64()).sum();
        assert_eq!(lost, failed, "{best}");
        let least = &best["best"][0];
        assert!(least["outputs"]["d"].as_f64().is_some_and(|d| d < 2.5), "{best}");
        assert_eq!(best["steps"][5]["least"], least["scores"]["d"], "{best}");
    }
}

#[test]
fn a_gaussian_process_finds_the_best_point() {
    let place = Place::new();
    write(
        &place,
        "c",
        "\
run: [awk, 'BEGIN { print \"gain\", 10 - ({x} - 2) ^ 2 - ({y} + 1) ^ 2 }']
variables: {x: {uniform: [-5, 5]}, y: {uniform: [-5, 5]}}
design: {bayesian: {points: 14, initial: 6, at_once: 2}}
outputs: {gain: 'gain ([-0-9.e]+)'}
objectives: {gain: maximize}
workers: 2
",
    );
    let (code, answer) = end(start(&place, "c.yaml"));
    assert_eq!((code, &answer["done"]), (Some(0), &14.into()), "{answer}");
    let best = place.json(["campaign", "best", "c.yaml"]);
    assert!(best["best"][0]["outputs"]["gain"].as_f64().is_some_and(|gain| gain > 9.0), "{best}");
    assert_eq!(best["steps"].as_array().map(Vec::len), Some(5), "{best}");
}

/// An optimiser that has tried all that there is ends the campaign with fewer points.
#[test]
fn a_small_space_is_searched_once() {
    let place = Place::new();
    write(
        &place,
        "c",
        "\
run: echo cost {n}
variables: {n: {integer: [1, 4]}, kind: [a, b]}
design: {nsga2: {population: 6, generations: 5}}
outputs: {cost: 'cost ([0-9]+)'}
objectives: {cost: minimize}
",
    );
    let (code, answer) = end(start(&place, "c.yaml"));
    assert_eq!((code, &answer["done"], &answer["points"]), (Some(0), &8.into(), &8.into()), "{answer}");
    let text = place.run(["campaign", "best", "c.yaml"]);
    assert_eq!(text.lines().count(), 3, "both kinds at the least number: {text}");
    let words = place.fails(2, ["campaign", "extend", "1", "c.yaml"]);
    assert!(words.contains("give a larger number"), "{words}");
}

/// The baseline is no point of the search: the optimiser never learns its score.
#[test]
fn a_search_has_its_baseline_first() {
    let place = Place::new();
    write(
        &place,
        "c",
        "\
run: [sh, -c, 'echo begin $(date +%s%N) kind {kind} cost {x}; [ {kind} = old ] && sleep 0.5; echo end $(date +%s%N)']
variables: {x: {uniform: [0, 1]}, kind: [a, b]}
baseline: {x: -3, kind: old}
design: {nsga2: {population: 6, generations: 2}}
outputs: {cost: 'cost ([-0-9.e]+)', begin: 'begin ([0-9]+)', end: 'end ([0-9]+)'}
objectives: {cost: minimize}
workers: 2
",
    );
    let dry = place.run(["campaign", "run", "--dry-run", "c.yaml"]);
    assert!(dry.starts_with("the baseline, then 12 points at most, in 2 batches"), "{dry}");
    let (code, answer) = end(start(&place, "c.yaml"));
    assert_eq!((code, &answer["done"], &answer["points"]), (Some(0), &13.into(), &13.into()), "{answer}");
    let rows = place.json(["campaign", "results", "c.yaml"]);
    let of = |name: &str| rows.as_array().expect("rows").iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!((&of("point")[0], &of("kind")[0], &of("x")[0]), (&0.into(), &"old".into(), &(-3.0).into()), "{rows}");
    let ended = of("end")[0].as_u64();
    assert!(of("begin")[1..].iter().all(|begin| begin.as_u64() > ended), "{rows}");
    let best = place.json(["campaign", "best", "c.yaml"]);
    let steps: Vec<(&Value, f64)> = best["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| (&step["points"], step["least"].as_f64().expect("a score")))
        .collect();
    assert!(steps.len() == 2 && steps.iter().all(|(points, least)| **points == 6 && *least >= 0.0), "{best}");
    place.run(["campaign", "verify", "c.yaml"]);
    let now = place.json(["campaign", "status", "c.yaml"]);
    assert_eq!((&now["step"], &now["step"]["batch"]), (&best["steps"][1], &1.into()), "{now}");
    let words = "generation 2 of 2: the best cost is ";
    for command in ["status", "watch"] {
        let text = place.run(["campaign", command, "c.yaml"]);
        assert!(text.contains(words), "{text}");
    }
    // The next generations follow those of before, behind the baseline.
    slipway(&place, &["campaign", "extend", "3", "c.yaml"]).output().expect("slipway can be started");
    let (code, answer) = end(start(&place, "c.yaml"));
    assert_eq!((code, &answer["done"], &answer["points"]), (Some(0), &19.into(), &19.into()), "{answer}");
}
