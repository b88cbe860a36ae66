//! Programs over a lab on several machines.

mod common;

use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::machines::Machines;
use common::{await_that, ring, told};

/// A time to sleep that no other test's programs have, seconds.
fn long() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    format!("{}{:07}", NUMBER.fetch_add(1, Ordering::Relaxed), std::process::id())
}

/// The number of programs that sleep so long, on all machines together.
fn sleepers(long: &str) -> usize {
    let output =
        Command::new("pgrep").args(["-fc", &format!("^sleep {long}$")]).output().expect("pgrep can be started");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a count")
}

fn lines(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_plain_program_runs_on_the_nodes_of_all_machines() {
    let machines = Machines::new(3);
    let file = machines.file("plain", "nodes: {n: {count: 6}}\n");
    machines.run(1, ["up".as_ref(), file.as_os_str()]);
    let run = |words: &[&str]| {
        let out = machines.path().join("out");
        let _ = fs::remove_dir_all(&out);
        let all = ["run", "--out", out.to_str().expect("text")].into_iter().chain(words.iter().copied());
        machines.slipway(0, all).output().expect("slipway can be started")
    };

    let output =
        run(&["-e", "WORD=a  b", "-w", "/tmp", "plain", "--", "sh", "-c", "echo \"$WORD $(pwd) $(hostname)\""]);
    assert!(output.status.success(), "{}", told(&output));
    let expected: Vec<String> = (1..=6).map(|n| format!("n{n} | a  b /tmp n{n}")).collect();
    assert_eq!(lines(&output), expected);
    for n in 1..=6 {
        let kept = fs::read_to_string(machines.path().join(format!("out/n{n}.stdout"))).expect("it is kept");
        assert_eq!(kept, format!("a  b /tmp n{n}\n"));
    }

    // The one that fails is on another machine.
    let output = run(&["plain", "--", "sh", "-c", "test $(hostname) != n5 || { echo bad >&2; exit 7; }"]);
    assert_eq!(output.status.code(), Some(7), "{}", told(&output));
    assert!(told(&output).contains("n5 | bad") && told(&output).contains("failed: n5 (7)"), "{}", told(&output));
    let output = run(&["plain", "--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(127), "{}", told(&output));
    let output = run(&["--on", "n2,n3", "plain", "--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(127), "{}", told(&output));
    assert!(told(&output).contains("find program `no-such-program` in node"), "{}", told(&output));

    // More than any pipe or window holds, from each of two machines.
    let output = run(&["--on", "n2,n3", "plain", "--", "sh", "-c", "yes 0123456789abcde | head -c 3000000"]);
    assert!(output.status.success() && output.stdout.len() == 2 * (3_000_000 + 187_500 * 5), "{}", output.stdout.len());

    // All of the job ends with its time, in the background too.
    let long = long();
    let output = run(&["--timeout", "1s", "plain", "--", "sh", "-c", &format!("setsid sleep {long} & sleep {long}")]);
    assert_eq!(output.status.code(), Some(124), "{}", told(&output));
    assert_eq!(sleepers(&long), 0);
    machines.run(2, ["down", "plain"]);
    assert_eq!(machines.remains(), [""; 0]);
}

#[test]
fn a_signal_or_the_end_of_run_ends_everything_everywhere() {
    let machines = Machines::new(3);
    let file = machines.file("ended", "nodes: {n: {count: 3}}\n");
    let long = long();
    for signal in ["INT", "KILL"] {
        // The lab comes up for the job.
        let mut run = machines.slipway(0, ["run".as_ref(), file.as_os_str()]);
        run.args(["--", "sh", "-c", &format!("setsid sleep {long} & sleep {long}")]);
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("slipway can be started");
        await_that("all nodes run the program", || sleepers(&long) == 6);
        let killed = Command::new("kill").args([format!("-{signal}"), run.id().to_string()]).status();
        assert!(killed.expect("kill can be started").success());
        let status = run.wait().expect("it ends");
        if signal == "INT" {
            assert_eq!(status.code(), Some(130));
            assert_eq!((sleepers(&long), machines.remains()), (0, Vec::new()));
        }
        await_that("nothing is left of a killed run", || sleepers(&long) == 0 && machines.remains().is_empty());
    }
}

#[test]
fn mpi_programs_have_ranks_on_all_machines() {
    let machines = Machines::new(3);
    let bin = machines.path().join("mpi");
    ring::compile(&bin);
    let mounts = format!("mounts: [\"{}:/opt/ring\"]", bin.display());
    let file = machines.file("mpi", &format!("nodes: {{n: {{count: 6, {mounts}}}}}\n"));
    let output = machines
        .slipway(0, ["run".as_ref(), file.as_os_str()])
        .args(["--mpi", "openmpi", "--", "/opt/ring/openmpi"])
        .output()
        .expect("slipway can be started");
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(machines.remains(), [""; 0], "the lab came up for the job alone");

    machines.run(2, ["up".as_ref(), file.as_os_str()]);
    for mpi in ["openmpi", "mpich"] {
        let program = format!("/opt/ring/{mpi}");
        let run = machines.slipway(0, ["run", "--mpi", mpi, "mpi", "--", &program, "hello"]).output();
        let output = run.expect("slipway can be started");
        assert!(output.status.success(), "{mpi}: {}", told(&output));
        assert_eq!(lines(&output), (0..6).map(|rank| format!("{rank} of 6")).collect::<Vec<_>>(), "{mpi}");
    }
    // The exit code is the failing rank's.
    let words = ["run", "--mpi", "openmpi", "mpi", "--", "sh", "-c", "test $(hostname) != n3 || exit 9"];
    let output = machines.slipway(1, words).output().expect("slipway can be started");
    assert_eq!(output.status.code(), Some(9), "{}", told(&output));
    let said = machines.fails(0, 125, ["run", "--mpi", "openmpi", "--on", "n2,n3", "mpi", "--", "hostname"]);
    assert!(said.contains("Hint: run it on machine b"), "{said}");
    machines.run(1, ["down", "mpi"]);
    assert_eq!(machines.remains(), [""; 0]);
}
