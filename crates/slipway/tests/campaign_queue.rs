//! A campaign's queue and clock in others' hands: another program locks the queue, and the machine's clocks start anew.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use common::campaigns::{await_done, pid, start, status, write};
use common::{Inventory, Place, as_before, await_that, told};
use rustix::process::{Pid, Signal, kill_process};

const COUNT: u64 = 40;

fn queue(place: &Place) -> PathBuf {
    place.path().join("slipway-campaigns").join(place.name("c")).join("campaign.db")
}

/// Runs what is left: then each point has exactly one result, and nothing contradicts another.
#[track_caller]
fn ends_well(place: &Place) {
    let output = start(place).wait_with_output().expect("it can be awaited");
    assert!(output.status.success(), "{}", told(&output));
    let rows = place.json(["campaign", "results"]);
    let rows = rows.as_array().expect("rows");
    let mut points: Vec<u64> = rows.iter().map(|row| row["point"].as_u64().expect("a number")).collect();
    points.sort_unstable();
    assert_eq!(points, (0..COUNT).collect::<Vec<_>>(), "exactly one result a point");
    assert!(rows.iter().all(|row| row["x"] == row["value"]), "each result is that of its point");
    place.run(["campaign", "verify"]);
}

/// Another program with the queue's write lock, until it is dropped.
struct Holder(Child);

impl Holder {
    fn new(place: &Place) -> Self {
        let program = "import sqlite3, sys\n\
                       queue = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)\n\
                       queue.execute('BEGIN IMMEDIATE')\n\
                       print('locked', flush=True)\n\
                       sys.stdin.read()\n";
        let mut python = Command::new("python3");
        python.args(["-c", program]).arg(queue(place)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().expect("python3 can be started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it can be read");
        assert_eq!(line, "locked\n");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_queue_that_another_program_locks_ends_the_run_and_loses_nothing() {
    let place = Place::new();
    let before = Inventory::of(&place);
    write(
        &place,
        "run: [sh, -c, 'sleep 0.1; echo value {x}']\nvariables: {x: {integer: [1, 1000000]}}\ndesign: {random: 40}\n\
         workers: 2\noutputs: {value: 'value ([0-9]+)'}\n",
    );
    let run = start(&place);
    await_done(&place, 1);
    let holder = Holder::new(&place);
    let output = run.wait_with_output().expect("it can be awaited");
    let words = told(&output);
    assert!(!output.status.success() && words.contains("fuser -v") && words.contains("campaign.db"), "{words}");
    // Others can still look, and the next run is refused in the same words.
    let seen = status(&place);
    assert!(seen["done"].as_u64() >= Some(1) && seen["runs"] == false, "{seen}");
    let output = start(&place).wait_with_output().expect("it can be awaited");
    let words = told(&output);
    assert!(!output.status.success() && words.contains("fuser -v"), "{words}");
    drop(holder);
    ends_well(&place);
    as_before(&place, &before, "nothing is left but the campaign's folder");
}

/// The process that another one started.
fn child_of(parent: &Child) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent.id())).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

#[test]
fn clocks_that_start_anew_hold_no_point_back() {
    let place = Place::new();
    // Each first attempt fails, and the second is due an hour later.
    write(
        &place,
        "run: [sh, -c, 'grep -q \"attempt.: 1,\" point.json && exit 3; echo value {x}']\n\
         variables: {x: {integer: [1, 1000000]}}\ndesign: {random: 40}\nattempts: 2\npause: 1h\nworkers: 2\n\
         outputs: {value: 'value ([0-9]+)'}\n",
    );
    // The clocks of a machine that has run for a year; the next run's are those of this machine.
    let mut year = Command::new("unshare");
    year.args(["--time", "--monotonic", "31536000", "--boottime", "31536000", "--fork"]);
    place.furnish(&mut year);
    year.arg(env!("CARGO_BIN_EXE_slipway")).args(["--json", "campaign", "run"]);
    let first = year.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("unshare can be started");
    await_that("all points wait for their second attempt", || {
        let output = place.slipway(["--json", "campaign", "points", "--state", "waiting"]).output();
        let output = output.expect("slipway can be started");
        let points: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        points.as_array().is_some_and(|points| points.len() as u64 == COUNT)
    });
    kill_process(child_of(&first).unwrap_or_else(|| pid(&first)), Signal::INT).expect("it runs");
    let output = first.wait_with_output().expect("it can be awaited");
    let seen = status(&place);
    assert_eq!((&seen["done"], &seen["waiting"]), (&0.into(), &COUNT.into()), "{seen}: {}", told(&output));
    ends_well(&place);
}
