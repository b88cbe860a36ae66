//! Faults of labs over several machines: links that are cut, machines and commands that are killed.

mod common;

use std::fs;
use std::panic::resume_unwind;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::machines::Machines;
use common::{await_that, told};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// A time to sleep that no other test's programs have, seconds.
fn long() -> String {
    format!("8{}", std::process::id())
}

/// Whether a machine has anything of a lab, or a process of Slipway.
fn is_clear(machines: &Machines, machine: usize) -> bool {
    machines.leftovers(machine).is_empty() && machines.processes(machine).is_empty()
}

#[track_caller]
fn all_are_clear(machines: &Machines) {
    for machine in 0..3 {
        assert_eq!((machines.leftovers(machine), machines.processes(machine)), (vec![], vec![]), "machine {machine}");
    }
    assert_eq!(machines.remains(), [""; 0]);
}

/// Starts a command whose output is looked at later.
fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slipway can be started")
}

#[track_caller]
fn fails_about(output: &Output, machine: &str) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{}", told(output));
    let about = said.lines().filter(|line| line.contains(&format!("machine {machine}"))).count();
    assert_eq!(about, 1, "one error about machine {machine}: {said}");
}

const LAB: &str = "orphaned_after: 2s\nnetworks: {net: vxlan}\nnodes: {n: {count: 3}}\n";

#[test]
fn parts_whose_origin_is_gone_end_themselves() {
    let machines = Machines::new(3);
    let file = machines.file("orphan", LAB);
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    machines.run(0, ["down", "--part", "orphan"]);
    await_that("the parts end themselves", || is_clear(&machines, 1) && is_clear(&machines, 2));
    all_are_clear(&machines);
}

const PLAYED: &str = "\
orphaned_after: 2s
networks: {net: vxlan}
nodes: {n: {count: 12}}
scenario:
  length: 800ms
  events:
    - {at: 0s, freeze: 'n*'}
    - {at: 600ms, thaw: 'n*'}
";

const CUT: &str = "\
networks: {net: vxlan}
nodes: {n: {count: 3}}
scenario:
  length: 6s
  events:
    - {at: 0s, freeze: 'n*'}
    - {at: 5s, thaw: 'n*'}
";

/// The folder of a machine's own part of a lab.
fn state(machines: &Machines, machine: usize, lab: &str) -> std::path::PathBuf {
    machines.path().join(common::machines::name(machine)).join("state").join(lab)
}

