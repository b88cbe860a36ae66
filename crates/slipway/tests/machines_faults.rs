//! Faults of labs over several machines: links that are cut, machines and commands that are killed.

mod common;

use std::fs;
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
fn a_part_that_lost_its_origin_ends_itself() {
    let machines = Machines::new(3);
    let file = machines.file("orphan", LAB);
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    machines.plug(1, false);
    await_that("the part that nobody reaches ends itself", || is_clear(&machines, 1));
    // The others hear each other.
    machines.run(0, ["exec", "orphan", "n1", "--", "ping", "-q", "-c1", "-W5", "n3"]);
    machines.plug(1, true);
    machines.run(0, ["down", "orphan"]);
    all_are_clear(&machines);

    // All others end, too, where the origin is gone.
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    machines.run(0, ["down", "--part", "orphan"]);
    await_that("the parts end themselves", || is_clear(&machines, 1) && is_clear(&machines, 2));
    all_are_clear(&machines);
}

#[test]
fn a_link_that_is_cut_while_a_job_runs_leaves_nothing() {
    let machines = Machines::new(3);
    let file = machines.file("job", LAB);
    let mut run = machines.slipway(0, ["run".as_ref(), file.as_os_str()]);
    run.arg("--out").arg(machines.path().join("out")).args(["--", "sleep", &long()]);
    let run = start(run);
    let sleepers = || Command::new("pgrep").args(["-fc", &format!("^sleep {}", long())]).output().expect("it runs");
    await_that("all nodes run the program", || sleepers().stdout == b"3\n");
    machines.plug(1, false);
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(125), "{}", told(&output));
    fails_about(&output, "b");
    await_that("the part that nobody reaches ends itself", || is_clear(&machines, 1));
    assert_eq!(sleepers().stdout, b"0\n");
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

/// The folder of a machine's own part of a lab.
fn state(machines: &Machines, machine: usize, lab: &str) -> std::path::PathBuf {
    machines.path().join(common::machines::name(machine)).join("state").join(lab)
}

#[test]
fn a_link_that_is_cut_while_a_lab_comes_up_undoes_it() {
    let machines = Machines::new(3);
    let file = machines.file("rising", &LAB.replace("count: 3", "count: 60"));
    let up = start(machines.slipway(0, ["up".as_ref(), file.as_os_str()]));
    await_that("machine b makes its part", || state(&machines, 1, "rising").exists());
    machines.plug(1, false);
    let output = up.wait_with_output().expect("it ends");
    fails_about(&output, "b");
    assert!(is_clear(&machines, 0) && is_clear(&machines, 2), "{:?}", machines.remains());
    // Its remote shell's server sees the end as soon as it can, and the part goes down, kept or not.
    machines.plug(1, true);
    await_that("the part goes down", || is_clear(&machines, 1));
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

/// Kills commands at moments of their whole duration. Whatever stands then, `down --all` on any machine takes it down.
fn storm(kills: usize, seed: u64) {
    eprintln!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let machines = Machines::new(3);
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
        let (first, second) = (random.random_range(0..3), random.random_range(0..3));
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
            let left: Vec<_> =
                (0..3).flat_map(|at| [machines.leftovers(at), machines.processes(at)].concat()).collect();
            if left.is_empty() {
                break;
            }
            assert!(begin.elapsed() < common::PATIENCE, "{context}: {left:?}, {}", told(&down));
            sleep(Duration::from_millis(50));
        }
        // Notes of labs that are gone go with the next look.
        for machine in 0..3 {
            machines.run(machine, ["down", "--all"]);
        }
        assert_eq!(machines.remains(), [""; 0], "{context}");
    }
}

#[test]
fn nothing_is_left_of_a_dozen_killed_commands() {
    storm(12, 1);
}

#[test]
#[ignore = "takes minutes; `make test-long` runs it"]
fn nothing_is_left_of_thirty_killed_commands() {
    storm(30, std::env::var("SLIPWAY_SEED").map_or(2, |seed| seed.parse().expect("a number")));
}
