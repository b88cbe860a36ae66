//! Campaigns whose workers are jobs of a real batch system.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use common::machines::must;
use common::slurm::Slurm;
use common::storm::{self, Blow};
use common::{await_that, told};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rustix::process::Pid;
use serde_json::Value;

const POINTS: &str = "\
campaign: far
run: [sh, -c, 'sleep 0.1; hostname > host.txt; echo value {x}']
variables: {x: {integer: [1, 1000000]}}
attempts: 20
pause: 1ms
outputs: {value: 'value ([0-9]+)'}
";

/// A campaign on a cluster.
struct Study {
    slurm: Slurm,
}

impl Study {
    fn new(machines: usize, points: u32, workers: &str) -> Self {
        let slurm = Slurm::new(machines);
        slurm.file("campaign.yaml", &format!("{POINTS}design: {{random: {points}}}\nworkers: {workers}\n"));
        Self { slurm }
    }

    fn folder(&self) -> std::path::PathBuf {
        self.slurm.path().join("slipway-campaigns/far")
    }

    fn start(&self) -> Child {
        let mut run = self.slurm.program(0, "slipway", ["--json", "campaign", "run"]);
        run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slipway can be started")
    }

    fn status(&self) -> Value {
        let words = ["--json", "campaign", "status"];
        let output = self.slurm.program(0, "slipway", words).output().expect("slipway can be started");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    #[track_caller]
    fn await_done(&self, run: &mut Child, count: u64) {
        await_that("points have results", || {
            assert!(run.try_wait().expect("it can be asked").is_none(), "it ended: {}", self.status());
            self.status()["done"].as_u64() >= Some(count)
        });
    }

    /// Runs what is left. Each point has one result then, that of its own values.
    #[track_caller]
    fn ends_well(&self, run: Child, points: u64) {
        let output = run.wait_with_output().expect("it can be awaited");
        assert!(output.status.success(), "{}", told(&output));
        let rows = self.slurm.run("slipway", ["--json", "campaign", "results"]);
        let rows: Vec<Value> = serde_json::from_str(&rows).expect("rows");
        let mut numbers: Vec<u64> = rows.iter().map(|row| row["point"].as_u64().expect("a number")).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..points).collect::<Vec<_>>(), "exactly one result a point");
        assert!(rows.iter().all(|row| row["x"] == row["value"]), "each result is that of its point");
        self.slurm.run("slipway", ["campaign", "verify"]);
    }

    /// No job of the campaign's is there any more, and nothing of a lab on any machine.
    #[track_caller]
    fn is_gone(&self) {
        await_that("the workers' jobs end", || self.jobs().is_empty());
        assert_eq!(self.slurm.remains(), [""; 0]);
    }

    /// Jobs of workers that run, each as `ARRAY_INDEX`.
    fn jobs(&self) -> Vec<String> {
        let text = self.slurm.run("squeue", ["--noheader", "--array", "--format=%i"]);
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Processes that workers' machines run, whose command line has this text.
    fn processes(&self, text: &str) -> Vec<Pid> {
        let folder = self.folder().display().to_string();
        let all = fs::read_dir("/proc").expect("/proc can be read").flatten();
        let is_one = |entry: &fs::DirEntry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(text) && line.contains(&folder)
        };
        all.filter(is_one).filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
    }
}

