//! Faults of labs over several machines: links that are cut, machines and commands that are killed.

mod common;

use std::process::{Child, Command, Output, Stdio};

use common::machines::Machines;
use common::{await_that, told};

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
