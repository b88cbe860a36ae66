//! Results through a REST server of one process, as OpenStudio-server takes them, and through shared storage.
//!
//! The same program writes the same file at each point. In one way it posts the file to `rest.py` with curl, and the
//! campaign keeps no files; in the other the worker hands it in. Content cannot be compressed, and differs by point.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use slipway_measure::probe::Sample;

use super::{Campaign, option, processor_time, scratch, script, watch};
use crate::common::{Way, compare, less, more};

/// Megabytes of a result, and how many results.
const SIZES: [(u64, u32); 3] = [(1, 64), (10, 32), (100, 16)];
const QUICK: [(u64, u32); 1] = [(1, 8)];

pub(crate) fn run() {
    let is_quick = std::env::args().any(|word| word == "--quick");
    let sizes: &[(u64, u32)] = if is_quick { &QUICK } else { &SIZES };
    let most = option("workers", 16, 2);
    for &(megabytes, points) in sizes {
        let content = tempfile::NamedTempFile::new_in(scratch()).expect("a temporary file");
        let mut make = Command::new("head");
        make.args(["-c", &(megabytes * 1_000_000).to_string(), "/dev/urandom"]);
        make.stdout(content.reopen().expect("it can be opened"));
        assert!(make.status().expect("head can be started").success());
        for workers in [1, 4, 16].into_iter().filter(|&workers| workers <= most) {
            compare(
                &format!("{megabytes} MB a result, {workers} workers, {points} results"),
                3,
                &mut [
                    Way::new("REST server", || through_rest(content.path(), points, workers)),
                    Way::new("shared storage", || through_storage(content.path(), points, workers)),
                ],
            );
        }
    }
}

/// A campaign whose points write the file with their number before it, and then do `then`. Workers share the processors.
fn campaign(content: &Path, points: u32, workers: u32, keep: &str, then: &str) -> Campaign {
    let cpus = f64::from(*super::WORKERS) / f64::from(workers);
    let cpus = cpus.min(1.0);
    let text = format!(
        "inputs: {{content: {}}}\nrun: [sh, -c, '{{ echo $SLIPWAY_POINT; cat content; }} > result.bin{then}']\n\
         variables: {{x: {{uniform: [0, 1]}}}}\ndesign: {{random: {points}}}\nkeep: {keep}\n\
         workers: {{max: {workers}, cpus: {cpus} core, memory: 256MiB, network: true}}\n",
        content.display()
    );
    Campaign::new("bench-storage", &text.replace("{ echo", "( echo").replace("; }", " )"))
}

/// Runs it. Returns results a second of working time, with the coordinator's processor time of a point in milliseconds.
fn carry_out(campaign: &Campaign, points: u32) -> (f64, f64) {
    let mut run = campaign.start();
    let spent = watch(&mut run, processor_time);
    let output = run.wait_with_output().expect("it can be awaited");
    let summary = super::answer(&output.stdout);
    assert_eq!(summary["done"].as_u64(), Some(points.into()), "{summary}");
    let elapsed = summary["elapsed"].as_f64().expect("seconds");
    (f64::from(points) / elapsed, spent / f64::from(points) * 1000.0)
}

fn figures(rate: f64, server: f64, coordinator: f64) -> Vec<Sample> {
    vec![
        more("results", "1/s", rate),
        less("server's processor time of a result", "ms", server),
        less("coordinator's processor time of a result", "ms", coordinator),
    ]
}

fn through_storage(content: &Path, points: u32, workers: u32) -> Vec<Sample> {
    let campaign = campaign(content, points, workers, "all", "");
    let (rate, coordinator) = carry_out(&campaign, points);
    figures(rate, coordinator, coordinator)
}

/// The server, which ends with its standard input.
struct Rest {
    child: Child,
    port: String,
    folder: tempfile::TempDir,
}

impl Rest {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(scratch()).expect("a temporary folder");
        let mut command = Command::new("python3");
        command.arg(script("rest.py")).arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 can be started");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("it says its port");
        let port = line.split_whitespace().next().expect("a port").to_owned();
        Self { child, port, folder }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn through_rest(content: &Path, points: u32, workers: u32) -> Vec<Sample> {
    let server = Rest::new();
    let post = format!(
        " && curl --silent --show-error --fail -F file[display_name]=result -F file[attachment]=@result.bin http://127.0.0.1:{}/data_points/$SLIPWAY_POINT/upload_file",
        server.port
    );
    let campaign = campaign(content, points, workers, "tables", &post);
    let (rate, coordinator) = carry_out(&campaign, points);
    let spent = processor_time(server.child.id()).expect("it runs") / f64::from(points) * 1000.0;
    let sizes = std::fs::read_dir(server.folder.path()).expect("its folder").flatten();
    let whole = std::fs::metadata(content).expect("it is there").len();
    let stored = sizes.filter(|file| file.metadata().is_ok_and(|found| found.len() > whole)).count();
    assert_eq!(stored, points as usize, "the server has each result, whole");
    figures(rate, spent, coordinator)
}
