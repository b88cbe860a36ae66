//! A real Slurm: a controller and machines, each in namespaces of its own, on one switch. They are up in a second or two.

mod accounts;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::machines::{address, keeper, must, name, plug_in};
use super::{await_that, told};

/// Machines of a batch system. The first is the controller's and the user's, too. Dropped, they end, and everything on them.
pub struct Slurm {
    folder: tempfile::TempDir,
    machines: Vec<Machine>,
    daemons: Vec<Daemon>,
    switch: Child,
}

struct Daemon {
    machine: usize,
    process: Child,
}

/// A machine's own folder, under one path on all.
const OWN: &str = "/run/slipway-test";

struct Machine {
    name: String,
    /// Its first process, whose namespaces are the machine's.
    keeper: Child,
}

impl Slurm {
    /// Machines of two cores each, all idle.
    pub fn new(count: usize) -> Self {
        Self::start(count, false)
    }

    fn start(count: usize, accounts: bool) -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests make namespaces, which takes root: use sudo");
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path();
        // Slurm names control groups by machine, so no two clusters may have machines of one name.
        let cluster = std::process::id() % 10_000 * 100 + CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let names: Vec<String> = (0..count).map(|number| format!("{}{cluster}", name(number))).collect();
        configure(path, &names, accounts);
        let switch = keeper(&["--net"], "ip link add br0 type bridge; ip link set br0 up");
        let machines =
            names.into_iter().enumerate().map(|(number, name)| machine(path, number, name, &switch)).collect();
        let mut slurm = Self { folder, machines, daemons: Vec::new(), switch };
        (0..count).for_each(|number| slurm.munged(number));
        slurm.await_sockets();
        if accounts {
            slurm.keep_accounts();
        }
        slurm.daemon(0, "slurmctld", &["-D"]);
        (0..count).for_each(|number| slurm.slurmd(number));
        slurm.await_idle();
        slurm
    }

    fn munged(&mut self, machine: usize) {
        let folder = self.path().join(&self.machines[machine].name);
        let log = format!("--log-file={}", folder.join("munged").display());
        let key = format!("--key-file={}", self.path().join("munge.key").display());
        let seed = format!("--seed-file={}", folder.join("seed").display());
        let words = ["--force", "--foreground", &key, &seed, "--pid-file=/run/munge/munged.pid", &log];
        self.daemon(machine, "munged", &words);
    }

    fn slurmd(&mut self, machine: usize) {
        let name = self.machines[machine].name.clone();
        self.daemon(machine, "slurmd", &["-D", "-N", &name]);
    }

    /// Waits until nothing of a job runs on any machine, as all have said.
    #[track_caller]
    fn await_idle(&self) {
        await_that("all machines are idle", || {
            let output = self.program(0, "sinfo", ["-Nh", "-t", "idle"]).output().expect("sinfo can be started");
            output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() == self.machines.len()
        });
    }

    /// Kills every process of a machine's Slurm and of this job there, and has the controller know that it is down, as it
    /// does by itself after `SlurmdTimeout`.
    #[track_caller]
    pub fn kill(&mut self, machine: usize, job: &str) {
        let name = self.machines[machine].name.clone();
        for daemon in self.daemons.extract_if(.., |daemon| daemon.machine == machine) {
            daemon.end();
        }
        // Control groups of a step hold its processes, and those of the nodes that it made. One that is being born joins a
        // moment later.
        await_that("all processes of the job end", || {
            let all = processes_of(&name, job);
            let _ = Command::new("kill").arg("-9").args(&all).stderr(Stdio::null()).status();
            all.is_empty()
        });
        self.run("scontrol", ["update", &format!("NodeName={name}"), "State=DOWN", "Reason=killed"]);
    }

    /// Starts the daemons of a machine that was killed again. The controller takes it back once they answer (`ReturnToService`).
    pub fn revive(&mut self, machine: usize) {
        self.munged(machine);
        self.await_sockets();
        self.slurmd(machine);
        self.await_idle();
    }

    fn daemon(&mut self, machine: usize, program: &str, words: &[&str]) {
        let mut command = self.program(machine, program, words);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = child.unwrap_or_else(|error| panic!("{program} cannot be started: {error}"));
        self.daemons.push(Daemon { machine, process });
    }

    /// Waits until each machine's munged gives credentials.
    fn await_sockets(&self) {
        for number in 0..self.machines.len() {
            await_that("munged gives credentials", || {
                let output = self.program(number, "munge", ["-n"]).output().expect("munge can be started");
                output.status.success()
            });
        }
    }

    /// A folder that all machines see.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The name of a machine.
    pub fn name(&self, machine: usize) -> &str {
        &self.machines[machine].name
    }

    /// Writes a file that all machines see.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).expect("a file can be written");
        path
    }

    /// A program on a machine, to be run.
    pub fn program<S: AsRef<std::ffi::OsStr>>(
        &self,
        machine: usize,
        program: &str,
        words: impl IntoIterator<Item = S>,
    ) -> Command {
        let Machine { keeper, .. } = &self.machines[machine];
        let mut command = Command::new("nsenter");
        command.args(["--target", &keeper.id().to_string(), "--net", "--mount", "--uts"]);
        command.arg(format!("--wd={}", self.path().display())).args(["--", program]).args(words);
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        command.env("PATH", format!("{OWN}/bin:{path}"));
        command.env_remove("SLIPWAY_LOG").env_remove("SLIPWAY_RSH").stdin(Stdio::null());
        command
    }

    /// Runs a program on the first machine, which must succeed, and gives its standard output.
    #[track_caller]
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, program: &str, words: impl IntoIterator<Item = S>) -> String {
        let Output { stdout, .. } = must(&mut self.program(0, program, words));
        String::from_utf8(stdout).expect("UTF-8")
    }

    /// Submits a script for so many machines, and gives the job's number. Its output is in `out`.
    #[track_caller]
    pub fn submit(&self, nodes: usize, script: &str) -> String {
        let path = self.file("job.sh", &format!("#!/bin/sh\n{script}"));
        let out = format!("--output={}", self.path().join("out").display());
        // Words of the last job are not this one's.
        let _ = fs::remove_file(self.path().join("out"));
        let words = ["--parsable", &format!("--nodes={nodes}"), &out, path.to_str().expect("UTF-8")];
        self.run("sbatch", words).trim().to_owned()
    }

    /// Waits until the job has said `word`.
    #[track_caller]
    pub fn await_word(&self, word: &str) {
        await_that(word, || self.output().contains(word));
    }

    /// The job's output so far.
    pub fn output(&self) -> String {
        fs::read_to_string(self.path().join("out")).unwrap_or_default()
    }

    /// The state of a job and its exit code, as `scontrol show job` has them, once it has ended.
    #[track_caller]
    pub fn end_of(&self, job: &str) -> (String, String) {
        await_that("the job ends", || {
            !["PENDING", "RUNNING", "COMPLETING", "CONFIGURING"].contains(&self.value(job, "JobState=").as_str())
        });
        self.await_idle();
        (self.value(job, "JobState="), self.value(job, "ExitCode="))
    }

    /// Waits until the job is in this state.
    #[track_caller]
    pub fn await_state(&self, job: &str, state: &str) {
        await_that(state, || self.value(job, "JobState=") == state);
    }

    /// Changes a job.
    #[track_caller]
    pub fn update(&self, job: &str, change: &str) {
        self.run("scontrol", ["update", &format!("JobId={job}"), change]);
    }

    /// Waits until nothing runs on any machine that is not down.
    #[track_caller]
    pub fn await_down(&self) {
        await_that("no machine has a job", || {
            self.run("squeue", ["--noheader", "--states=all", "--format=%t"])
                .lines()
                .all(|state| !["R", "CG"].contains(&state))
        });
    }

    /// A value of `scontrol show job`; `key` ends with `=`.
    #[track_caller]
    pub fn value(&self, job: &str, key: &str) -> String {
        let text = self.run("scontrol", ["--oneliner", "show", "job", job]);
        let mut words = text.split_whitespace();
        words.find_map(|word| word.strip_prefix(key)).unwrap_or_default().to_owned()
    }

    /// Remains of labs on all machines: state folders, network devices, control groups.
    pub fn remains(&self) -> Vec<String> {
        (0..self.machines.len()).flat_map(|number| self.remains_on(number)).collect()
    }

    /// Remains of labs on one machine.
    pub fn remains_on(&self, number: usize) -> Vec<String> {
        let mut found = Vec::new();
        let machine = &self.machines[number];
        let labs = fs::read_dir(self.path().join(&machine.name).join("state")).into_iter().flatten().flatten();
        let names = labs.map(|entry| entry.file_name().to_string_lossy().into_owned());
        found.extend(names.filter(|name| name != ".locks").map(|name| format!("{}: {name}", machine.name)));
        let links = must(&mut self.program(number, "ip", ["-brief", "link"])).stdout;
        let links = String::from_utf8(links).expect("ip writes UTF-8");
        let others = links.lines().filter(|line| !line.starts_with("lo ") && !line.starts_with("eth0"));
        found.extend(others.map(|line| format!("{}: {line}", machine.name)));
        found
    }
}

