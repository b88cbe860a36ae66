//! Campaigns under faults: whatever is killed, frozen, filled up, taken away or lied about, each point gets one result.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::storm::{self, Blow, agents, descendants};
use common::{Inventory, Place, as_before, await_that, told};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Points that leave a value, a series and a file, each of which says which point it is.
const POINTS: &str = "\
run: [sh, -c, 'sleep 0.05; echo {x} > out.txt; echo t,v > s.csv; echo 1,{x} >> s.csv; echo value {x}']
variables: {x: {integer: [1, 1000000]}}
attempts: 100
pause: 1ms
workers: 2
outputs:
  value: 'value ([0-9]+)'
  series: {file: s.csv, series: v}
";

/// A campaign of so many points. Its storage is a file system of its own, which can be filled up.
struct Campaign {
    place: Place,
    storage: PathBuf,
}

impl Campaign {
    fn new(points: u32, text: &str) -> Self {
        let place = Place::new();
        let storage = place.path().join("storage");
        fs::create_dir(&storage).expect("a folder can be made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(&storage);
        assert!(mount.status().expect("mount can be started").success(), "a file system can be mounted");
        let head = format!("campaign: {}\nstorage: {}\n", place.name("c"), storage.join("it").display());
        let text = format!("{head}design: {{random: {points}}}\n{text}");
        fs::write(place.path().join("campaign.yaml"), text).expect("the campaign file can be written");
        Self { place, storage }
    }

    fn folder(&self) -> PathBuf {
        self.storage.join("it")
    }

    fn lab(&self) -> String {
        self.status()["lab"].as_str().expect("a name").to_owned()
    }

    fn start(&self) -> Child {
        let mut run = self.place.slipway(["--json", "campaign", "run"]);
        run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slipway can be started")
    }

    /// Starts, and waits until workers are there.
    fn started(&self) -> Child {
        let mut run = self.start();
        let mut ended = false;
        await_that("points run", || {
            ended = run.try_wait().expect("it can be awaited").is_some();
            ended || self.count("running") > 0 || self.count("done") > 0
        });
        let is_good = !ended || self.count("done") > 0;
        assert!(is_good, "{}", told(&run.wait_with_output().expect("it has ended")));
        run
    }

    fn status(&self) -> Value {
        let output = self.place.slipway(["--json", "campaign", "status"]).output().expect("slipway can be started");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn count(&self, of: &str) -> u64 {
        self.status()[of].as_u64().unwrap_or_default()
    }

    /// Waits for the end of what a dead coordinator leaves.
    #[track_caller]
    fn settles(&self) -> &Self {
        let lock = self.folder().join("lock");
        let holders = || {
            let all = fs::read_dir("/proc").expect("/proc can be read").flatten();
            let holds = |entry: &fs::DirEntry| {
                let descriptors = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
                descriptors.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path == lock)
            };
            let of = |entry: fs::DirEntry| {
                let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
                format!("{} {} {}", read("stat"), read("cmdline"), read("wchan"))
            };
            all.filter(holds).map(of).collect::<Vec<_>>()
        };
        let deadline = std::time::Instant::now() + common::PATIENCE;
        while self.status()["runs"] != false {
            assert!(std::time::Instant::now() < deadline, "{}: {:#?}", self.status(), holders());
            sleep(Duration::from_millis(20));
        }
        self
    }

    /// Runs what is left, and looks at everything: exactly one result a point, and no contradiction.
    #[track_caller]
    fn ends_well(&self, points: u64) {
        let output = self.start().wait_with_output().expect("it can be awaited");
        assert!(output.status.success(), "{}", told(&output));
        self.is_whole(points);
    }

    #[track_caller]
    fn is_whole(&self, points: u64) {
        let status = self.status();
        assert_eq!((&status["done"], &status["failed"]), (&points.into(), &0.into()), "{status}");
        let rows = self.place.json(["campaign", "results"]);
        let rows = rows.as_array().expect("rows");
        let mut numbers: Vec<u64> = rows.iter().map(|row| row["point"].as_u64().expect("a number")).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..points).collect::<Vec<_>>(), "exactly one result a point");
        assert!(rows.iter().all(|row| row["x"] == row["value"]), "each result is that of its point");
        self.place.run(["campaign", "verify"]);
    }

    /// Leaves no room in storage until the file that this returns is removed.
    fn fill(&self) -> PathBuf {
        let path = self.storage.join("filler");
        let mut file = fs::File::create(&path).expect("a file can be made");
        while file.write_all(&[0; 4096]).is_ok() {}
        path
    }

    /// A request to the coordinator in a worker's name. Returns the status line.
    fn says(&self, worker: u32, path: &str, body: &str) -> String {
        let socket = self.folder().join("call").join(worker.to_string()).join("socket");
        let ask = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(&socket)?;
            stream.set_read_timeout(Some(common::PATIENCE))?;
            let head = "Host: x\r\nConnection: close\r\nContent-Type: application/json";
            write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer.lines().next().unwrap_or_default().to_owned())
        };
        ask().unwrap_or_default()
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        let _ = self.place.slipway(["down", "--all"]).output();
        // Lazily: a worker's mount may still end.
        let _ = Command::new("umount").arg("-l").arg(&self.storage).status();
    }
}

