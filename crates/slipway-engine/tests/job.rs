//! Jobs on real labs. Needs root and Debian's openmpi-bin, mpich, netpipe-openmpi and
//! openssh-server.
//!
//! No test harness: it runs threads, and who starts programs in nodes may have none. In the nodes of its labs this very
//! program is the launch agent, as the command is in those of real ones.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::Signal;
use slipway_document::units::Seconds;
use slipway_engine::exec::{Entry, Launcher, Program, Stdio};
use slipway_engine::job::{Ended, Outcome, agent::agent_main, run};
use slipway_engine::lab::{Running, down, up};
use slipway_engine::machine::Machine;
use slipway_engine::state::StateRoot;
use slipway_image::{Limits, Store};
use slipway_lab::id::NodeId;
use slipway_lab::model::{Job, Mpi};
use slipway_sys::clone::{Cloned, SingleThread, clone};
use slipway_sys::process::wait_for_end;

const LAB: &str = "
hosts: 2
networks: {net: DRIVER}
nodes: {n: {count: 4}}
";

struct Bench {
    temporary: tempfile::TempDir,
    root: StateRoot,
    lab: Running,
}

impl Bench {
    fn up(driver: &str) -> Self {
        Self::up_from(driver, LAB)
    }

    fn up_from(driver: &str, text: &str) -> Self {
        let temporary = tempfile::tempdir().expect("a folder");
        let machine = Machine {
            labs: StateRoot::at(temporary.path().join("state")),
            images: Store::at(temporary.path().join("images"), Limits::default()).expect("a store"),
            agent: slipway_sys::exe::path().expect("this program"),
        };
        let text = text.replace("DRIVER", driver);
        let mut lab = slipway_lab::parse("lab.yaml", &text, Path::new("/")).expect("a lab");
        lab.name = format!("job{}-{driver}", std::process::id());
        let lab = up(&machine, &lab, &mut |_| {}).unwrap_or_else(|error| panic!("failed to {error}"));
        Self { temporary, root: machine.labs, lab }
    }

    fn folder(&self) -> std::path::PathBuf {
        self.temporary.path().join("run")
    }

    fn run(&self, job: &Job) -> (Outcome, Vec<String>) {
        let mut lines = Vec::new();
        let outcome = run(&self.lab, job, &self.folder(), &mut |line| {
            lines.push(format!("{}.{}: {}", line.node, line.stream.name(), String::from_utf8_lossy(line.bytes)));
        });
        (outcome.unwrap_or_else(|error| panic!("failed to {error}")), lines)
    }

    /// Nothing of any job may be left once it has returned.
    fn is_quiet(&self) {
        for node in self.lab.lab.nodes.ids() {
            let pids = self.lab.group(node).expect("known").expect("root has one").pids().expect("listed");
            assert_eq!(pids.len(), 1, "only its init runs in node {node}: {pids:?}");
        }
        let folder = self.lab.dir().join("node");
        let left: Vec<_> = fs::read_dir(folder).expect("there").map(|entry| entry.expect("read").file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("job")), "{left:?}");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let name = self.lab.lab.name.clone();
        if let Err(error) = down(&self.root, &name, slipway_engine::state::PATIENCE) {
            eprintln!("failed to {error}");
        }
    }
}

fn job(command: &[&str], nodes: &[usize]) -> Job {
    Job {
        command: command.iter().map(|&word| word.to_owned()).collect(),
        mpi: None,
        ranks: None,
        nodes: nodes.iter().copied().map(NodeId).collect(),
        timeout: Some(Seconds(900.0)),
        workdir: None,
        env: BTreeMap::new(),
        figure: None,
    }
}

