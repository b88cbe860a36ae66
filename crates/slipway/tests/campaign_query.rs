//! SQL over campaigns at the command's front door. The program slipway-query must be beside slipway:
//! `cargo build -p slipway-query` builds it, and so does a build of the workspace.

mod common;

use std::fs;

use common::campaigns::{await_done, end, pid, start, status, write};
use common::{Place, await_that};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

/// The first three points end at once. The others wait until the gate is open, and the last one fails then.
const GATED: &str = "\
inputs: {gate.txt: gate.txt}
run:
- sh
- -c
- |
  [ {n} -lt 3 ] || until grep -q open gate.txt; do sleep 0.05; done
  [ {n} -lt 7 ] || [ -e nothing ] || { echo broken >&2; exit 1; }
  echo hour,load > out.csv
  for hour in 0 1 2 3; do echo $hour,$(({n} * 10 + hour)) >> out.csv; done
  echo value {n}.5
variables: {n: {integer: [0, 7]}}
design: grid
attempts: 1
workers: 2
outputs:
  value: 'value (.*)'
  load: {file: out.csv, series: load}
";

fn ask(place: &Place, sql: &str) -> Value {
    place.json(["campaign", "query", sql])
}

#[test]
fn a_campaign_answers_while_it_runs_and_after_its_coordinator_was_killed() {
    let place = Place::new();
    fs::write(place.path().join("gate.txt"), "closed\n").expect("an input can be written");
    write(&place, GATED);
    let mut run = start(&place);
    await_done(&place, 3);
    let sums = "select count(*) as n, sum(value) as value, sum(n) as inputs from results";
    assert_eq!(ask(&place, sums), json!([{"n": 3, "value": 4.5, "inputs": 3}]));
    let states = "select state, count(*) as n from points where state = 'done' or state = 'failed' group by state order by state";
    assert_eq!(ask(&place, states), json!([{"state": "done", "n": 3}]));
    let days = "select step, sum(value) as load from series where output = 'load' group by step order by step";
    let expected = |points: i64, sum: i64| -> Value {
        (0..4).map(|step| json!({"step": step, "load": (10 * sum + points * step) as f64})).collect()
    };
    assert_eq!(ask(&place, days), expected(3, 3));
    kill_process(pid(&run), Signal::KILL).expect("it runs");
    run.wait().expect("it can be awaited");
    await_that("the campaign no longer runs", || status(&place)["runs"] == false);
    assert_eq!(ask(&place, days), expected(3, 3));
    // Points read the campaign's own copy of an input.
    let folder = place.path().join("slipway-campaigns").join(place.name("c"));
    fs::write(folder.join("inputs/gate.txt"), "open\n").expect("the copy can be written");
    let (code, answer) = end(start(&place));
    assert_eq!((code, &answer["done"], &answer["failed"]), (Some(5), &7.into(), &1.into()), "{answer}");
    // The run's end left tables that are up to date.
    assert!(folder.join("tables/results/part-0000000001-0000000007.parquet").exists());
    assert_eq!(ask(&place, sums), json!([{"n": 7, "value": 24.5, "inputs": 21}]));
    assert_eq!(ask(&place, days), expected(7, 21));
    let states = "select state, failure, count(*) as n from points group by state, failure order by state";
    let of = |state: &str, failure: Value, n: u64| json!({"state": state, "failure": failure, "n": n});
    let expected_states = json!([of("done", Value::Null, 7), of("failed", "fatal".into(), 1)]);
    assert_eq!(ask(&place, states), expected_states);
    // A retry adds what a point gives at last, once.
    fs::write(folder.join("inputs/gate.txt"), "open\n").expect("the copy can be written");
    place.run(["campaign", "retry"]);
    let (code, _) = end(start(&place));
    assert_eq!(code, Some(5));
    assert_eq!(ask(&place, "select point from results group by point having count(*) > 1"), json!([]));
    // Without tables, they are made again.
    fs::remove_dir_all(folder.join("tables")).expect("tables can be removed");
    assert_eq!(ask(&place, days), expected(7, 21));
    place.run(["campaign", "verify"]);
    let joined = "select r.value, s.value as load from results r join series s on s.point = r.point where s.step = 3 and r.n = 2";
    assert_eq!(ask(&place, joined), json!([{"value": 2.5, "load": 23.0}]));
}