/// Kills workers, programs, nodes, the lab and the coordinator at random moments, fills storage up, pauses and cancels.
fn storm(kills: u32, points: u32, seed: u64) {
    let campaign = Campaign::new(points, POINTS);
    let before = Inventory::of(&campaign.place);
    let full = |random: &mut ChaCha8Rng, _: &Child| {
        let filler = campaign.fill();
        storm::pause(random, 400);
        fs::remove_file(filler).expect("it is there");
        true
    };
    // These are commands and not kills: they may come at any time too, and find a lab that goes down.
    let command = |random: &mut ChaCha8Rng, _: &Child| {
        let _ = campaign.place.slipway(["campaign", ["pause", "cancel"][random.random_range(0..2)]]).output();
        storm::pause(random, 200);
        let _ = campaign.place.slipway(["campaign", "resume"]).output();
        false
    };
    let blows = [
        Blow::new("workers", 3, |_, run| agents(run).first().is_some_and(|&agent| storm::kill(agent))),
        Blow::new("others below", 3, |random, run| storm::kill_any(random, &descendants(Pid::from_child(run)))),
        Blow::new("coordinators", 2, |_, run| storm::kill(Pid::from_child(run))),
        Blow::new("times full storage", 1, full),
        Blow::new("commands", 1, command),
    ];
    let left = || campaign.count("waiting") + campaign.count("running");
    let first = campaign.started();
    storm::rage(kills, seed, first, &|| campaign.settles().start(), &left, &blows);
    eprintln!("then: {}", campaign.status());
    campaign.settles();
    campaign.ends_well(points.into());
    as_before(&campaign.place, &before, "nothing is left but the campaign's folder");
}

#[test]
fn nothing_is_lost_in_a_dozen_kills() {
    storm(12, 150, 1);
}

#[test]
#[ignore = "takes minutes; `make test-long` runs it"]
fn nothing_is_lost_in_a_hundred_kills() {
    let seed = std::env::var("SLIPWAY_SEED").map_or(2, |seed| seed.parse().expect("a number"));
    storm(100, 1500, seed);
}

#[test]
fn workers_that_are_frozen_or_stopped_lose_their_points() {
    let campaign = Campaign::new(40, POINTS);
    let mut run = campaign.started();
    let agent = *agents(&run).first().expect("a worker lives");
    kill_process(agent, Signal::STOP).expect("it lives");
    campaign.place.run(["freeze", &campaign.lab(), "w2"]);
    await_that("all points have results", || campaign.count("done") == 40);
    assert!(run.wait().expect("it can be awaited").success());
    campaign.is_whole(40);
    let lost = campaign.status()["seconds"]["lost"].as_f64().expect("seconds");
    assert!(lost > 5.0, "the time of silent workers is told: {lost} s");
}

#[test]
fn full_storage_ends_the_run_and_fails_no_point() {
    let campaign = Campaign::new(40, &POINTS.replace("attempts: 100", "attempts: 1"));
    let run = campaign.started();
    let filler = campaign.fill();
    let output = run.wait_with_output().expect("it can be awaited");
    assert!(!output.status.success(), "{}", told(&output));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("room"), "{words}");
    fs::remove_file(filler).expect("it is there");
    campaign.settles();
    // Where even the queue has no room, points stay failed, and say so.
    campaign.place.run(["campaign", "retry", "--failure", "storage"]);
    campaign.ends_well(40);
}

#[test]
fn storage_that_is_gone_ends_the_run() {
    let campaign = Campaign::new(40, POINTS);
    let run = campaign.started();
    let away = campaign.storage.join("away");
    fs::rename(campaign.folder(), &away).expect("it can be moved");
    let output = run.wait_with_output().expect("it can be awaited");
    assert!(!output.status.success(), "{}", told(&output));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("it is gone"), "{words}");
    fs::rename(away, campaign.folder()).expect("it can be moved back");
    campaign.settles();
    campaign.ends_well(40);
}