/// Clusters of this process so far.
static CLUSTERS: AtomicU32 = AtomicU32::new(0);

/// Writes the configuration that all machines share, and what is theirs.
fn configure(path: &Path, names: &[String], accounts: bool) {
    let write = |name: &str, text: &str| fs::write(path.join(name), text).expect("a file can be written");
    fs::create_dir(path.join("spool")).expect("a folder can be made");
    write("munge.key", &"a key for tests alone, of no use to anybody: ".repeat(4));
    let mut hosts = String::from("127.0.0.1 localhost\n");
    for (number, name) in names.iter().enumerate() {
        let _ = writeln!(hosts, "{} {name}", address(number));
    }
    write("hosts", &hosts);
    let spool = path.join("spool").display().to_string();
    let accounts = if accounts {
        let host = format!("AccountingStorageHost={}\n", names[0]);
        "AccountingStorageType=accounting_storage/slurmdbd\nJobAcctGatherFrequency=task=1\n".to_owned() + &host
    } else {
        String::new()
    };
    write(
        "slurm.conf",
        &format!(
            "ClusterName=test\nSlurmctldHost={first}\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n\
             StateSaveLocation={spool}\nSlurmdSpoolDir=/run/slurmd\nSlurmctldPidFile=/run/slurmctld.pid\n\
             SlurmdPidFile=/run/slurmd.pid\nSlurmctldLogFile={spool}/slurmctld.log\nSlurmdLogFile={spool}/slurmd-%n.log\n\
             ProctrackType=proctrack/cgroup\nTmpFS=/run/slurmd\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/cgroup\n\
             SchedulerType=sched/backfill\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\n\
             KillWait=20\nMpiDefault=none\nNodeName={all} CPUs=2 RealMemory=1000 State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n{accounts}",
            first = names[0],
            all = names.join(","),
        ),
    );
    write("cgroup.conf", "CgroupPlugin=autodetect\nConstrainCores=no\nConstrainRAMSpace=no\n");
}

