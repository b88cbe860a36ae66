//! Labs within jobs of a real batch system, over the job's machines.

mod common;

use std::os::unix::fs::PermissionsExt;

use common::machines::{Machines, address, must};
use common::slurm::Slurm;
use common::{copy_program, told};

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
    assert_eq!(places, [0, 1, 2].map(|machine| slurm.name(machine)));
    assert_eq!(slurm.remains(), [""; 0]);

    // A script that leaves its lab behind.
    let job = slurm.submit(2, "slipway up lab.yaml\n");
    assert_eq!(slurm.end_of(&job).0, "COMPLETED", "{}", slurm.output());
    assert_eq!(slurm.remains(), [""; 0]);

    // Cancelled: nothing of the lab is left on any machine.
    let job = slurm.submit(3, "slipway up lab.yaml && echo it is up\nsleep infinity\n");
    slurm.await_word("it is up");
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
         find /sys/fs/cgroup -path \"*/job_$SLURM_JOB_ID/*/slipway/held*/n[12]\"\n\
         slipway set held n2 memory=32MiB\n\
         cat $(find /sys/fs/cgroup -path \"*/job_$SLURM_JOB_ID/*/slipway/held*/n2/memory.limit_in_bytes\" -o \
         -path \"*/job_$SLURM_JOB_ID/slipway/held*/n2/memory.max\")\n\
         slipway --json ps held > ps.json\n\
         slipway down held\n",
    );
    assert_eq!(slurm.end_of(&job).0, "COMPLETED", "{}", slurm.output());
    let output = slurm.output();
    let folders = |node: &str| output.lines().filter(|line| line.ends_with(node) && line.contains("memory")).count();
    assert!(folders("/n1") == 1 && folders("/n2") == 1 && output.contains(&(32 << 20).to_string()), "{output}");
    let left = std::process::Command::new("find")
        .args(["/sys/fs/cgroup", "-path", &format!("*/slurm_{}/*/job_{job}", slurm.name(1))])
        .output();
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

#[test]
fn a_jobs_end_is_the_labs_however_it_ends() {
    let mut slurm = Slurm::new(3);
    slurm.file("lab.yaml", LAB);
    let up = "slipway up lab.yaml && echo it is up\n";
    let wait = "while :; do sleep infinity & wait; done\n";

    // Its time is over, after a warning to the script.
    let job = slurm.submit(
        3,
        &format!("#SBATCH --time=1 --signal=B:USR1@60\ntrap 'slipway ps job && echo warned' USR1\n{up}{wait}"),
    );
    // Slurm looks at times every half minute.
    slurm.await_word("warned");
    slurm.update(&job, "EndTime=now");
    assert_eq!(slurm.end_of(&job).0, "TIMEOUT");
    assert_eq!(slurm.remains(), [""; 0]);

    // Its steps are warned: the lab stands, and has its script's exit code.
    let job = slurm.submit(
        3,
        &format!(
            "{up}scancel --signal=USR1 $SLURM_JOB_ID; scancel --signal=USR2 $SLURM_JOB_ID\n\
             slipway exec job n3 -- true && slipway exec job n1 -- ping -q -c1 -W5 n2 && slipway down job && exit 7\n"
        ),
    );
    assert_eq!(slurm.end_of(&job), ("FAILED".to_owned(), "7:0".to_owned()), "{}", slurm.output());
    assert_eq!(slurm.remains(), [""; 0]);

    // It begins again: the second run makes a lab of its own.
    let again = "[ -z \"$SLURM_RESTART_COUNT\" ] || exit 9\n";
    let job = slurm.submit(3, &format!("#SBATCH --requeue\n{up}{again}{wait}"));
    slurm.await_word("it is up");
    slurm.run("scontrol", ["requeue", &job]);
    slurm.await_state(&job, "PENDING");
    assert_eq!(slurm.remains(), [""; 0]);
    // By itself it would begin two minutes later.
    slurm.update(&job, "StartTime=now");
    assert_eq!(slurm.end_of(&job), ("FAILED".to_owned(), "9:0".to_owned()), "{}", slurm.output());
    assert_eq!(slurm.remains(), [""; 0]);

    // A machine dies: the others are clean when the job has ended, and that one when it is back.
    let job = slurm.submit(3, &format!("#SBATCH --no-requeue\n{up}{wait}"));
    slurm.await_word("it is up");
    slurm.kill(1, &job);
    slurm.await_state(&job, "NODE_FAIL");
    slurm.await_down();
    assert_eq!([slurm.remains_on(0), slurm.remains_on(2)].concat(), [""; 0]);
    slurm.revive(1);
    let job = slurm.submit(3, "slipway up lab.yaml && slipway exec job n2 -- hostname && slipway down job\n");
    assert_eq!(slurm.end_of(&job).0, "COMPLETED", "{}", slurm.output());
    assert_eq!(slurm.remains(), [""; 0]);
}