#[test]
fn a_second_coordinator_is_refused_and_a_worker_that_lies_changes_nothing() {
    let campaign = Campaign::new(200, POINTS);
    let mut run = campaign.started();
    let second = campaign.start().wait_with_output().expect("it can be awaited");
    assert!(!second.status.success(), "{}", told(&second));
    let words = String::from_utf8_lossy(&second.stderr);
    assert!(words.contains(&format!("process {} runs it", run.id())), "{words}");

    let lie = |point: u64, fence: u64, objects: Value| {
        let record = json!({"values": [999, null], "series": [], "manifest": null});
        let usage = json!({"seconds": 1e300, "cpu_seconds": -1.0, "peak_bytes": u64::MAX});
        let outcome = json!({"done": record});
        let report = json!({"point": point, "fence": fence, "outcome": outcome, "usage": usage, "objects": objects});
        json!({"ended": [report, report]}).to_string()
    };
    await_that("nonsense is refused", || campaign.says(1, "/v1/turn", "{\"ended\": [{\"point\": -1").contains(" 4"));
    for round in 0..60 {
        let worker = 1 + round % 2;
        let body = match round % 3 {
            0 => lie(u64::from(round), u64::from(round), json!([])),
            1 => lie(1 << 62, 1, json!(["0".repeat(64)])),
            // Takes points, and never reports them.
            _ => json!({"ended": []}).to_string(),
        };
        campaign.says(worker, "/v1/turn", &body);
    }
    assert!(run.wait().expect("it can be awaited").success());
    campaign.is_whole(200);
}

/// The first file of a result, in storage.
fn object(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("it is a folder")
        .flatten()
        .flat_map(|drawer| fs::read_dir(drawer.path()).expect("it is a folder").flatten().map(|file| file.path()))
        .collect();
    files.sort();
    files.first().cloned().expect("there are results")
}

#[test]
fn results_that_are_cut_short_are_found_and_made_again() {
    let campaign = Campaign::new(6, POINTS);
    campaign.ends_well(6);
    let objects = campaign.folder().join("objects");
    for bytes in [0, 5] {
        let file = fs::OpenOptions::new().write(true).open(object(&objects)).expect("it can be opened");
        file.set_len(bytes).expect("it can be cut");
        let words = campaign.place.slipway(["campaign", "verify"]).output().expect("slipway can be started");
        assert_eq!(words.status.code(), Some(1), "{}", told(&words));
        let again = campaign.place.slipway(["campaign", "verify", "--again"]).output().expect("slipway can be started");
        let told = String::from_utf8_lossy(&again.stdout);
        assert!(told.contains("will run again"), "{told}");
        campaign.ends_well(6);
    }
    // Files of results that were dropped go, and no others.
    campaign.place.run(["campaign", "gc"]);
    campaign.is_whole(6);
    assert_eq!(campaign.place.json(["campaign", "gc"])["objects"], 0);
}

#[test]
fn empty_results_of_a_program_are_failures_with_a_reason() {
    let text = "run: [sh, -c, ': > out.csv']\nvariables: {x: {integer: [1, 9]}}\nattempts: 1\n\
                outputs: {last: {file: out.csv, column: v}}\n";
    let campaign = Campaign::new(3, text);
    let output = campaign.start().wait_with_output().expect("it can be awaited");
    assert_eq!(output.status.code(), Some(5), "{}", told(&output));
    let failed = campaign.place.json(["campaign", "points", "--state", "failed"]);
    assert_eq!(failed.as_array().expect("points").len(), 3);
    assert!(failed.as_array().expect("points").iter().all(|point| point["failure"] == "output"), "{failed}");
    let some = campaign.place.json(["campaign", "points", "--from", "1", "--limit", "1"]);
    assert_eq!((some[0]["point"].as_u64(), some[1].is_null()), (Some(1), true), "{some}");
}

#[test]
fn a_damaged_queue_is_refused_with_the_name_of_its_backup() {
    let campaign = Campaign::new(12, POINTS);
    campaign.ends_well(12);
    let queue = campaign.folder().join("campaign.db");
    let mut bytes = fs::read(&queue).expect("it can be read");
    bytes[4096..].fill(0xa5);
    fs::write(&queue, bytes).expect("it can be written");
    let output = campaign.start().wait_with_output().expect("it can be awaited");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.contains("campaign.db.backup"), "{words}");
    fs::copy(campaign.folder().join("campaign.db.backup"), &queue).expect("it can be copied");
    campaign.ends_well(12);
}

#[test]
fn watching_ends_with_the_campaign() {
    let campaign = Campaign::new(20, POINTS);
    let mut run = campaign.started();
    let text = campaign.place.run(["--json", "campaign", "watch"]);
    assert!(run.wait().expect("it can be awaited").success());
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    assert_eq!(lines.last().expect("a line")["done"], 20);
    assert!(lines.iter().any(|line| line["rate"].as_f64() > Some(0.0)), "{text}");
    let words = campaign.place.run(["campaign", "watch"]);
    assert!(words.contains("ended, 20 of 20 points done"), "{words}");
}