fn machine(path: &Path, number: usize, name: String, switch: &Child) -> Machine {
    let own = path.join(&name);
    let bin = own.join("bin");
    fs::create_dir_all(&bin).expect("a folder can be made");
    // Slurm hands the environment of the machine where a job was submitted on to all others. These folders are each machine's.
    let own_folders = ["STATE", "IMAGES", "SCRATCH"]
        .map(|part| format!("export SLIPWAY_{part}={}\n", own.join(part.to_lowercase()).display()));
    let script = format!("#!/bin/sh\n{}exec {} \"$@\"\n", own_folders.concat(), env!("CARGO_BIN_EXE_slipway"));
    fs::write(bin.join("slipway"), script).expect("a file can be written");
    must(Command::new("chmod").arg("755").arg(bin.join("slipway")));
    let script = format!(
        "mount --make-rprivate /; mount -t tmpfs tmpfs /run; mkdir -m 755 /run/munge /run/slurmd {OWN}; \
         mount --bind {own} {OWN}; mkdir -p /etc/slurm; mount -t tmpfs tmpfs /etc/slurm; \
         cp {path}/slurm.conf {path}/cgroup.conf /etc/slurm; mount --bind {path}/hosts /etc/hosts; \
         chmod 600 {path}/munge.key; hostname {name}; ip link set lo up",
        own = own.display(),
        path = path.display(),
    );
    let keeper = keeper(&["--net", "--mount", "--uts"], &script);
    plug_in(number, &keeper, switch);
    Machine { name, keeper }
}

impl Daemon {
    fn end(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The processes of a job on a machine.
fn processes_of(machine: &str, job: &str) -> Vec<String> {
    let path = format!("*/slurm_{machine}/*/job_{job}/*cgroup.procs");
    let find = ["/sys/fs/cgroup", "-path", &path, "-exec", "cat", "{}", "+"];
    let output = Command::new("find").args(find).output().expect("find can be started");
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Best effort: the test has its verdict already.
        if std::thread::panicking() {
            eprintln!("the job said: {}", self.output());
            for log in fs::read_dir(self.path().join("spool")).into_iter().flatten().flatten() {
                if log.path().extension().is_some_and(|extension| extension == "log") {
                    let text = fs::read_to_string(log.path()).unwrap_or_default();
                    let from = text.lines().count().saturating_sub(15);
                    let last: Vec<&str> = text.lines().skip(from).collect();
                    eprintln!("{}:\n{}", log.path().display(), last.join("\n"));
                }
            }
        }
        let _ = self.program(0, "scancel", ["--user=root"]).output();
        for number in 0..self.machines.len() {
            let output = self.program(number, "slipway", ["down", "--all", "--part"]).output();
            if let Ok(output) = output
                && !output.status.success()
            {
                eprintln!("{}", told(&output));
            }
        }
        self.daemons.drain(..).rev().for_each(Daemon::end);
        // Slurm leaves its folders in each hierarchy.
        let folders = self.machines.iter().flat_map(|machine| {
            let of = |controller: &str| PathBuf::from(format!("/sys/fs/cgroup/{controller}/slurm_{}", machine.name));
            ["freezer", "memory", "cpuacct"].map(of)
        });
        for folder in folders {
            let _ =
                Command::new("find").arg(&folder).args(["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]).output();
        }
        for machine in &mut self.machines {
            let _ = machine.keeper.kill();
            let _ = machine.keeper.wait();
        }
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}