/// One cut for all: commands that are under way, and labs that stand.
#[test]
fn a_link_that_is_cut_is_told_and_leaves_nothing() {
    let machines = Machines::new(3);
    let names = ["orphan", "job", "played", "rising"];
    let texts = [LAB.to_owned(), LAB.to_owned(), CUT.to_owned(), LAB.replace("count: 3", "count: 60")];
    let [orphan, job, played, rising] = std::array::from_fn(|at| machines.file(names[at], &texts[at]));
    for file in [orphan, played] {
        machines.run(0, ["up".as_ref(), file.as_os_str()]);
    }
    let out = |name: &str| machines.path().join(name);
    let mut run = machines.slipway(0, ["run".as_ref(), "--out".as_ref(), out("job").as_os_str(), job.as_os_str()]);
    run.args(["--", "sleep", &long()]);
    let run = start(run);
    let sleepers = || Command::new("pgrep").args(["-fc", &format!("^sleep {}", long())]).output().expect("it runs");
    await_that("all nodes run the program", || sleepers().stdout == b"3\n");
    let play = start(machines.slipway(0, ["play", "played", "--out", out("played").to_str().expect("text")]));
    let is_in_log = |machine, words: &str| {
        let log = fs::read_to_string(state(&machines, machine, "played").join("scenario/events.jsonl"));
        log.is_ok_and(|log| log.contains(words))
    };
    await_that("machine b plays", || is_in_log(1, r#""type":"event""#));
    let up = start(machines.slipway(0, ["up".as_ref(), rising.as_os_str()]));
    await_that("machine b makes its part", || state(&machines, 1, "rising").exists());
    machines.plug(1, false);

    let output = up.wait_with_output().expect("it ends");
    fails_about(&output, "b");
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(125), "{}", told(&output));
    fails_about(&output, "b");
    let output = play.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("machine b is out of reach").count(), 1, "{said}");
    // All machines play to the end, the one that is away too.
    for machine in 0..3 {
        await_that("the part is over", || is_in_log(machine, r#""why":"the scenario is over""#));
    }
    // Parts that nobody reaches end themselves, and with them programs. The others hear each other.
    await_that("the part ends itself", || {
        !state(&machines, 1, "orphan").exists() && !state(&machines, 1, "job").exists()
    });
    assert_eq!(sleepers().stdout, b"0\n");
    machines.run(0, ["exec", "orphan", "n1", "--", "ping", "-q", "-c1", "-W5", "n3"]);
    for machine in [0, 2] {
        assert_eq!(machines.leftovers(machine), ["orphan", "played"]);
    }

    machines.plug(1, true);
    // The remote shell's server sees the end of `up` as soon as it can.
    await_that("the part goes down", || machines.leftovers(1) == ["played"]);
    machines.run(0, ["play", "--resume", "played"]);
    let log = fs::read_to_string(out("played").join("events.jsonl")).expect("a log");
    assert!(log.contains(r#""why":"the scenario is over""#) && !log.contains("never reported"), "{log}");

    machines.plug(1, false);
    let said = machines.fails(0, 1, ["down", "played"]);
    assert!(
        said.contains("reach machine b") && said.contains("`slipway down --all` on this machine tries again"),
        "{said}"
    );
    assert_eq!((machines.leftovers(0), machines.leftovers(1)), (vec!["orphan".to_owned()], vec!["played".to_owned()]));
    machines.plug(1, true);
    machines.run(0, ["down", "--all"]);
    await_that("nothing is left", || (0..3).all(|machine| is_clear(&machines, machine)));
    all_are_clear(&machines);
}

#[test]
fn a_machine_that_is_killed_is_told_and_cleared_when_it_is_back() {
    let mut machines = Machines::new(3);
    let file = machines.file("dead", &LAB.replace("orphaned_after: 2s\n", ""));
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    machines.kill(1);
    let output = machines.slipway(2, ["down", "dead"]).output().expect("slipway can be started");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("reach machine b") && said.contains("`slipway down --all` on this machine tries again"),
        "{said}"
    );
    assert!(is_clear(&machines, 0) && is_clear(&machines, 2));
    machines.revive(1);
    // The crash left its files.
    assert_eq!(machines.leftovers(1), ["dead"]);
    machines.run(2, ["down", "--all"]);
    all_are_clear(&machines);
}

/// Does the same on each machine, all at once.
fn everywhere<T: Send>(count: usize, act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = (0..count).map(|machine| scope.spawn(move || act(machine))).collect();
        let join =
            |thread: std::thread::ScopedJoinHandle<'_, T>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().map(join).collect()
    })
}

/// Kills commands at moments of their whole duration. Whatever stands then, `down --all` on any machine takes it down.
fn storm(kills: usize, count: usize, seed: u64) {
    eprintln!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let machines = Machines::new(count);
    let file = machines.file("storm", PLAYED);
    let out = machines.path().join("out");
    let command = |kind: &str, machine: usize| {
        let mut command = machines.slipway(machine, [kind]);
        match kind {
            "up" => command.arg(&file),
            "run" => command.args(["--out".as_ref(), out.as_os_str(), file.as_os_str()]).args(["--", "sleep", "0.2"]),
            "play" => command.args(["--out".as_ref(), out.as_os_str(), "storm".as_ref()]),
            _ => command.arg("storm"),
        };
        command
    };
    let kinds = ["up", "play", "down", "run"];
    let durations = kinds.map(|kind| {
        let _ = fs::remove_dir_all(&out);
        let begin = Instant::now();
        let output = command(kind, 0).output().expect("slipway can be started");
        assert!(output.status.success(), "{kind}: {}", told(&output));
        begin.elapsed()
    });
    for kill in 0..kills {
        let (kind, duration) = (kinds[kill % kinds.len()], durations[kill % kinds.len()]);
        let moment = duration.mul_f64(random.random_range(0.0..1.0));
        let (first, second) = (random.random_range(0..count), random.random_range(0..count));
        if kind == "play" || kind == "down" {
            let up = command("up", 0).output().expect("slipway can be started");
            assert!(up.status.success(), "kill {kill}: {}", told(&up));
        }
        let _ = fs::remove_dir_all(&out);
        let mut victim = start(command(kind, first));
        // The moment of a fault is what is drawn.
        sleep(moment);
        victim.kill().expect("it can be killed");
        let output = victim.wait_with_output().expect("it ends");
        let context =
            format!("kill {kill}: {kind} on {first} after {moment:?}, then down on {second}: {}", told(&output));
        let down = machines.slipway(second, ["down", "--all"]).output().expect("slipway can be started");
        assert!(down.status.success(), "{context}: {}", told(&down));
        let begin = Instant::now();
        loop {
            let left = everywhere(count, |at| [machines.leftovers(at), machines.processes(at)].concat()).concat();
            if left.is_empty() {
                break;
            }
            assert!(begin.elapsed() < common::PATIENCE, "{context}: {left:?}, {}", told(&down));
            sleep(Duration::from_millis(50));
        }
        // Notes of labs that are gone go with the next look.
        everywhere(count, |machine| machines.run(machine, ["down", "--all"]));
        assert_eq!(machines.remains(), [""; 0], "{context}");
    }
}

#[test]
fn a_dozen_killed_commands_leave_nothing() {
    storm(12, 2, 1);
}

#[test]
#[ignore = "takes minutes; `make test-long` runs it"]
fn thirty_killed_commands_leave_nothing() {
    storm(30, 3, std::env::var("SLIPWAY_SEED").map_or(2, |seed| seed.parse().expect("a number")));
}
