//! What the benchmarks share: interleaved rounds, and the table that `docs/benchmarks.md` quotes.
//!
//! A benchmark here compares ways of doing one thing, in turn, round after round, after a round that is not counted.
//! Its figures go through the same statistics as `slipway compare`: median, bootstrap interval, ratio paired by round.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use slipway_engine::lab::Running;
use slipway_engine::state::StateRoot;
use slipway_measure::probe::Sample;
use slipway_measure::record::{Begin, Comparison, FORMAT, Measurement};
use slipway_measure::summary::Summary;

/// One way of doing the thing that is measured.
pub(super) struct Way<'a> {
    pub(super) name: &'a str,
    pub(super) run: Box<dyn FnMut() -> Vec<Sample> + 'a>,
}

impl<'a> Way<'a> {
    pub(super) fn new(name: &'a str, run: impl FnMut() -> Vec<Sample> + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }
}

/// Rounds that count: one, and none before it, where `--quick` only asks whether a benchmark works.
pub(super) fn rounds(wanted: u32) -> std::ops::RangeInclusive<u32> {
    if std::env::args().any(|word| word == "--quick") { 1..=1 } else { 0..=wanted }
}

/// Runs `ways` in turn, `rounds` times after one that is not counted, and prints the table. The first is the baseline.
/// Every other round goes backwards, so that none has always the same one before it.
pub(super) fn compare(title: &str, rounds: u32, ways: &mut [Way<'_>]) {
    compare_with(title, rounds, ways, &[]);
}

/// As [`compare`], and prints the tables again for each of `baselines`, which are names of ways.
pub(super) fn compare_with(title: &str, rounds: u32, ways: &mut [Way<'_>], baselines: &[&str]) {
    let mut measurements = Vec::new();
    for round in self::rounds(rounds) {
        for way in order(round, ways.len()) {
            let way = &mut ways[way];
            let started = Instant::now();
            let samples = (way.run)();
            eprintln!("{title}: round {round}/{rounds}, {}: {:.2} s", way.name, started.elapsed().as_secs_f64());
            measurements.push(Measurement {
                round: round + 1,
                warm_up: round == 0,
                driver: way.name.to_owned(),
                job: title.to_owned(),
                mechanism: String::new(),
                started: String::new(),
                seconds: started.elapsed().as_secs_f64(),
                samples,
                error: None,
                played: Vec::new(),
                counters: None,
            });
        }
    }
    let names: Vec<String> = ways.iter().map(|way| way.name.to_owned()).collect();
    let mut comparison = Comparison { begin: begin(title, rounds, names.clone()), measurements, end: None };
    println!("### {title}\n\n{}", Summary::new(&comparison).markdown());
    for baseline in baselines {
        let others = names.iter().filter(|name| name != baseline).cloned();
        comparison.begin.drivers = std::iter::once((*baseline).to_owned()).chain(others).collect();
        println!("### {title}, beside {baseline}\n\n{}", Summary::new(&comparison).markdown());
    }
}

fn begin(title: &str, rounds: u32, ways: Vec<String>) -> Begin {
    Begin {
        format: FORMAT.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lab: title.to_owned(),
        lab_sha256: String::new(),
        drivers: ways,
        jobs: Vec::new(),
        repeat: rounds,
        warm_up: 1,
        seed: 1,
        command: Vec::new(),
        machine: serde_json::Value::Null,
        started: String::new(),
        checks: Vec::new(),
        scenario: None,
        bench: None,
    }
}

/// In which order ways come in a round: every other one goes backwards.
pub(super) fn order(round: u32, ways: usize) -> Vec<usize> {
    if round.is_multiple_of(2) { (0..ways).collect() } else { (0..ways).rev().collect() }
}

/// A figure of which less is better.
pub(super) fn less(figure: &str, unit: &str, value: f64) -> Sample {
    Sample {
        figure: figure.to_owned(),
        unit: unit.to_owned(),
        higher_is_better: false,
        headline: true,
        value,
        curve: Vec::new(),
    }
}

/// A figure of which more is better.
pub(super) fn more(figure: &str, unit: &str, value: f64) -> Sample {
    Sample { higher_is_better: true, ..less(figure, unit, value) }
}

/// Seconds that `action` takes.
pub(super) fn seconds(action: impl FnOnce()) -> f64 {
    let started = Instant::now();
    action();
    started.elapsed().as_secs_f64()
}

/// Proportional set size of a process, KiB (`proc_pid_smaps(5)`); 0 where it is gone.
pub(super) fn pss(pid: impl Display) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Runs a program to its end; one that fails ends the benchmark with what it said.
pub(super) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("run {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed with {}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The command under test, with state of its own.
pub(super) struct Slipway {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Slipway {
    pub(super) fn new() -> Self {
        Self::of(env!("CARGO_BIN_EXE_slipway"))
    }

    /// Another build of the command.
    pub(super) fn of(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// `slipway ARGS`, optimised as users have it.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        for (variable, folder) in
            [("SLIPWAY_STATE", "state"), ("SLIPWAY_IMAGES", "images"), ("SLIPWAY_SCRATCH", "scratch")]
        {
            command.env(variable, self.folder.path().join(folder));
        }
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        run(&mut self.command(arguments))
    }

    /// `slipway exec LAB NODE --`, as words to put a program's before.
    pub(super) fn words(&self, lab: &str, node: &str) -> Vec<String> {
        let command = self.command(&["exec", lab, node, "--"]);
        let plain = |word: &std::ffi::OsStr| word.to_string_lossy().into_owned();
        let environment =
            command.get_envs().map(|(key, value)| format!("{}={}", plain(key), plain(value.unwrap_or_default())));
        let words = [command.get_program()].into_iter().chain(command.get_args()).map(plain);
        ["env".to_owned()].into_iter().chain(environment).chain(words).collect()
    }

    /// A lab that is up.
    pub(super) fn running(&self, lab: &str) -> Running {
        Running::open(&StateRoot::at(self.folder.path().join("state")), lab).expect("the lab is up")
    }

    /// A folder of its own.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a lab file.
    pub(super) fn lab(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.yaml"));
        std::fs::write(&path, text).expect("the lab file can be written");
        path
    }
}

/// A path as an argument.
pub(super) fn arg(path: &Path) -> &str {
    path.to_str().expect("temporary paths are plain")
}

/// A line for the record: when and on what.
pub(super) fn heading() {
    let said = |program: &str, argument: &str| {
        String::from_utf8_lossy(&run(Command::new(program).arg(argument)).stdout).trim().to_owned()
    };
    println!("{}, Linux {}, {} processors\n", said("date", "+%F"), said("uname", "-r"), said("nproc", "--all"));
}
