//! Helpers that tests of campaigns share.

use std::process::{Child, Stdio};

use rustix::process::Pid;
use serde_json::Value;

use super::{Place, await_that, told};

/// A campaign of a test's own name, as `campaign.yaml`.
pub fn write(place: &Place, text: &str) {
    let text = format!("campaign: {}\n{text}", place.name("c"));
    std::fs::write(place.path().join("campaign.yaml"), text).expect("the campaign file can be written");
}

/// Starts `slipway campaign run`.
pub fn start(place: &Place) -> Child {
    let mut run = place.slipway(["--json", "campaign", "run"]);
    run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slipway can be started")
}

/// Its number.
pub fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Its answer, and its exit code.
#[track_caller]
pub fn end(run: Child) -> (Option<i32>, Value) {
    let output = run.wait_with_output().expect("it can be awaited");
    let answer = serde_json::from_slice(&output.stdout);
    (output.status.code(), answer.unwrap_or_else(|error| panic!("{error}: {}", told(&output))))
}

/// `slipway campaign status`.
pub fn status(place: &Place) -> Value {
    place.json(["campaign", "status"])
}

/// Waits until so many points have results. The campaign's folder is there when the queue is.
#[track_caller]
pub fn await_done(place: &Place, count: u64) {
    await_that("points have results", || {
        let output = place.slipway(["--json", "campaign", "status"]).output().expect("slipway can be started");
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status["done"].as_u64().is_some_and(|done| done >= count)
    });
}
