//! Campaigns at the command's front door: real workers in nodes, and what remains of results when things die.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use common::campaigns::{await_done, end, pid, start, status, write};
use common::{Inventory, Place, as_before, await_that, told};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

/// Kills the worker of a node, and no other process. The coordinator then ends the node, and pkill with it, which may have no
/// time to end by itself.
fn kill_worker(place: &Place, lab: &str, node: &str) {
    let pkill =
        place.slipway(["exec", lab, node, "--", "pkill", "-KILL", "agent"]).output().expect("it can be started");
    assert!(matches!(pkill.status.code(), Some(0 | 137)), "{}", told(&pkill));
}

/// The numbers of points that have results, in order.
fn numbers(place: &Place) -> Vec<u64> {
    let rows = place.json(["campaign", "results"]);
    let mut numbers: Vec<u64> =
        rows.as_array().expect("rows").iter().map(|row| row["point"].as_u64().expect("a number")).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn the_file_of_init_runs_as_it_is() {
    let place = Place::new();
    place.run(["campaign", "init"]);
    let text = std::fs::read_to_string(place.path().join("campaign.yaml")).expect("it was written");
    let text = text.replace("campaign: example", &format!("campaign: {}", place.name("c")));
    std::fs::write(place.path().join("campaign.yaml"), text).expect("it can be written");
    let before = Inventory::of(&place);
    let answer = place.json(["campaign", "run"]);
    assert_eq!((&answer["points"], &answer["done"], &answer["failed"]), (&40.into(), &40.into(), &0.into()));
    as_before(&place, &before, "its lab went down");
    let rows = place.json(["campaign", "results"]);
    let rows = rows.as_array().expect("rows");
    assert_eq!(rows.len(), 40);
    for row in rows {
        let [speed, angle, height] =
            ["speed", "angle", "height"].map(|name| row[name].as_f64().expect("each row has its values"));
        let expected = (speed * angle.sin()).powi(2) / 19.62;
        assert!((height - expected).abs() < 1e-4 * expected, "{row}");
    }
    assert_eq!(answer["outputs"][0]["count"], 40);
    place.run(["campaign", "verify"]);
    place.run(["campaign", "report", "--out", "page.html"]);
    let page = std::fs::read_to_string(place.path().join("page.html")).expect("the page was written");
    for part in
        ["<svg", "height against speed", "height: how often each value came", "time of workers", "40 of 40 points"]
    {
        assert!(page.to_lowercase().contains(&part.to_lowercase()), "{part} is not in {page}");
    }
    let csv = place.run(["campaign", "results"]);
    assert_eq!(csv.lines().count(), 41);
    assert!(csv.starts_with("point,speed,angle,height,"), "{csv}");
    assert_eq!(place.run(["campaign", "logs", "3"]).lines().count(), 1);
}

#[test]
fn points_find_their_inputs_and_leave_files_and_series() {
    let place = Place::new();
    std::fs::write(place.path().join("model.txt"), "scale {scale}\n").expect("an input can be written");
    write(
        &place,
        "\
inputs: {model.txt: {path: model.txt, template: true}}
run: [sh, -c, 'echo t,x > out.csv; for i in $(seq {layers}); do echo $i,$((i * $(cut -d\" \" -f2 model.txt))); done >> out.csv']
variables:
  layers: [2, 3]
  scale: 5
design: grid
outputs:
  last: {file: out.csv, column: x}
  all: {file: out.csv, series: x}
",
    );
    let answer = place.json(["campaign", "run"]);
    assert_eq!(answer["done"], 2, "{answer}");
    let rows = place.json(["campaign", "results"]);
    assert_eq!((&rows[0]["last"], &rows[1]["last"]), (&10.into(), &15.into()), "{rows}");
    place.run(["campaign", "export", "1", "kept"]);
    let text = std::fs::read_to_string(place.path().join("kept/out.csv")).expect("the program's file is kept");
    assert_eq!(text, "t,x\n1,5\n2,10\n3,15\n");
    place.run(["campaign", "verify"]);
    // A campaign's folder belongs to one file.
    std::fs::write(place.path().join("model.txt"), "scale 7\n").expect("an input can be written");
    let words = place.fails(2, ["campaign", "run"]);
    assert!(words.contains("model.txt"), "{words}");
}

#[test]
fn failures_have_reasons_and_can_be_retried() {
    let place = Place::new();
    write(
        &place,
        "\
run: [sh, -c, 'echo begins; case {bad} in 1) echo broken >&2; exit 3;; 2) sleep 600;; esac; echo value 7']
variables: {bad: [0, 1, 2, 3]}
design: grid
attempts: 2
pause: 1ms
timeout: 1s
outputs: {value: 'value ([0-9]+)'}
",
    );
    let (code, answer) = end(start(&place));
    assert_eq!((code, &answer["done"], &answer["failed"]), (Some(5), &2.into(), &2.into()), "{answer}");
    let points = place.json(["campaign", "points", "--state", "failed"]);
    let of = |index: usize| {
        let point = &points[index];
        ["failure", "attempts"].map(|key| point[key].clone())
    };
    assert_eq!((of(0), of(1)), (["fatal".into(), 2.into()], ["timeout".into(), 2.into()]), "{points}");
    assert!(points[0]["message"].as_str().is_some_and(|message| message.contains("broken")), "{points}");
    let logs = place.run(["campaign", "logs", "1"]);
    assert!(logs.contains("begins") && logs.contains("broken"), "{logs}");
    let answer = place.json(["campaign", "retry", "--failure", "fatal"]);
    assert_eq!(answer["retried"], 1);
    let now = status(&place);
    assert_eq!((&now["waiting"], &now["failed"]), (&1.into(), &1.into()), "{now}");
    let (code, answer) = end(start(&place));
    assert_eq!((code, &answer["done"], &answer["failed"]), (Some(5), &2.into(), &2.into()), "{answer}");
    place.run(["campaign", "verify"]);
}

/// The lab of the campaign's workers.
fn lab(place: &Place) -> String {
    status(place)["lab"].as_str().expect("a name").to_owned()
}

const SLOW: &str = "\
run: [sh, -c, 'sleep 0.1; echo value {x}']
variables: {x: {integer: [1, 1000]}}
design: {random: 60}
pause: 1ms
workers: 2
outputs: {value: 'value ([0-9]+)'}
";

#[test]
fn nothing_is_lost_where_workers_and_the_coordinator_are_killed() {
    let place = Place::new();
    let before = Inventory::of(&place);
    write(&place, SLOW);
    let mut run = start(&place);
    await_done(&place, 4);
    let lab = lab(&place);
    // A whole node, and then a worker alone.
    place.run(["kill", "--how", "hard", &lab, "w1"]);
    await_done(&place, 12);
    kill_worker(&place, &lab, "w2");
    await_done(&place, 20);
    kill_process(pid(&run), Signal::KILL).expect("it runs");
    run.wait().expect("it can be awaited");
    // The lab that it leaves goes down by itself.
    await_that("the campaign no longer runs", || status(&place)["runs"] == false);
    let so_far = status(&place);
    assert!(so_far["done"].as_u64().is_some_and(|done| (20..60).contains(&done)), "{so_far}");
    let (code, answer) = end(start(&place));
    assert_eq!((code, &answer["done"], &answer["failed"]), (Some(0), &60.into(), &0.into()), "{answer}");
    assert_eq!(numbers(&place), (0..60).collect::<Vec<_>>(), "exactly one result a point");
    let rows = place.json(["campaign", "results"]);
    assert!(rows.as_array().expect("rows").iter().all(|row| row["x"] == row["value"]), "{rows}");
    place.run(["campaign", "verify"]);
    as_before(&place, &before, "nothing is left but the campaign's folder");
}

/// A worker's end is an event of the kernel: nobody waits for its silence.
#[test]
fn the_death_of_a_worker_or_its_node_is_known_at_once() {
    let place = Place::new();
    write(
        &place,
        "\
run: sleep 600
variables: {x: [1, 2]}
design: grid
attempts: 1
workers: {max: 2, memory: 64MiB}
",
    );
    let run = start(&place);
    await_that("both points run", || {
        let output = place.slipway(["--json", "campaign", "status"]).output().expect("slipway can be started");
        serde_json::from_slice(&output.stdout).is_ok_and(|status: Value| status["running"] == 2)
    });
    let lab = lab(&place);
    kill_worker(&place, &lab, "w1");
    // At the same time: the coordinator must reap the second worker while it has the first one's node end.
    place.run(["kill", "--how", "hard", &lab, "w2"]);
    let (code, answer) = end(run);
    assert_eq!((code, &answer["failed"]), (Some(5), &2.into()), "{answer}");
    let points = place.json(["campaign", "points"]);
    let mut reasons: Vec<(&str, &str)> = points
        .as_array()
        .expect("points")
        .iter()
        .map(|point| (point["failure"].as_str().unwrap_or_default(), point["message"].as_str().unwrap_or_default()))
        .collect();
    reasons.sort_unstable();
    // A worker that is taken for dead by its silence "was silent".
    assert_eq!(reasons, [("lost-worker", "worker 1 ended"), ("lost-worker", "worker 2 ended")]);
}

/// A lab sorts its nodes by name, so w10 comes before w2: each worker must find its own call and folder.
#[test]
fn more_than_ten_workers_have_a_node_each() {
    let place = Place::new();
    write(
        &place,
        "\
run: [sh, -c, 'hostname; sleep 0.2']
design: {repeat: 60}
workers: {max: 12, memory: 32MiB, cpus: 0.1 core}
outputs: {node: 'w([0-9]+)'}
",
    );
    let (code, answer) = end(start(&place));
    assert_eq!((code, &answer["done"]), (Some(0), &60.into()), "{answer}");
    let rows = place.json(["campaign", "results"]);
    let mut nodes = BTreeSet::new();
    for row in rows.as_array().expect("rows") {
        assert_eq!(row["node"].as_f64(), row["worker"].as_f64(), "{row}");
        nodes.insert(row["node"].to_string());
    }
    assert_eq!(nodes.len(), 12, "{rows}");
}

/// Analyses often have the same name. Their campaigns run at the same time, each in a lab of its own.
#[test]
fn campaigns_of_one_name_in_two_folders_run_at_the_same_time() {
    let place = Place::new();
    let name = format!("{:x<32}", place.name("c-"));
    let text = format!("campaign: {name}\n{}", SLOW.replace("sleep 0.1", "sleep 600"));
    let folders = ["one", "two"].map(|folder| {
        std::fs::create_dir(place.path().join(folder)).expect("a folder can be made");
        std::fs::write(place.path().join(folder).join("campaign.yaml"), &text).expect("it can be written");
        format!("{folder}/campaign.yaml")
    });
    let runs = folders.clone().map(|file| {
        let mut run = place.slipway(["--json", "campaign", "run", &file]);
        run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slipway can be started")
    });
    let labs = folders.map(|file| {
        let mut lab = String::new();
        await_that("its points run", || {
            let status = place.slipway(["--json", "campaign", "status", &file]).output().expect("it can be started");
            let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            lab = status["lab"].as_str().unwrap_or_default().to_owned();
            status["running"].as_u64() > Some(0)
        });
        lab
    });
    assert_ne!(labs[0], labs[1]);
    let running = place.run(["ps"]);
    assert!(labs.iter().all(|lab| lab.len() <= 32 && running.contains(lab)), "{labs:?}: {running}");
    for run in runs {
        kill_process(pid(&run), Signal::INT).expect("it runs");
        kill_process(pid(&run), Signal::TERM).expect("it runs");
        let (code, answer) = end(run);
        assert_eq!((code, &answer["waiting"]), (Some(130), &60.into()), "{answer}");
    }
}

#[test]
fn an_interrupt_lets_points_end_and_a_second_one_does_not() {
    let place = Place::new();
    let before = Inventory::of(&place);
    write(&place, SLOW);
    let run = start(&place);
    await_done(&place, 4);
    kill_process(pid(&run), Signal::INT).expect("it runs");
    let (code, answer) = end(run);
    assert_eq!((code, &answer["interrupted"], &answer["running"]), (Some(130), &true.into(), &0.into()), "{answer}");
    write(&place, &SLOW.replace("sleep 0.1", "sleep 600"));
    let text = std::fs::read_to_string(place.path().join("campaign.yaml")).expect("it was written");
    std::fs::write(place.path().join("campaign.yaml"), text.replacen("campaign: ", "campaign: other-", 1))
        .expect("it can be written");
    let run = start(&place);
    await_that("points run", || {
        let output = place.slipway(["--json", "campaign", "status"]).output().expect("slipway can be started");
        serde_json::from_slice(&output.stdout).is_ok_and(|status: Value| status["running"].as_u64() > Some(0))
    });
    kill_process(pid(&run), Signal::INT).expect("it runs");
    kill_process(pid(&run), Signal::TERM).expect("it runs");
    let (code, answer) = end(run);
    assert_eq!((code, &answer["done"], &answer["waiting"]), (Some(130), &0.into(), &60.into()), "{answer}");
    as_before(&place, &before, "nothing is left but the campaigns' folders");
}

#[test]
fn a_campaign_is_paused_resumed_and_cancelled_from_another_terminal() {
    let place = Place::new();
    write(&place, SLOW);
    let run = start(&place);
    await_done(&place, 2);
    place.run(["campaign", "pause"]);
    await_that("running points end", || status(&place)["running"] == 0);
    let paused = status(&place);
    assert_eq!((&paused["state"], &paused["runs"]), (&"paused".into(), &true.into()), "{paused}");
    place.run(["campaign", "resume"]);
    let done = paused["done"].as_u64().expect("a count");
    await_done(&place, done + 4);
    place.run(["campaign", "cancel"]);
    let (code, answer) = end(run);
    assert_eq!((code, &answer["state"], &answer["running"]), (Some(0), &"cancelled".into(), &0.into()), "{answer}");
    assert!(answer["waiting"].as_u64() > Some(0), "{answer}");
    assert!(Path::new(answer["folder"].as_str().expect("a folder")).join("campaign.db").exists());
    // A cancelled campaign can be taken up again.
    place.run(["campaign", "resume"]);
    let (code, answer) = end(start(&place));
    assert_eq!((code, &answer["done"]), (Some(0), &60.into()), "{answer}");
}

#[test]
fn every_example_resolves() {
    let place = Place::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/campaigns");
    let folders: Vec<_> = std::fs::read_dir(examples).expect("the examples are there").collect();
    assert!(!folders.is_empty());
    let files =
        folders.into_iter().map(|folder| folder.expect("their folder can be read").path().join("campaign.yaml"));
    // `campaign_s3` runs the one that needs a server of S3.
    for file in files.filter(|file| !file.parent().is_some_and(|folder| folder.ends_with("bucket"))) {
        let plan = place.json(["campaign".as_ref(), "run".as_ref(), "--dry-run".as_ref(), file.as_os_str()]);
        assert!(plan["points"].as_u64() > Some(0), "{plan}");
        assert_eq!(plan["dry_run"], true, "{}", file.display());
    }
}

#[test]
fn wrong_files_change_nothing() {
    let place = Place::new();
    for (text, part) in [
        ("run: 'true'\nvariables: {x: {unifrom: [0, 1]}}\ndesign: {random: 3}\n", "uniform"),
        ("run: echo {y}\nvariables: {x: {uniform: [0, 1]}}\ndesign: {random: 3}\n", "y"),
        ("run: cd x; make\nvariables: {x: 1}\ndesign: {repeat: 3}\n", "no shell"),
        ("run: 'true'\nvariables: {x: 1}\ndesign: {repeat: 3}\ninputs: {a: nothere.txt}\n", "nothere.txt"),
    ] {
        write(&place, text);
        let mut run = place.slipway(["campaign", "run"]);
        let output = run.output().expect("slipway can be started");
        assert!(!output.status.success(), "{text}");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains(part), "{words}");
        assert!(!place.path().join("slipway-campaigns").exists(), "{text}");
    }
    let words = place.fails(4, ["campaign", "status"]);
    assert!(words.contains("campaign"), "{words}");
}
