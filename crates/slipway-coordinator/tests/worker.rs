//! Attempts of points, with real programs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use slipway_campaign::design::Plan;
use slipway_campaign::value::Value;
use slipway_coordinator::store::{FailureKind, Lease, Outcome, Record};
use slipway_coordinator::worker::{Ended, SceneError, Worker, WorkerError};
use slipway_results::objects::{self, Directory, Manifest, Storage as _};
use slipway_results::{Digest, series};
use tempfile::TempDir;

/// A worker of the campaign in `text`, with these inputs.
fn worker(root: &Path, text: &str, inputs: &[(&str, &str)]) -> Result<Worker, WorkerError> {
    for (name, content) in inputs {
        let path = root.join("inputs").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let campaign = slipway_campaign::parse("campaign.yaml", text, root).unwrap();
    let plan = Plan::new(&campaign, None).unwrap();
    Worker::new(campaign, plan, &root.join("inputs"), &root.join("work"), &root.join("work/out"))
}

fn attempt(worker: &Worker, point: u64) -> Ended {
    worker.attempt(Lease { point, fence: 1, attempt: 1 }, None, Some(Duration::from_mins(1)))
}

fn record(ended: &Ended) -> &Record {
    match &ended.outcome {
        Outcome::Done(record) => record,
        Outcome::Failed { kind, message, .. } => panic!("{kind:?}: {message}"),
    }
}

fn failure(ended: &Ended) -> (FailureKind, &str) {
    match &ended.outcome {
        Outcome::Failed { kind, message, .. } => (*kind, message),
        Outcome::Done(record) => panic!("{record:?}"),
    }
}

/// The files of an attempt, after storage took its objects over.
fn files(root: &Path, ended: &Ended, manifest: &Digest) -> Vec<String> {
    let storage = Directory::open(&root.join("objects")).unwrap();
    storage.adopt(&root.join("work/out"), &ended.objects).unwrap();
    let mut names: Vec<String> =
        Manifest::read(&storage, manifest).unwrap().files.into_iter().map(|entry| entry.path).collect();
    names.sort();
    names
}

#[test]
fn a_point_runs_with_its_values_inputs_and_seed() {
    let root = TempDir::new().unwrap();
    let text = "
run: sh -c 'cat case/system/control in.txt; echo $LEVEL $SLIPWAY_POINT >case/new; wc -c <point.json >bytes'
env: {LEVEL: 'high-{x}'}
inputs: {case: case, in.txt: {path: in.txt, template: true}}
variables: {x: {integer: [3, 5]}}
design: {grid: 3}
outputs:
  control: 'control (\\w+)'
  read: {file: in.txt, regex: 'x = (\\d+)'}
";
    let inputs = [("case/system/control", "control fine\n"), ("in.txt", "x = {x}, not {{x}}\n")];
    let worker = worker(root.path(), text, &inputs).unwrap();
    for (point, x) in [(2, 5), (0, 3)] {
        let ended = attempt(&worker, point);
        let record = record(&ended);
        assert_eq!(record.values, [Some(Value::Text("fine".into())), Some(Value::Integer(x))]);
        assert!(ended.usage.seconds > 0.0 && ended.usage.peak_bytes > 0, "{:?}", ended.usage);
        let manifest = record.manifest.unwrap();
        let names = files(root.path(), &ended, &manifest);
        assert_eq!(names, ["bytes", "case/new", "in.txt", "slipway.stderr", "slipway.stdout"]);
        assert_eq!(fs::read_to_string(root.path().join("work/point/case/new")).unwrap(), format!("high-{x} {point}\n"));
    }
}

#[test]
fn a_time_series_becomes_an_object() {
    let root = TempDir::new().unwrap();
    let text = "
run: sh -c 'printf \"hour,t\\n1,20.5\\n2,21\\n\" >out.csv'
outputs: {t: {file: out.csv, series: t}}
keep: tables
";
    let worker = worker(root.path(), text, &[]).unwrap();
    let ended = attempt(&worker, 0);
    let record = record(&ended);
    assert_eq!((&record.values[..], record.manifest, ended.objects.len()), (&[None][..], None, 1));
    let storage = Directory::open(&root.path().join("objects")).unwrap();
    storage.adopt(&root.path().join("work/out"), &ended.objects).unwrap();
    let mut content = Vec::new();
    let digest = record.series[0].1;
    std::io::Read::read_to_end(&mut objects::read(&storage, &digest, 1 << 20).unwrap(), &mut content).unwrap();
    assert_eq!(series::decode(&content).unwrap(), [20.5, 21.0]);
}

#[test]
fn a_failure_has_its_kind_and_the_programs_words() {
    let root = TempDir::new().unwrap();
    let text = "
run: sh -c 'echo made >file; echo \"** Fatal ** no weather\" >&2; exit 3'
keep: failures
";
    let worker = worker(root.path(), text, &[]).unwrap();
    let ended = attempt(&worker, 0);
    assert_eq!(failure(&ended), (FailureKind::Fatal, "the program ended with exit code 3:\n** Fatal ** no weather"));
    let Outcome::Failed { manifest: Some(manifest), .. } = &ended.outcome else { panic!("{ended:?}") };
    let names = files(root.path(), &ended, manifest);
    assert_eq!(names, ["file", "slipway.stderr", "slipway.stdout"]);
}

#[test]
fn a_signal_a_missing_program_and_a_missing_output_are_told_apart() {
    for (run, kind, words) in [
        ("run: sh -c 'kill -SEGV $$'", FailureKind::Fatal, "signal 11 ended the program"),
        ("run: /no/such/program", FailureKind::Fatal, "run /no/such/program: No such file"),
        ("run: 'true'\noutputs: {x: {file: out.json, json_path: $.x}}", FailureKind::Output, "output `x`: out.json: "),
    ] {
        let root = TempDir::new().unwrap();
        let ended = attempt(&worker(root.path(), run, &[]).unwrap(), 0);
        let (found, message) = failure(&ended);
        assert!(found == kind && message.starts_with(words), "{found:?}: {message}");
    }
}

#[test]
fn a_program_that_takes_too_long_ends_with_its_children() {
    let root = TempDir::new().unwrap();
    let text = "run: sh -c 'sleep 1000 & echo $! >child; wait'";
    let worker = worker(root.path(), text, &[]).unwrap();
    let ended = worker.attempt(Lease { point: 0, fence: 1, attempt: 1 }, None, Some(Duration::from_secs(2)));
    assert_eq!(failure(&ended), (FailureKind::Timeout, "the program took longer than 2s"));
    let child = fs::read_to_string(root.path().join("work/point/child")).unwrap();
    // It is killed, and may not have ended yet. Its parent is gone, so init may not have collected it either.
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") || stat.contains(") X ") {
            break;
        }
        assert!(Instant::now() < until, "{stat}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_attempt_finds_nothing_of_the_one_before() {
    let root = TempDir::new().unwrap();
    let text = "run: sh -c 'test ! -e left && mkdir -p left/deep && chmod 000 left'\nkeep: tables";
    let worker = worker(root.path(), text, &[]).unwrap();
    for _ in 0..2 {
        record(&attempt(&worker, 0));
    }
}

#[test]
fn a_template_with_an_unknown_variable_is_refused_before_any_point() {
    let root = TempDir::new().unwrap();
    let text = "run: cat in.txt\ninputs: {in.txt: {path: in.txt, template: true}}";
    let refused = worker(root.path(), text, &[("in.txt", "{speed}")]).unwrap_err();
    assert!(matches!(&refused, WorkerError::Scene(SceneError::Template { .. })), "{refused}");
    assert!(refused.to_string().contains("there is no variable `speed`"), "{refused}");
}