/// The end of a script kills what it has left behind: each `srun`, and the helper that has the step killed then.
#[test]
fn a_lab_outlives_the_commands_that_lead_to_its_machines() {
    let slurm = Slurm::new(3);
    slurm.file("lab.yaml", LAB);
    // Other tests have a job of this number on machines of other names.
    let of_job = "for p in $(pgrep -x srun); do grep -q \"$(hostname).*job_$SLURM_JOB_ID/\" /proc/$p/cgroup && echo $p; done 2>/dev/null";
    let job = slurm.submit(
        3,
        &format!(
            "sruns() {{ {of_job}; }}\n\
             slipway up lab.yaml\n\
             [ -n \"$(sruns)\" ] || exit 3\n\
             for p in $(sruns); do [ \"$(ps -o comm= -p $(ps -o ppid= -p $p))\" = srun ] || kill -KILL $p; done\n\
             while [ -n \"$(sruns)\" ]; do sleep 0.1; done\n\
             slipway exec job n1 -- ping -q -c3 -W5 n2 && slipway down job && exit 7\n"
        ),
    );
    assert_eq!(slurm.end_of(&job), ("FAILED".to_owned(), "7:0".to_owned()), "{}", slurm.output());
    assert_eq!(slurm.remains(), [""; 0]);
}

#[test]
fn programs_of_a_run_are_warned() {
    let slurm = Slurm::new(2);
    slurm.file(
        "lab.yaml",
        "lab: warned\nnodes: {n: {count: 2}}\n\
         job: {command: [sh, -c, 'trap \"echo saved; exit 3\" USR1; echo runs; while :; do sleep infinity & wait; done']}\n",
    );
    let job = slurm.submit(2, "exec slipway run lab.yaml\n");
    slurm.await_word("n1 | runs");
    slurm.await_word("n2 | runs");
    slurm.run("scancel", ["--batch", "--signal=USR1", &job]);
    assert_eq!(slurm.end_of(&job), ("FAILED".to_owned(), "3:0".to_owned()), "{}", slurm.output());
    assert!(slurm.output().contains("n1 | saved") && slurm.output().contains("n2 | saved"), "{}", slurm.output());
    assert_eq!(slurm.remains(), [""; 0]);
}

#[test]
fn accounting_has_the_processor_time_of_nodes() {
    let slurm = Slurm::with_accounts(2);
    // The process's own clock, as limits of processor time (`RLIMIT_CPU`) count by ticks.
    let second = "import time, itertools; all(time.process_time() < 1 for _ in itertools.count())";
    slurm.file(
        "lab.yaml",
        &format!("lab: busy\nnodes: {{n: {{count: 2}}}}\njob: {{command: [python3, -c, '{second}']}}\n"),
    );
    let job = slurm.submit(2, "slipway run lab.yaml\n");
    assert_eq!(slurm.end_of(&job).0, "COMPLETED", "{}", slurm.output());
    let seconds = slurm.processor_time(&job);
    assert!(seconds > 1.9, "each of two nodes used one: {seconds}");
}

#[test]
fn srun_starts_ranks_in_nodes() {
    let slurm = Slurm::new(2);
    let folder = slurm.path().display().to_string();
    slurm.file("lab.yaml", &format!("lab: ranks\nnodes: {{n: {{count: 4, mounts: [\"{folder}:/job:ro\"]}}}}\n"));
    slurm.file("rank.c", RANK);
    for mpi in ["openmpi", "mpich"] {
        slurm.run(&format!("mpicc.{mpi}"), ["-o", &format!("rank.{mpi}"), "rank.c"]);
    }
    let job = slurm.submit(
        2,
        "#SBATCH --ntasks-per-node=2\n\
             set -e\n\
             slipway up lab.yaml\n\
             srun --overlap --mpi=pmix -n 4 slipway enter ranks -- /job/rank.openmpi pmix\n\
             srun --overlap --mpi=pmi2 -N 1 -n 1 slipway enter ranks -- /job/rank.mpich pmi2\n\
             srun --overlap --mpi=none -n 1 slipway enter ranks n3 -- sh -c 'echo in $(hostname) of $SLURM_JOB_ID; exit 5' || echo code $?\n\
             srun --overlap --mpi=none -n 1 slipway enter ranks n2 -- true || echo code $?\n\
             slipway down ranks\n",
    );
    assert_eq!(slurm.end_of(&job).0, "COMPLETED", "{}", slurm.output());
    let output = slurm.output();
    // The first machine has n1 and n3.
    for (rank, node) in ["n1", "n3", "n2", "n4"].into_iter().enumerate() {
        assert!(output.contains(&format!("pmix: {rank} of 4 in {node}, sum 6\n")), "{output}");
    }
    // Alone, as several ranks of Debian's MPICH hang now and then in `MPI_Finalize` (docs/guide/jobs.md).
    assert!(output.contains("pmi2: 0 of 1 in n1, sum 0\n"), "{output}");
    assert!(output.contains(&format!("in n3 of {job}\n")) && output.contains("code 5\n"), "{output}");
    assert!(
        output.contains(&format!("it is on machine {}", slurm.name(1))) && output.contains("code 125\n"),
        "{output}"
    );
    assert_eq!(slurm.remains(), [""; 0]);
}