#[test]
fn workers_are_jobs_and_each_point_has_one_result_whatever_ends() {
    let study = Study::new(3, 90, "{on: slurm, partition: all, max: 4, idle: 5s, memory: 64MiB}");
    let mut run = study.start();
    study.await_done(&mut run, 5);

    // The token is in a file of the owner's, and nowhere else.
    let invitation = study.folder().join("join.json");
    assert_eq!(fs::metadata(&invitation).expect("it is there").permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&invitation).expect("it can be read");
    let token = serde_json::from_str::<Value>(&text).expect("JSON")["token"].as_str().expect("a token").to_owned();
    assert_eq!((token.len(), study.processes(&token).len()), (64, 0));
    for log in fs::read_dir(study.folder().join("jobs")).expect("it is a folder").flatten() {
        assert!(!fs::read_to_string(log.path()).expect("UTF-8").contains(&token));
    }
    let words = ["/sys/fs/cgroup", "-path", "*/job_*/slipway/campaign-far-*/worker"];
    let found = Command::new("find").args(words).output();
    assert!(!found.expect("find can be started").stdout.is_empty(), "nodes are in their jobs' control groups");

    // Somebody cancels a worker's job, and something kills another's process.
    let jobs = study.jobs();
    study.slurm.run("scancel", [&jobs[0]]);
    let done = study.status()["done"].as_u64().expect("a number");
    study.await_done(&mut run, done + 3);
    // The first may be the one that ends.
    await_that("a worker is killed", || {
        study.processes("campaign worker").first().is_some_and(|&victim| storm::kill(victim))
    });
    study.await_done(&mut run, done + 6);

    // The coordinator is killed: its workers end by themselves. The next one goes on.
    run.kill().expect("it runs");
    run.wait().expect("it can be awaited");
    await_that("workers without a coordinator end", || study.processes("campaign worker").is_empty());
    study.ends_well(study.start(), 90);
    await_that("the workers' jobs end", || study.jobs().is_empty());
    // A process that is killed cannot take its node down. The next worker there does so, or this command.
    let remains = study.slurm.remains();
    assert!(remains.len() <= 1, "nothing is left but the killed process's state: {remains:?}");
    for machine in 0..3 {
        must(&mut study.slurm.program(machine, "slipway", ["down", "--all", "--part"]));
    }
    study.is_gone();
}

#[test]
fn machines_without_privilege_are_told_of_and_no_point_runs() {
    let study = Study::new(2, 6, "{on: slurm, max: 2}");
    // Jobs of these machines have a root without the capabilities that nodes take.
    for machine in [0, 1] {
        let wrapper = study.slurm.path().join(study.slurm.name(machine)).join("bin/slipway");
        let script = fs::read_to_string(&wrapper).expect("it is there");
        let script = script.replace("exec ", "exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin ");
        fs::write(wrapper, script).expect("it can be written");
    }
    let run = study.start().wait_with_output().expect("it can be awaited");
    let words = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && words.contains("lacks the capabilities"), "{}", told(&run));
    let is_named = |machine: usize| words.contains(&format!("on {}: ", study.slurm.name(machine)));
    assert!(is_named(0) || is_named(1), "{words}");
    assert_eq!(study.status()["done"], 0);
    study.is_gone();

    // Slurm's own refusal is told, too.
    study.slurm.file(
        "campaign.yaml",
        &format!("{POINTS}workers: {{on: slurm, max: 2, partition: none}}\n").replace("far", "other"),
    );
    let run = study.start().wait_with_output().expect("it can be awaited");
    let words = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && words.contains("invalid partition"), "{}", told(&run));
}

#[test]
#[ignore = "takes minutes; `make test-long` runs it"]
fn nothing_is_lost_in_a_hundred_kills() {
    let seed = std::env::var("SLIPWAY_SEED").map_or(2, |seed| seed.parse().expect("a number"));
    let study = Study::new(3, 900, "{on: slurm, max: 6, idle: 5s}");
    let cancel = |random: &mut ChaCha8Rng, _: &Child| {
        let jobs = study.jobs();
        let Some(job) = (!jobs.is_empty()).then(|| &jobs[random.random_range(0..jobs.len())]) else { return false };
        study.slurm.program(0, "scancel", [job]).status().expect("scancel can be started").success()
    };
    let of =
        |random: &mut ChaCha8Rng, all: Vec<Pid>| !all.is_empty() && storm::kill(all[random.random_range(0..all.len())]);
    let below = |random: &mut ChaCha8Rng, _: &Child| {
        let all: Vec<_> = study.processes("campaign worker").into_iter().flat_map(storm::descendants).collect();
        storm::kill_any(random, &all)
    };
    let blows = [
        Blow::new("jobs cancelled", 3, cancel),
        Blow::new("workers' machines", 2, |random, _| of(random, study.processes("campaign worker"))),
        Blow::new("processes below", 3, below),
        Blow::new("coordinators", 1, |_, run| storm::kill(Pid::from_child(run))),
    ];
    let left = || study.status()["waiting"].as_u64().unwrap_or(1) + study.status()["running"].as_u64().unwrap_or(0);
    storm::rage(100, seed, study.start(), &|| study.start(), &left, &blows);
    eprintln!("then: {}", study.status());
    study.ends_well(study.start(), 900);
    await_that("the workers' jobs end", || study.jobs().is_empty());
    for machine in 0..3 {
        must(&mut study.slurm.program(machine, "slipway", ["down", "--all", "--part"]));
    }
    study.is_gone();
}
