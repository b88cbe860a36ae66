//! Studies on real labs, without the command. Needs root and Debian's iputils-ping.
//!
//! No test harness: it runs threads, and a process that brings labs up may have none. In the nodes of its labs this program
//! is the agent, or the script that a test names instead.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use slipway_document::units::Seconds;
use slipway_engine::scenario::Ends;
use slipway_engine::state::StateRoot;
use slipway_image::{Limits, Store};
use slipway_lab::TuneChoice;
use slipway_lab::id::NodeId;
use slipway_lab::model::{DriverWord, Job, Lab};
use slipway_measure::play::Line;
use slipway_measure::probe::Probe;
use slipway_study::compare::{self, Client, Setting, Task};
use slipway_study::script::{Script, Which};
use slipway_study::{Event, Machine, Output, Source, StudyError, play, run};

const LAB: &str = "
networks: {net: bridge}
nodes: {n: {count: 2}}
scenario:
  length: 200ms
  events:
    - {at: 0s, cut: n1}
    - {at: 100ms, heal: n1}
";

struct Bench {
    temporary: tempfile::TempDir,
    machine: Machine,
    source: Source,
    lab: Lab,
}

impl Bench {
    fn new(name: &str) -> Self {
        let temporary = tempfile::tempdir().expect("a folder");
        let at = |name: &str| temporary.path().join(name);
        let machine = Machine {
            labs: StateRoot::at(at("state")).with_scratch(at("scratch")),
            images: Store::at(at("images"), Limits::default()).expect("a store"),
            agent: slipway_sys::exe::path().expect("this program"),
        };
        let text = format!("lab: {name}{}\n{LAB}", std::process::id());
        let source = Source::new("lab.yaml", text, "/");
        let lab = source.lab().expect("a lab");
        Self { temporary, machine, source, lab }
    }

    fn results(&self) -> PathBuf {
        self.temporary.path().join("results")
    }

    fn output(&self) -> Output {
        Output::Within(self.results())
    }

    /// Nothing of a lab is left, but for the image store.
    fn is_clean(&self) -> bool {
        let empty = |folder: &str| {
            fs::read_dir(self.temporary.path().join(folder))
                .is_ok_and(|mut entries| entries.all(|entry| entry.expect("an entry").file_name() == ".locks"))
        };
        empty("state") && empty("scratch")
    }
}

fn job(lab: &Lab, command: &[&str]) -> Job {
    Job {
        command: command.iter().map(|&word| word.to_owned()).collect(),
        mpi: None,
        ranks: None,
        nodes: lab.nodes.ids().collect(),
        timeout: Some(Seconds(60.0)),
        workdir: None,
        env: std::collections::BTreeMap::new(),
        figure: None,
    }
}

fn a_run_tells_its_events_and_keeps_its_output() {
    let mut bench = Bench::new("run");
    let agent = bench.temporary.path().join("agent");
    fs::write(&agent, "#!/bin/sh\necho the caller named me\n").expect("an agent");
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).expect("an executable agent");
    bench.machine.agent = agent;
    let plan =
        run::Plan { job: job(&bench.lab, &["/run/slipway/agent"]), verify: Some(Seconds(1.0)), output: bench.output() };
    let mut steps = Vec::new();
    let ran = run::file(&bench.machine, &bench.source, &bench.lab, &plan, &mut |event| match event {
        Event::LabStarting { .. } => steps.push("starting".to_owned()),
        Event::LabDone => steps.push("up".to_owned()),
        Event::NothingToCheck { .. } => steps.push("unconditioned".to_owned()),
        Event::Line(line) => steps.push(format!("{}: {}", line.node, String::from_utf8_lossy(line.bytes))),
        _ => {}
    })
    .expect("it runs");
    steps[3..].sort();
    assert_eq!(steps, ["starting", "up", "unconditioned", "n1: the caller named me", "n2: the caller named me"]);
    assert_eq!((ran.outcome.code, ran.folder.parent()), (0, Some(bench.results().as_path())));
    assert_eq!(fs::read_to_string(ran.folder.join("n2.stdout")).expect("output"), "the caller named me\n");
    assert!(bench.is_clean());
}

fn a_comparison_leaves_its_report_and_no_lab() {
    let bench = Bench::new("compare");
    let plan = compare::Plan {
        source: bench.source.clone(),
        name: bench.lab.name.clone(),
        drivers: vec![DriverWord::Bridge, DriverWord::Macvlan],
        tunes: vec![TuneChoice::File],
        settings: vec![Setting::default()],
        tasks: vec![Task::Probe(Probe::builtin("ping").expect("a probe"))],
        repeat: 1,
        warm_up: 1,
        seed: 1,
        timeout: Duration::from_mins(1),
        clients: vec![Client { node: NodeId(0), name: "n1".to_owned() }],
        server: None,
        scenario: None,
        verify: Seconds(1.0),
        output: Output::At(bench.results()),
        command: vec!["a test".to_owned()],
    };
    let mut measured = Vec::new();
    let done = compare::run(&bench.machine, &plan, &mut |event| {
        if let Event::Measured { rounds, measurement } = event {
            measured.push((rounds, measurement.round, measurement.driver.clone(), measurement.error.clone()));
        }
    })
    .expect("it compares");
    measured.sort();
    let of = |round: u32, driver: &str| (2, round, driver.to_owned(), None);
    assert_eq!(measured, [of(1, "bridge"), of(1, "macvlan"), of(2, "bridge"), of(2, "macvlan")]);
    assert!(!done.failed && !done.strained);
    for name in ["records.jsonl", "summary.json", "report.html"] {
        assert!(done.folder.join(name).exists(), "{name}");
    }
    assert!(fs::read_to_string(done.folder.join("records.jsonl")).expect("records").contains("a test"));
    assert!(bench.is_clean());
    let again = compare::run(&bench.machine, &plan, &mut |_| {});
    assert!(matches!(again, Err(StudyError::Output { .. })), "{again:?}");
    assert!(bench.is_clean());
}

fn a_scenario_plays_beside_a_job() {
    let bench = Bench::new("play");
    let plan = play::Plan {
        script: Script::plan(&bench.lab, &Which::OfLab, None).expect("a schedule"),
        job: Some(job(&bench.lab, &["sleep", "0.3"])),
        ends: Ends::WithJob,
        keep: false,
        verify: None,
        output: bench.output(),
        command: Vec::new(),
    };
    let mut effects = 0;
    let done = play::file(&bench.machine, &bench.source, &bench.lab, &plan, &mut |_| {}, &mut |event| {
        effects += usize::from(matches!(event, Event::Played(Line::Event(_))));
    })
    .expect("it plays");
    assert_eq!((effects, done.played.summary.done, done.signal), (2, 2, None));
    assert_eq!(done.job.expect("a job").expect("it ran").code, 0);
    assert!(done.folder.join("timeline.html").exists());
    assert!(bench.is_clean());
}

fn main() -> ExitCode {
    slipway_sys::process::remember_inherited().expect("its own descriptors");
    for (name, test) in [
        ("a_run_tells_its_events_and_keeps_its_output", a_run_tells_its_events_and_keeps_its_output as fn()),
        ("a_comparison_leaves_its_report_and_no_lab", a_comparison_leaves_its_report_and_no_lab),
        ("a_scenario_plays_beside_a_job", a_scenario_plays_beside_a_job),
    ] {
        if std::env::args().nth(1).is_none_or(|filter| name.contains(&filter)) {
            test();
            println!("{name}: ok");
        }
    }
    ExitCode::SUCCESS
}
