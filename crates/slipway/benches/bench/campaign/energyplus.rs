//! Annual building simulations: how busy processors are.
//!
//! `SLIPWAY_CAMPAIGN` names another campaign file; `--points` says how many points run before the campaign is interrupted.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{busy, option};
use crate::common::{Slipway, Way, compare, less, more};

/// The campaign that runs, unless `SLIPWAY_CAMPAIGN` names another.
const EXAMPLE: &str = "benches/bench/campaign/office.yaml";

pub(crate) fn run() {
    let file = std::env::var_os("SLIPWAY_CAMPAIGN")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(EXAMPLE), PathBuf::from);
    if !file.exists() {
        return println!("Left out: energyplus, since there is no {}\n", file.display());
    }
    let points = option("points", 1000, 2);
    let title = format!("{points} points of {}", file.display());
    compare(&title, 1, &mut [Way::new("slipway", || of_file(&file, points))]);
}

fn of_file(file: &Path, points: u32) -> Vec<slipway_measure::probe::Sample> {
    let slipway = Slipway::new();
    let folder = tempfile::tempdir_in(super::scratch()).expect("a temporary folder");
    // Beside the original its relative inputs are found, and results go elsewhere.
    let text = std::fs::read_to_string(file).expect("the campaign file can be read");
    let text = format!("{text}\nstorage: {}\n", folder.path().join("campaign").display());
    let copy = file.with_file_name("bench-campaign.yaml");
    std::fs::write(&copy, text).expect("the copy can be written");
    let ask = |words: &[&str]| {
        let mut command = slipway.command(&[&["--json", "campaign"], words].concat());
        command.arg(&copy);
        command
    };
    let (start, before) = (Instant::now(), busy());
    let mut run = ask(&["run"]).stdout(std::process::Stdio::null()).spawn().expect("slipway can be started");
    let status =
        || -> Value { serde_json::from_slice(&ask(&["status"]).output().expect("it runs").stdout).unwrap_or_default() };
    let ended = |status: &Value| status["done"].as_u64().unwrap_or(0) + status["failed"].as_u64().unwrap_or(0);
    while run.try_wait().expect("it can be asked").is_none() && ended(&status()) < points.into() {
        sleep(Duration::from_millis(500));
    }
    let took = start.elapsed().as_secs_f64();
    let spent = busy() - before;
    // Gone where the campaign had no more points.
    let _ = kill_process(Pid::from_child(&run), Signal::INT);
    run.wait().expect("it can be awaited");
    let last = status();
    let _ = std::fs::remove_file(&copy);
    let processors = f64::from(*super::WORKERS);
    vec![
        more("processors busy", "%", spent / took / processors * 100.0),
        more("points", "1/h", ended(&last) as f64 / took * 3600.0),
        more("time of workers for results", "%", share(&last["seconds"]) * 100.0),
        less("points that failed", "", last["failed"].as_f64().unwrap_or(0.0)),
    ]
}

fn share(seconds: &Value) -> f64 {
    let [used, lost, idle] = ["used", "lost", "idle"].map(|part| seconds[part].as_f64().unwrap_or(0.0));
    used / (used + lost + idle).max(1e-9)
}