#[test]
fn answers_have_four_forms_and_lists_of_points_may_be_parquet() {
    let place = Place::new();
    write(
        &place,
        "run: echo value {n}\nvariables: {n: {integer: [1, 3]}}\ndesign: grid\noutputs: {value: 'value (.*)'}\n",
    );
    place.json(["campaign", "run"]);
    let sql = "select n, value * 2 as twice from results order by n";
    assert_eq!(place.run(["campaign", "query", "--csv", sql]), "n,twice\n1,2\n2,4\n3,6\n");
    let table = place.run(["campaign", "query", sql]);
    assert!(table.contains("| n | twice |") && table.contains("| 3 | 6     |"), "{table}");
    place.run([
        "campaign",
        "query",
        "--parquet",
        "list.parquet",
        "select twice as n, 'a' as word from (select value * 2 as twice from results)",
    ]);
    let words = place.fails(1, ["campaign", "query", "--parquet", "list.parquet", sql]);
    assert!(words.contains("list.parquet") && words.contains("exists"), "{words}");
    write(
        &place,
        "run: echo value {word} {n}\nvariables: {n: 1, word: x}\ndesign: {list: list.parquet}\noutputs: {value: 'value (.*)'}\nstorage: second\n",
    );
    place.json(["campaign", "run"]);
    assert_eq!(
        ask(&place, "select n, value from results order by n"),
        json!([
            {"n": 2, "value": "a 2"}, {"n": 4, "value": "a 4"}, {"n": 6, "value": "a 6"},
        ])
    );
    fs::write(place.path().join("list.parquet"), "nothing").expect("it can be written");
    let words = place.fails(2, ["campaign", "run", "--dry-run"]);
    assert!(words.contains("read the list of points") && words.contains("list.parquet"), "{words}");
}

#[test]
fn statements_that_are_no_queries_are_refused() {
    let place = Place::new();
    write(
        &place,
        "run: echo value {n}\nvariables: {n: {integer: [1, 3]}}\ndesign: grid\noutputs: {value: 'value (.*)'}\n",
    );
    let words = place.fails(4, ["campaign", "query", "select 1"]);
    assert!(words.contains("there is none"), "{words}");
    place.json(["campaign", "run"]);
    for (sql, part) in [
        ("select nothing from results", "nothing"),
        ("copy results to 'stolen.csv'", "COPY is not a query"),
        ("create table t as select 1", "is not a query"),
        ("select * from '/etc/passwd'", "passwd"),
        ("selec 1", "selec"),
    ] {
        let words = place.fails(2, ["campaign", "query", sql]);
        assert!(words.starts_with("slipway: failed to understand the query: ") && words.contains(part), "{words}");
        assert!(words.contains("Hint: tables: results (point, n, value, seconds"), "{words}");
    }
    let words = place.fails(2, ["--json", "campaign", "query", "select nothing from results"]);
    let error: Value = serde_json::from_str(&words).expect("JSON");
    assert!(
        error["error"]["help"].as_str().is_some_and(|help| help.contains("points (point, n, seed, state")),
        "{words}"
    );
    assert!(!place.path().join("stolen.csv").exists());
    // A part whose footer is whole: the query that meets the damage names the part, and the next one has it again.
    let parts = place.path().join("slipway-campaigns").join(place.name("c")).join("tables/results");
    let part = parts.join("part-0000000001-0000000003.parquet");
    let mut bytes = fs::read(&part).expect("the run left a part");
    bytes[4..40].fill(0xaa);
    fs::write(&part, bytes).expect("it can be damaged");
    place.fails(1, ["campaign", "verify"]);
    let words = place.fails(1, ["campaign", "query", "select * from results"]);
    assert!(words.contains("part-0000000001-0000000003.parquet") && words.contains("ask once more"), "{words}");
    assert_eq!(ask(&place, "select sum(value) as value from results"), json!([{"value": 6}]));
    place.run(["campaign", "verify"]);
}

#[test]
fn files_that_nobody_needs_are_removed() {
    let place = Place::new();
    fs::write(place.path().join("gate.txt"), "closed\n").expect("an input can be written");
    // The first attempt fails with a file that only it has.
    write(
        &place,
        "\
run: [sh, -c, 'echo hour,x > out.csv; echo 0,1 >> out.csv; grep -q \"\\\"attempt\\\": 2\" point.json || { seq 1000 > lost; exit 1; }']
variables: {n: 1}
design: {repeat: 1}
pause: 1ms
keep: all
outputs: {x: {file: out.csv, series: x}}
",
    );
    let answer = place.json(["campaign", "run"]);
    assert_eq!(answer["done"], 1, "{answer}");
    let would = place.json(["campaign", "gc", "--dry-run"]);
    assert!(would["objects"].as_u64() > Some(0), "{would}");
    let swept = place.json(["campaign", "gc"]);
    assert_eq!(swept["objects"], would["objects"]);
    assert_eq!(place.json(["campaign", "gc"])["objects"], 0);
    place.run(["campaign", "verify"]);
    let folder = place.path().join("slipway-campaigns").join(place.name("c"));
    fs::remove_dir_all(folder.join("tables")).expect("tables can be removed");
    assert_eq!(ask(&place, "select value from series"), json!([{"value": 1.0}]));
}
