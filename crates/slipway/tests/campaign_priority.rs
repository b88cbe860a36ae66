//! Priorities of points at the front door, also while the campaign runs.

mod common;

use common::campaigns::{await_done, end, start, status, write};
use common::{Place, await_that};
use serde_json::Value;

const SLOW: &str = "\
run: [sh, -c, 'sleep 0.15; echo value {x}']
variables: {x: {integer: [0, 39]}, kind: [a, b]}
design: grid
workers: 1
keep: tables
outputs: {value: 'value ([0-9]+)'}
";

/// A column of the results, in the order in which they came.
fn column(place: &Place, name: &str) -> Vec<u64> {
    let rows = place.json(["campaign", "results"]);
    let number = |row: &Value| row[name].as_u64().expect("a number");
    rows.as_array().expect("rows").iter().map(number).collect()
}

#[test]
fn a_campaign_that_runs_takes_priorities_up_with_the_next_point() {
    let place = Place::new();
    write(&place, SLOW);
    let run = start(&place);
    await_done(&place, 2);
    // The coordinator goes on meanwhile; the pause only makes the test independent of its own pace.
    place.run(["campaign", "pause"]);
    await_that("the point that runs ends", || status(&place)["running"] == 0);
    // Points 70 and 72 to 75, then those with x = 30: 60 and 61.
    let answer = place.json(["campaign", "prioritise", "--points", "70,72-75", "--priority", "7"]);
    assert_eq!(answer["prioritised"], 5, "{answer}");
    let answer = place.json(["campaign", "prioritise", "--where", "x = 30", "--priority", "3"]);
    assert_eq!(answer["prioritised"], 2, "{answer}");
    let answer = place.json([
        "campaign",
        "prioritise",
        "--where",
        "x>=5",
        "--where",
        "kind=b",
        "--priority=-1",
        "--points",
        "0-19",
    ]);
    assert_eq!(answer["prioritised"], 5, "11, 13, 15, 17 and 19: {answer}");
    let done = status(&place)["done"].as_u64().expect("a count");
    place.run(["campaign", "resume"]);
    await_done(&place, done + 12);
    place.run(["campaign", "cancel"]);
    let (code, _) = end(run);
    assert_eq!(code, Some(0));
    let points = column(&place, "point");
    let first = usize::try_from(done).expect("a small number");
    assert_eq!(points[first..first + 7], [70, 72, 73, 74, 75, 60, 61], "{points:?}");
    let rest: Vec<u64> = points.into_iter().filter(|point| *point < 60).collect();
    let expected = (0..60).filter(|point| ![11, 13, 15, 17, 19].contains(point));
    assert_eq!(rest, expected.take(rest.len()).collect::<Vec<_>>(), "the others stay in order");
    place.run(["campaign", "verify"]);
}

#[test]
fn points_that_are_meant_must_be_said() {
    let place = Place::new();
    write(&place, "run: 'false'\nvariables: {x: [1, 2, 3]}\ndesign: grid\nattempts: 1\n");
    let (code, answer) = end(start(&place));
    assert_eq!((code, &answer["failed"]), (Some(5), &3.into()), "{answer}");
    for (words, part) in [
        (&["--priority", "3"][..], "required"),
        (&["--where", "y = 1"], "no variable `y`"),
        (&["--where", "x"], "compares nothing"),
        (&["--points", "3-1"], "ends before it begins"),
        (&["--points", "1", "--priority", "2000"], "2000"),
    ] {
        let said = place.fails(2, ["campaign", "prioritise"].iter().chain(words));
        assert!(said.contains(part), "{words:?}: {said}");
    }
    // Points that failed keep it until `retry`.
    let answer = place.json(["campaign", "prioritise", "--failure", "fatal", "--points", "2"]);
    assert_eq!(answer["prioritised"], 1, "{answer}");
    let points = place.json(["campaign", "points"]);
    let of: Vec<&Value> = points.as_array().expect("points").iter().map(|point| &point["priority"]).collect();
    assert_eq!(of, [0, 0, 1]);
    let text = place.run(["campaign", "prioritise", "--failure", "timeout"]);
    assert_eq!(text, "no point that waits is meant\n");
}
