//! Labs within jobs of a real batch system, over the job's machines.

mod common;

use common::slurm::Slurm;
use common::{await_that, told};

const LAB: &str = "lab: job\nnetworks: {net: vxlan}\nnodes: {n: {count: 3}}\n";

#[test]
fn a_job_has_a_lab_over_its_machines() {
    let slurm = Slurm::new(3);
    slurm.file("lab.yaml", LAB);
    let job = slurm.submit(
        3,
        "set -e\n\
         slipway up lab.yaml\n\
         slipway --json ps job > ps.json\n\
         slipway exec job n3 -- hostname\n\
         slipway exec job n1 -- ping -q -c1 -W5 n2 >/dev/null\n\
         slipway exec job n3 -- ping -q -c1 -W5 n1 >/dev/null\n\
         slipway down job\n\
         exit 7\n",
    );
    let (state, code) = slurm.end_of(&job);
    assert_eq!((state.as_str(), code.as_str()), ("FAILED", "7:0"), "the script's own exit code: {}", slurm.output());
    assert!(slurm.output().contains("n3\n"), "{}", slurm.output());
    let text = std::fs::read_to_string(slurm.path().join("ps.json")).expect("the job wrote it");
    let rows: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let places: Vec<_> = rows["nodes"].as_array().unwrap().iter().map(|node| node["host"].as_str().unwrap()).collect();
    assert_eq!(places, ["a", "b", "c"]);
    assert_eq!(slurm.remains(), [""; 0]);

    // A script that leaves its lab behind.
    let job = slurm.submit(2, "slipway up lab.yaml\n");
    assert_eq!(slurm.end_of(&job).0, "COMPLETED", "{}", slurm.output());
    assert_eq!(slurm.remains(), [""; 0]);

    // Cancelled: nothing of the lab is left on any machine.
    let job = slurm.submit(3, "slipway up lab.yaml && echo it is up\nsleep infinity\n");
    await_that("the lab is up", || slurm.output().contains("it is up"));
    slurm.run("scancel", [&job]);
    assert_eq!(slurm.end_of(&job).0, "CANCELLED");
    assert_eq!(slurm.remains(), [""; 0]);
}

#[test]
fn nodes_groups_lie_below_the_jobs() {
    let slurm = Slurm::new(2);
    slurm.file("lab.yaml", "lab: held\nnodes: {n: {count: 2, memory: 64MiB}}\n");
    let job = slurm.submit(
        2,
        "set -e\n\
         slipway up lab.yaml\n\
         find /sys/fs/cgroup -path \"*/job_$SLURM_JOB_ID/slipway*/n[12]\"\n\
         slipway set held n2 memory=32MiB\n\
         cat $(find /sys/fs/cgroup -path \"*/job_$SLURM_JOB_ID/slipway/*/n2/memory.limit_in_bytes\" -o \
         -path \"*/job_$SLURM_JOB_ID/slipway/*/n2/memory.max\")\n\
         slipway --json ps held > ps.json\n\
         slipway down held\n",
    );
    assert_eq!(slurm.end_of(&job).0, "COMPLETED", "{}", slurm.output());
    let output = slurm.output();
    let folders = |node: &str| output.lines().filter(|line| line.ends_with(node) && line.contains("memory")).count();
    assert!(folders("/n1") == 1 && folders("/n2") == 1 && output.contains(&(32 << 20).to_string()), "{output}");
    let left = std::process::Command::new("find").args(["/sys/fs/cgroup", "-name", &format!("job_{job}")]).output();
    assert_eq!(String::from_utf8_lossy(&left.expect("find can be started").stdout), "", "Slurm could remove its own");
    assert_eq!(slurm.remains(), [""; 0]);
}

#[test]
fn a_job_gives_no_more_than_it_has() {
    let slurm = Slurm::new(2);
    slurm.file("lab.yaml", "lab: large\nnodes: {n: {count: 2, cpu: 2 cores}}\n");
    let job = slurm.submit(2, "slipway up lab.yaml\n");
    assert_eq!(slurm.end_of(&job).0, "FAILED");
    assert!(slurm.output().contains("no machine has room for node `n1`"), "{}", slurm.output());
    // With the machines' names alone, nothing is known of what they offer.
    let job = slurm.submit(2, "slipway up --dry-run --machines-from none lab.yaml\n");
    assert_eq!(slurm.end_of(&job).0, "COMPLETED", "{}", slurm.output());
}

#[test]
fn a_lab_is_submitted_and_followed() {
    let slurm = Slurm::new(2);
    slurm.file(
        "lab.yaml",
        "lab: sub\nnodes: {n: {count: 2}}\njob: {command: [sh, -c, 'echo from $(hostname); exit 3']}\n",
    );
    let planned = slurm.run("slipway", ["submit", "lab.yaml", "--nodes", "2", "--time", "10m", "--dry-run"]);
    assert!(planned.contains("#SBATCH --nodes=2\n") && planned.contains("#SBATCH --time=0-00:10:00\n"), "{planned}");
    assert!(planned.contains("lab.yaml\n"), "{planned}");
    let output =
        slurm.program(0, "slipway", ["submit", "lab.yaml", "--nodes", "2"]).output().expect("slipway can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "the job's exit code: {}", told(&output));
    assert!(text.contains("n1 | from n1") && text.contains("n2 | from n2"), "{}", told(&output));
    assert_eq!(slurm.remains(), [""; 0]);

    // Ranks of an MPI job on both machines.
    let mpi = [
        "submit",
        "lab.yaml",
        "--nodes",
        "2",
        "--",
        "--mpi",
        "openmpi",
        "-n",
        "2",
        "--",
        "NPopenmpi",
        "-u",
        "64",
        "-o",
        "/dev/null",
    ];
    let output = slurm.program(0, "slipway", mpi).output().expect("slipway can be started");
    assert!(
        output.status.success() && told(&output).contains("0: n1") && told(&output).contains("1: n2"),
        "{}",
        told(&output)
    );
    assert_eq!(slurm.remains(), [""; 0]);
}