type Check = (&'static str, fn(&Bench));

fn main() -> ExitCode {
    let argv: Vec<String> = std::env::args().collect();
    if argv[0].ends_with("/agent") {
        return ExitCode::from(agent_main(&argv));
    }
    let bench = Bench::up("bridge");
    let checks: [Check; 11] = [
        ("a plain job runs everywhere", plain),
        ("the first failure is the job's", failure),
        ("a program that is not there starts nowhere", nothing_started),
        ("a timeout ends everything", timeout),
        ("a signal ends everything", interrupted),
        ("Open MPI runs over four nodes", openmpi),
        ("MPICH runs over four nodes", mpich),
        ("MPI traffic crosses the network", traffic),
        ("the launch agent is an ssh", agent),
        ("an agent of another version is refused", other_version),
        ("a node outside of the job launches nothing in it", outsider),
    ];
    for (name, check) in checks {
        let started = std::time::Instant::now();
        check(&bench);
        bench.is_quiet();
        println!("{name}: ok ({:.1?})", started.elapsed());
    }
    drop(bench);
    for driver in ["host", "vxlan", "macvlan"] {
        let bench = Bench::up(driver);
        ranks_everywhere(&bench, Mpi::Openmpi);
        ranks_everywhere(&bench, Mpi::Mpich);
        bench.is_quiet();
        if driver != "host" {
            traffic(&bench);
        }
        println!("both over driver {driver}: ok");
    }
    for driver in ["bridge", "host"] {
        ssh(&Bench::up_from(driver, "hosts: 2\nnetworks: {net: DRIVER}\nnodes: {n: {count: 3, sshd: true}}\n"));
        println!("ssh over driver {driver}: ok");
    }
    ExitCode::SUCCESS
}

fn ssh(bench: &Bench) {
    let (outcome, lines) = bench.run(&job(&["sh", "-c", "ssh n2 hostname && ssh n3 ssh n1 hostname </dev/null"], &[0]));
    assert_eq!(outcome.code, 0, "{lines:?}");
    assert_eq!(lines, ["n1.stdout: n2", "n1.stdout: n1"]);
}

fn plain(bench: &Bench) {
    let mut job = job(&["sh", "-c", "hostname; echo $WORD >&2; pwd"], &[0, 2, 3]);
    job.env.insert("WORD".to_owned(), "given".to_owned());
    job.workdir = Some("/tmp".into());
    let (outcome, mut lines) = bench.run(&job);
    assert_eq!((outcome.code, outcome.ended), (0, Ended::Itself));
    lines.sort();
    let expected = ["n1", "n3", "n4"]
        .map(|n| vec![format!("{n}.stderr: given"), format!("{n}.stdout: /tmp"), format!("{n}.stdout: {n}")]);
    assert_eq!(lines, expected.concat());
    assert_eq!(fs::read_to_string(bench.folder().join("n3.stdout")).expect("saved"), "n3\n/tmp\n");
    assert_eq!(fs::read_to_string(bench.folder().join("n3.stderr")).expect("saved"), "given\n");
}

fn failure(bench: &Bench) {
    let (outcome, _) = bench.run(&job(&["sh", "-c", "[ $HOSTNAME != n2 ] || exit 5"], &[0, 1, 2]));
    assert_eq!(outcome.code, 5);
    let codes: Vec<_> = outcome.programs.iter().map(|ran| (ran.node.as_str(), ran.code)).collect();
    assert_eq!(codes, [("n1", 0), ("n2", 5), ("n3", 0)]);
}

fn nothing_started(bench: &Bench) {
    // The lab's hosts differ in nothing, so only the last node lacks it.
    let script =
        "rm -f /tmp/tool; [ $HOSTNAME = n4 ] || { echo '#!/bin/sh\nsleep 1000' >/tmp/tool; chmod +x /tmp/tool; }";
    assert_eq!(bench.run(&job(&["sh", "-c", script], &[0, 1, 2, 3])).0.code, 0);
    let error = run(&bench.lab, &job(&["/tmp/tool"], &[0, 1, 2, 3]), &bench.folder(), &mut |_| {});
    let error = error.expect_err("n4 has no such program");
    assert_eq!(error.code(), 127, "{error}");
}

fn timeout(bench: &Bench) {
    // One that ignores being asked, and one that left its process group.
    let mut job = job(&["sh", "-c", "trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 1; done"], &[0, 1]);
    job.timeout = Some(Seconds(5.0));
    let (outcome, lines) = bench.run(&job);
    assert_eq!((outcome.code, outcome.ended), (124, Ended::Timeout));
    assert_eq!(lines.len(), 2, "{lines:?}");
}

fn interrupted(bench: &Bench) {
    let me = rustix::process::getpid();
    let alone = SingleThread::check().expect("one thread");
    let mut helper = None;
    let outcome =
        run(&bench.lab, &job(&["sh", "-c", "echo up; exec sleep 1000"], &[0, 1, 2, 3]), &bench.folder(), &mut |_| {
            // As soon as one has printed: Ctrl-C.
            if helper.is_none() {
                helper = Some(clone(alone, nix::sched::CloneFlags::empty()).expect("clone"));
                if let Some(Cloned::Child) = helper {
                    let _ = rustix::process::kill_process(me, Signal::INT);
                    std::process::exit(0);
                }
            }
        });
    let outcome = outcome.unwrap_or_else(|error| panic!("failed to {error}"));
    assert_eq!((outcome.code, outcome.ended), (130, Ended::Signal(2)));
    if let Some(Cloned::Parent { pidfd, .. }) = helper {
        slipway_sys::process::reap(&pidfd).expect("our child");
    }
}

fn ranks_everywhere(bench: &Bench, mpi: Mpi) {
    // MPICH's launcher passes the end of its input on to the first rank, and dies of SIGPIPE where that has ended by then (4.0.2: every
    // fifth `mpiexec.hydra -n 4 hostname </dev/null` beside busy processors). So that rank waits for it.
    let first = if mpi == Mpi::Mpich { "[ $PMI_RANK != 0 ] || cat; " } else { "" };
    let mut job = job(&["sh", "-c", &format!("{first}hostname")], &[0, 1, 2, 3]);
    job.mpi = Some(mpi);
    job.ranks = Some(4);
    let (outcome, mut lines) = bench.run(&job);
    assert_eq!(outcome.code, 0, "{lines:?}");
    // Open MPI warns on standard error when a child of its own was quicker than it (setpgid in plm:rsh).
    lines.retain(|line| line.contains(".stdout: "));
    lines.sort();
    assert_eq!(lines, ["n1.stdout: n1", "n1.stdout: n2", "n1.stdout: n3", "n1.stdout: n4"]);
    // The job's exit code is the program's, and what it leaves behind is gone (checked by the caller). MPICH's launcher
    // itself waits for everything that holds a descriptor of its own, wherever it runs.
    let last = if mpi == Mpi::Openmpi { "setsid sleep 1000 >/dev/null 2>&1 & exit 3" } else { "exit 3" };
    job.command = ["sh", "-c", &format!("{first}{last}")].map(str::to_owned).into();
    let (outcome, lines) = bench.run(&job);
    assert_eq!(outcome.code, 3, "{lines:?}");
}

fn openmpi(bench: &Bench) {
    ranks_everywhere(bench, Mpi::Openmpi);
}

fn mpich(bench: &Bench) {
    ranks_everywhere(bench, Mpi::Mpich);
}

/// One rank, so that this is a script in the job's first node.
fn script(text: &str, nodes: &[usize]) -> Job {
    let mut job = job(&["sh", "-c", text], nodes);
    job.mpi = Some(Mpi::Openmpi);
    job.ranks = Some(1);
    job
}

fn agent(bench: &Bench) {
    let text = "ssh=/run/slipway/agent
        $ssh -x -o BatchMode=yes root@n2 hostname
        echo typed | $ssh n2 'read word; echo $word from $(hostname)'
        $ssh 10.64.0.2 'exit 7'; echo $?
        $ssh n2 'kill -9 $$'; echo $?
        $ssh nowhere true 2>/dev/null; echo $?
        $ssh n3 true 2>/dev/null; echo $?
        $ssh n2 'trap \"echo told; exit 9\" TERM; echo ready; while :; do sleep 0.01; done' > /tmp/said & told=$!
        until grep -q ready /tmp/said; do sleep 0.01; done; kill $told; wait $told; echo $?; cat /tmp/said
        $ssh n2 'exec sleep 1000' & killed=$!
        until $ssh n2 'pgrep sleep >/dev/null'; do sleep 0.01; done; kill -9 $killed
        until $ssh n2 '! pgrep sleep >/dev/null'; do sleep 0.01; done; echo gone";
    let (outcome, lines) = bench.run(&script(text, &[0, 1]));
    assert_eq!(outcome.code, 0, "{lines:?}");
    let said: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("n1.stdout: ")).collect();
    assert_eq!(said, ["n2", "typed from n2", "7", "137", "255", "255", "9", "ready", "told", "gone"], "{lines:?}");
}

