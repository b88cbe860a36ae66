//! Campaigns with a baseline: it runs before all others, and nothing runs without its result.

mod common;

use std::path::Path;

use common::campaigns::{end, start, status, write};
use common::{Place, told};

#[test]
fn the_baseline_runs_first_and_results_can_be_held_against_it() {
    let place = Place::new();
    // Were others given out meanwhile, one of them would begin before the baseline's half second ends.
    write(
        &place,
        "\
run: [sh, -c, 'echo begin $(date +%s%N) cost $(({x} * 10)); [ {x} = 7 ] && sleep 0.5; echo end $(date +%s%N)']
variables: {x: [1, 2, 3], other: 5}
baseline: {x: 7}
design: grid
workers: 2
outputs: {cost: 'cost ([0-9]+)', begin: 'begin ([0-9]+)', end: 'end ([0-9]+)'}
",
    );
    let dry = place.run(["campaign", "run", "--dry-run"]);
    assert!(dry.contains("4 points; the baseline, and the first") && dry.contains("\n7,5\n1,5\n"), "{dry}");
    let (code, answer) = end(start(&place));
    assert_eq!((code, &answer["points"], &answer["done"]), (Some(0), &4.into(), &4.into()), "{answer}");
    // Figures are those of the design.
    assert_eq!((&answer["outputs"][0]["count"], &answer["outputs"][0]["mean"]), (&3.into(), &20.0.into()), "{answer}");

    let rows = place.json(["campaign", "results"]);
    let of = |name: &str| rows.as_array().expect("rows").iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!((&of("baseline")[0], &of("x")[0], &of("point")[0]), (&true.into(), &7.into(), &0.into()), "{rows}");
    let [begins, ends] =
        ["begin", "end"].map(|name| of(name).iter().map(|time| time.as_u64().expect("a time")).collect::<Vec<_>>());
    assert!(begins[1..].iter().all(|begin| *begin > ends[0]), "{rows}");
    assert_eq!(of("baseline").iter().filter(|is| **is == false).count(), 3, "{rows}");
    let rows = place.json(["campaign", "results", "--difference"]);
    let mut costs: Vec<f64> =
        rows.as_array().expect("rows").iter().map(|row| row["cost"].as_f64().expect("a number")).collect();
    costs.sort_by(f64::total_cmp);
    assert_eq!(costs, [-60.0, -50.0, -40.0, 0.0]);
    let text = place.run(["campaign", "status"]);
    assert!(text.contains("baseline  done"), "{text}");
    let sql =
        "select r.x, r.cost - b.cost as d from results r, results b where b.baseline and not r.baseline order by 1";
    let answer = place.run(["campaign", "query", "--csv", sql]);
    assert_eq!(answer.lines().collect::<Vec<_>>(), ["x,d", "1,-60", "2,-50", "3,-40"]);
    place.run(["campaign", "verify"]);
}

#[test]
fn nothing_runs_where_the_baseline_fails_and_the_program_says_why() {
    let place = Place::new();
    write(
        &place,
        "\
run: [sh, -c, 'if [ {x} = 7 ] && [ ! -e /campaign/work/mended ]; then echo no such window >&2; exit 3; fi']
variables: {x: [1, 2, 3]}
baseline: {x: 7}
design: grid
attempts: 2
pause: 1ms
workers: 1
",
    );
    for _ in 0..2 {
        let output = place.slipway(["campaign", "run"]).output().expect("slipway can be started");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(5), "{}", told(&output));
        assert!(words.contains("baseline, point 0") && words.contains("no such window"), "{words}");
        assert!(words.contains("Hint: mend the cause"), "{words}");
    }
    // Points that no worker had are not listed.
    let points = place.json(["campaign", "points"]);
    assert_eq!(points.as_array().map(Vec::len), Some(1), "{points}");
    assert_eq!((&points[0]["point"], &points[0]["attempts"]), (&0.into(), &2.into()), "{points}");
    let now = status(&place);
    assert_eq!((&now["baseline"]["state"], &now["waiting"]), (&"failed".into(), &3.into()), "{now}");
    let text = place.run(["campaign", "status"]);
    assert!(text.contains("stopped, since the baseline failed") && text.contains("no such window"), "{text}");
    let words = place.fails(1, ["campaign", "results", "--difference"]);
    assert!(words.contains("no result yet"), "{words}");

    let work = Path::new(now["folder"].as_str().expect("a folder")).join("work/1");
    std::fs::write(work.join("mended"), "").expect("a file can be written");
    place.run(["campaign", "retry", "--point", "0"]);
    let (code, answer) = end(start(&place));
    assert_eq!((code, &answer["done"], &answer["failed"]), (Some(0), &4.into(), &0.into()), "{answer}");
    place.run(["campaign", "verify"]);
}

#[test]
fn results_are_held_against_nothing_without_a_baseline() {
    let place = Place::new();
    write(&place, "run: 'true'\nvariables: {x: [1, 2]}\ndesign: grid\n");
    let answer = place.json(["campaign", "run"]);
    assert_eq!(answer["done"], 2, "{answer}");
    let words = place.fails(2, ["campaign", "results", "--difference"]);
    assert!(words.contains("the campaign has none"), "{words}");
}