/// Ranks say where they are, and what they agree on.
const RANK: &str = "#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int rank, size, sum;
    char host[64] = \"\";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    gethostname(host, sizeof host - 1);
    printf(\"%s: %d of %d in %s, sum %d\\n\", argv[1], rank, size, host, sum);
    return MPI_Finalize();
}
";

#[test]
fn a_job_of_pbs_has_a_node_file_of_nodes() {
    let machines = Machines::new(2);
    let lab = machines.path().join("lab.yaml");
    // The names of the machines' addresses come from ssh's configuration alone.
    let text = "lab: pbs\nnodes: {n: {count: 2, slots: 2}}\njob: {command: [sh, -c, 'paste -s -d. $PBS_NODEFILE']}\n";
    std::fs::write(&lab, text).expect("a file can be written");
    let file = machines.path().join("machines");
    std::fs::write(&file, format!("{0}\n{0}\n{1}\n", address(0), address(1))).expect("a file can be written");
    let run = |words: &[&str]| {
        let mut command = machines.slipway(0, ["run", "--machines-from", "pbs"]);
        must(command.arg(&lab).args(words).env("PBS_NODEFILE", &file).env("PBS_ENVIRONMENT", "PBS_BATCH"))
    };
    let output = told(&run(&[]));
    assert!(output.contains("n1 | n1.n1.n2.n2\n") && output.contains("n2 | n1.n1.n2.n2\n"), "{output}");
    let output = told(&run(&["--mpi", "openmpi", "--on", "n2,n1", "--", "sh", "-c", "cat $PBS_NODEFILE >&2"]));
    assert_eq!(output.matches("n1\n").count(), 8, "each of four ranks sees it: {output}");
    assert_eq!(machines.remains(), [""; 0]);
}

#[test]
fn a_user_who_is_not_root_has_a_lab_on_one_machine() {
    const NOBODY: u32 = 65534;
    let slurm = Slurm::new(2);
    let home = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o755)).tempdir().expect("made");
    copy_program(env!("CARGO_BIN_EXE_slipway"), &home.path().join("slipway"));
    std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY)).expect("root may give files away");
    let write = |name: &str, text: &str| std::fs::write(home.path().join(name), text).expect("written");
    // The test's machines have mounts below /etc, so nodes would have its files read-only. An image has an /etc of its own.
    write(
        "lab.yaml",
        "lab: own\nimages: {box: box.tar}\nnetworks: {net: bridge, over: vxlan}\n\
         nodes: {n: {count: 2, image: box, networks: [net, over]}}\n",
    );
    write(
        "job.sh",
        "#!/bin/sh\nset -e\n\
         export SLIPWAY_STATE=$PWD/state SLIPWAY_IMAGES=$PWD/images SLIPWAY_SCRATCH=$PWD/scratch\n\
         mkdir -p root/bin\ncp /bin/busybox root/bin\nln -sf busybox root/bin/sh\ntar -C root -cf box.tar .\n\
         exec unshare -Urnmpf --mount-proc ./slipway run lab.yaml -- busybox ping -q -c1 -W60 n1.over\n",
    );
    let path = |name: &str| home.path().join(name).display().to_string();
    let submit = |nodes: u32| {
        let words = [
            "--parsable",
            "--uid=65534",
            "--gid=65534",
            &format!("--chdir={}", home.path().display()),
            &format!("--output={}", path("out")),
            &format!("--nodes={nodes}"),
            &path("job.sh"),
        ];
        let job = slurm.run("sbatch", words).trim().to_owned();
        let end = slurm.end_of(&job);
        (end, std::fs::read_to_string(path("out")).unwrap_or_default())
    };
    let ((state, _), said) = submit(1);
    assert_eq!(state, "COMPLETED", "{said}");
    assert!(said.contains("n2 | 1 packets transmitted, 1 packets received"), "{said}");
    let ((state, code), said) = submit(2);
    assert_eq!((state.as_str(), code.as_str()), ("FAILED", "3:0"), "{said}");
    assert!(said.contains("does not reach the network between them\nHint: `--machines-from none`"), "{said}");
    let left = std::fs::read_dir(home.path().join("state")).expect("it is there").flatten();
    assert_eq!(left.map(|entry| entry.file_name()).collect::<Vec<_>>(), [".locks"]);
    assert_eq!(slurm.remains(), [""; 0]);
}