/// Speaks to the launch service as agents of other versions would.
fn other_version(bench: &Bench) {
    let text = r#"exec python3 -c '
import json, os, socket
launch = {"launch": {"host": "n2", "command": "touch /tmp/launched"}}
for first in {"hello": {"protocol": 999, "slipway": "9.9.9"}}, launch:
    service = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    service.connect(os.environ["SLIPWAY_LAUNCH"])
    service.send(json.dumps(first).encode())
    refused = json.loads(service.recv(65536))["refused"]
    print(refused["code"], refused["reason"].split("\n")[0], service.recv(1))
'"#;
    let (outcome, lines) = bench.run(&script(text, &[0, 1]));
    assert_eq!(outcome.code, 0, "{lines:?}");
    let said: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("n1.stdout: ")).collect();
    let ours = format!("255 exchange messages between slipway {} (protocol 1) and", env!("CARGO_PKG_VERSION"));
    let theirs = ["slipway 9.9.9 (protocol 999)", "an agent without a version"];
    assert_eq!(said, theirs.map(|theirs| format!("{ours} {theirs} b''")), "{lines:?}");
}

fn outsider(bench: &Bench) {
    let entry = Entry::to(&bench.lab, NodeId(3)).expect("n4 runs");
    let launcher = Launcher::new().expect("one thread");
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null").expect("/dev/null");
    let name = format!("job-{}", std::process::id());
    let program = Program {
        argv: ["/run/slipway/agent", "n1", "touch /tmp/was-here"].map(Into::into).into(),
        env: [("SLIPWAY_LAUNCH".to_owned(), format!("/run/slipway/{name}/launch.sock"))].into(),
        ..Program::default()
    };
    let told = Entry::to(&bench.lab, NodeId(0)).expect("n1 runs");
    let tell = Program { argv: ["touch", "/tmp/over"].map(Into::into).into(), ..Program::default() };
    let spawn = |entry: &Entry, program: &Program| {
        let stdio = Stdio::Descriptors([null.as_fd(), null.as_fd(), null.as_fd()]);
        launcher.spawn(entry, program, stdio, None).expect("starts")
    };
    // The job lasts until it is told that the outsider has ended.
    let words =
        "rm -f /tmp/was-here /tmp/over; until [ -e /tmp/over ]; do echo up; sleep 0.05; done; test ! -e /tmp/was-here";
    let (mut outsider, mut teller) = (None, None);
    let outcome = run(&bench.lab, &script(words, &[0, 1]), &bench.folder(), &mut |_| {
        let outsider = outsider.get_or_insert_with(|| spawn(&entry, &program));
        if wait_for_end(outsider, Duration::ZERO).expect("looks") {
            teller.get_or_insert_with(|| spawn(&told, &tell));
        }
    });
    assert_eq!(outcome.unwrap_or_else(|error| panic!("failed to {error}")).code, 0);
    assert_eq!(outsider.expect("n1 said something").wait().expect("ends").code(), 255);
    assert_eq!(teller.expect("it ended").wait().expect("ends").code(), 0);
}

fn traffic(bench: &Bench) {
    // 1 and 3 are on different hosts, and the first node has no rank's peer on it.
    let mut job = job(&["NPopenmpi", "-n", "20", "-u", "65536", "-o", "/tmp/np.out"], &[1, 2]);
    job.mpi = Some(Mpi::Openmpi);
    job.ranks = Some(2);
    let (outcome, lines) = bench.run(&job);
    assert_eq!(outcome.code, 0, "{lines:?}");
    assert!(outcome.sent.iter().all(|&bytes| bytes > 1_000_000), "it sent {:?}", outcome.sent);
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
}
