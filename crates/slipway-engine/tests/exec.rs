//! Programs in a node made by hand with `unshare(1)`. Needs root.
//!
//! No test harness: it runs threads, and who starts programs in nodes may have none.

use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio as Io};

use rustix::process::{Pid, Signal};
use rustix::termios::Winsize;
use slipway_engine::exec::{Child, Entry, ExecError, Exit, Launcher, Program, Stdio, User};
use slipway_sys::cgroup::{Group, Hierarchy, Limits};
use slipway_sys::process::ProcessId;

/// Its mount namespace is its own, so a program may be put over one of the machine's.
const NODE: &str = "mount -t tmpfs none /mnt && mkdir -p /mnt/pts && mount -t devpts -o newinstance,ptmxmode=0666 none /mnt/pts \
    && mount --bind /mnt/pts /dev/pts && mount --bind /mnt/pts/ptmx /dev/ptmx \
    && printf x >/mnt/plain && printf '#!/nowhere\n' >/mnt/lost && printf 'no script' >/mnt/odd && chmod +x /mnt/lost /mnt/odd \
    && hostname inside && echo ready && exec sleep infinity";

struct Node {
    unshare: std::process::Child,
    lab: Option<Group>,
    entry: Entry,
}

impl Node {
    fn new() -> Self {
        let namespaces =
            ["--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup", "--mount-proc"];
        let mut unshare = Command::new("unshare");
        unshare.args(namespaces).args(["sh", "-c", NODE]).stdout(Io::piped());
        let mut unshare = unshare.spawn().expect("unshare runs (util-linux)");
        let mut ready = [0; 6];
        unshare.stdout.as_mut().expect("piped").read_exact(&mut ready).expect("the node comes up: this needs root");
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        let pid = fs::read_to_string(children).expect("/proc").trim().parse().ok().and_then(Pid::from_raw);
        let init = ProcessId::of(pid.expect("unshare has one child")).expect("it runs");
        let hierarchy = Hierarchy::detect().expect("control groups");
        let lab = hierarchy.create_lab(&format!("exec-{}", std::process::id()), []).expect("root may");
        let group = lab.create_node("n1", &Limits::default()).expect("root may");
        let env = [("FROM", "node")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Self {
            unshare,
            lab: Some(lab),
            entry: Entry {
                node: "n1".to_owned(),
                init,
                group: Some(group),
                env,
                capabilities: Vec::new(),
                supervised: None,
            },
        }
    }

    fn group(&self) -> &Group {
        self.entry.group.as_ref().expect("made above")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.entry.init.signal(Signal::KILL);
        let _ = self.unshare.wait();
        if let Some(lab) = self.lab.take() {
            lab.kill().expect("ends");
            lab.remove().expect("empty");
        }
    }
}

struct Bench {
    launcher: Launcher,
    node: Node,
    null: fs::File,
}

impl Bench {
    fn start(&self, program: &Program, within: Option<&Group>) -> Result<(Child, std::io::PipeReader), ExecError> {
        let (read, write) = std::io::pipe().expect("a pipe");
        let stdio = Stdio::Descriptors([self.null.as_fd(), write.as_fd(), write.as_fd()]);
        Ok((self.launcher.spawn(&self.node.entry, program, stdio, within)?, read))
    }

    fn run(&self, program: &Program) -> (Exit, String) {
        let (child, mut output) = self.start(program, None).expect("starts");
        let mut text = String::new();
        output.read_to_string(&mut text).expect("text");
        (child.wait().expect("ends"), text)
    }

    fn sh(&self, script: &str) -> (Exit, String) {
        self.run(&words(&["sh", "-c", script]))
    }
}

fn words(argv: &[&str]) -> Program {
    Program { argv: argv.iter().map(OsString::from).collect(), ..Program::default() }
}

type Check = (&'static str, fn(&Bench));

fn main() {
    let bench = Bench {
        launcher: Launcher::new().expect("one thread"),
        node: Node::new(),
        null: fs::OpenOptions::new().read(true).write(true).open("/dev/null").expect("/dev/null"),
    };
    let checks: [Check; 11] = [
        ("a program is inside every namespace", inside),
        ("exit codes", exit_codes),
        ("what cannot be executed says why", refusals),
        ("environment, folder and user", surroundings),
        ("privileges are a container's", confined),
        ("no descriptor of the caller's is inherited", descriptors),
        ("programs are in the node's control group", groups),
        ("a terminal is the node's own", terminal),
        ("in front of a terminal", foreground),
        ("a program ends with its caller", dies_with_caller),
        ("a node that is gone or frozen is not entered", gone),
    ];
    for (name, check) in checks {
        check(&bench);
        println!("{name}: ok");
    }
}

fn inside(bench: &Bench) {
    let (exit, text) = bench.sh("hostname; cat /proc/1/comm; ls /sys/class/net /proc/self/ns -l | wc -l");
    assert_eq!(exit, Exit::Code(0));
    // The node's init says that it is ready in a shell, and then becomes what it waits in.
    assert!(["inside\nsh\n", "inside\nsleep\n"].iter().any(|start| text.starts_with(start)), "{text}");
    for namespace in ["mnt", "pid", "uts", "ipc", "net", "cgroup"] {
        let (_, theirs) = bench.sh(&format!("readlink /proc/self/ns/{namespace}"));
        let init = fs::read_link(format!("/proc/{}/ns/{namespace}", bench.node.entry.init.pid)).expect("it runs");
        assert_eq!(theirs.trim(), init.to_str().expect("text"), "{namespace}");
    }
    let own = fs::read_link("/proc/self/ns/pid_for_children").expect("/proc");
    assert_eq!(own, fs::read_link("/proc/self/ns/pid").expect("/proc"), "the caller's children are its own again");
}

fn exit_codes(bench: &Bench) {
    assert_eq!(bench.sh("exit 7").0, Exit::Code(7));
    assert_eq!(bench.sh("kill -9 $$").0, Exit::Signal(9));
    let (child, _output) = bench.start(&words(&["sleep", "1000"]), None).expect("starts");
    child.signal(Signal::TERM).expect("sent");
    assert_eq!(child.wait().expect("ends").code(), 143);
    child.signal(Signal::TERM).expect("that it has ended is no error");
}

fn refusals(bench: &Bench) {
    for (program, code, word) in [
        ("no-such-program", 127, "PATH"),
        ("/no/such/program", 127, "no such file"),
        ("/mnt/plain", 126, "permission denied"),
        ("/mnt/lost", 126, "interpreter"),
        ("/mnt/odd", 126, "not a program"),
    ] {
        let error = bench.start(&words(&[program]), None).expect_err("it cannot run");
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let lost = Program { workdir: Some("/nowhere".into()), ..words(&["true"]) };
    let error = bench.start(&lost, None).expect_err("there is no such folder");
    assert_eq!(error.code(), 125);
    assert!(error.to_string().contains("/nowhere"), "{error}");
}

fn surroundings(bench: &Bench) {
    let mut program = Program { workdir: Some("/mnt".into()), ..words(&["sh", "-c", "env; pwd; id -u; id -G"]) };
    program.user = Some(User { uid: 1234, gid: 4321 });
    program.env.insert("ASKED".to_owned(), "yes".to_owned());
    let (exit, text) = bench.run(&program);
    assert_eq!(exit, Exit::Code(0), "{text}");
    for line in ["FROM=node", "ASKED=yes", "HOSTNAME=n1", "HOME=/", "/mnt", "1234", "4321"] {
        assert!(text.lines().any(|have| have == line), "{line} in {text}");
    }
    assert!(!text.contains("CARGO"), "the caller's environment stays outside: {text}");
}

fn confined(bench: &Bench) {
    let (_, status) = bench.sh("cat /proc/self/status");
    let expected = format!("{:016x}", slipway_sys::caps::DEFAULT.bits());
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert!(status.contains(&format!("{set}:\t{expected}")), "{status}");
    }
    assert!(status.contains("Seccomp:\t2"), "{status}");
    for refused in ["mount -t tmpfs none /tmp", "unshare -U true", "mknod /mnt/null c 1 3", "hostname other"] {
        assert_ne!(bench.sh(refused).0, Exit::Code(0), "{refused}");
    }
    let (_, signals) = bench.sh("grep -E 'SigBlk|SigIgn' /proc/self/status");
    // 32 and 33 are the C library's own, out of reach for anyone else.
    let clean = |line: &str| line.ends_with("0000000000000000") || line.ends_with("0000000180000000");
    assert!(signals.lines().all(clean), "{signals}");
}

fn descriptors(bench: &Bench) {
    // Not marked to be closed on exec.
    let _open = rustix::fs::open("/etc", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).expect("/etc");
    let (_, text) = bench.sh("ls /proc/self/fd");
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"], "3 is the folder that ls reads");
}

fn groups(bench: &Bench) {
    let (child, _output) = bench.start(&words(&["sleep", "1000"]), None).expect("starts");
    assert_eq!(bench.node.group().pids().expect("listed").len(), 1);
    child.signal(Signal::KILL).expect("sent");
    child.wait().expect("ends");

    let job = bench.node.group().create_within("job").expect("root may");
    let script = words(&["sh", "-c", "setsid sleep 1000 & sleep 1000 & echo started; sleep 1000"]);
    let (child, mut output) = bench.start(&script, Some(&job)).expect("starts");
    let mut line = [0; 8];
    output.read_exact(&mut line).expect("a line");
    let (outside, _output) = bench.start(&words(&["sleep", "1000"]), None).expect("starts");
    job.kill().expect("ends whatever the program started, in whatever session");
    assert_eq!(child.wait().expect("ends"), Exit::Signal(9));
    assert_eq!(bench.node.group().pids().expect("listed").len(), 1, "the rest of the node goes on");
    job.remove().expect("empty");
    outside.signal(Signal::KILL).expect("sent");
    outside.wait().expect("ends");
}

const SIZE: Winsize = Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };

fn terminal(bench: &Bench) {
    let program = words(&["sh", "-c", "tty; stty size; echo TERM=$TERM >/dev/tty"]);
    let child = bench.launcher.spawn(&bench.node.entry, &program, Stdio::Terminal(SIZE), None).expect("starts");
    assert_eq!(child.wait().expect("ends"), Exit::Code(0));
    let mut bytes = [0; 1024];
    let terminal = child.terminal.as_ref().expect("asked for");
    let mut text = Vec::new();
    while let Ok(count @ 1..) = rustix::io::read(terminal, &mut bytes) {
        text.extend_from_slice(&bytes[..count]);
    }
    let text = String::from_utf8(text).expect("text");
    assert!(text.starts_with("/dev/pts/0\r\n33 77\r\nTERM="), "{text}");
}

/// This test's own executable again, as a caller of [`Launcher::foreground`] whose terminal the test holds.
fn foreground(bench: &Bench) {
    let master =
        rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::CLOEXEC).expect("a pty");
    rustix::pty::unlockpt(&master).expect("ours");
    let slave: OwnedFd =
        rustix::pty::ioctl_tiocgptpeer(&master, rustix::pty::OpenptFlags::RDWR).expect("its other end");
    rustix::termios::tcsetwinsize(&slave, SIZE).expect("sized");
    let before = rustix::termios::tcgetattr(&slave).expect("a terminal");

    let script = "trap 'stty size; exit 9' WINCH; stty size; read line; echo got $line; while :; do sleep 0.01; done";
    let alone = slipway_sys::clone::SingleThread::check().expect("one thread");
    let slipway_sys::clone::Cloned::Parent { pidfd, pid } =
        slipway_sys::clone::clone(alone, nix::sched::CloneFlags::empty()).expect("clone")
    else {
        rustix::stdio::dup2_stdin(&slave).expect("dup");
        rustix::stdio::dup2_stdout(&slave).expect("dup");
        let program = words(&["sh", "-c", script]);
        let exit = bench.launcher.foreground(&bench.node.entry, &program, true).expect("runs");
        std::process::exit(exit.code().into());
    };
    let mut outside = fs::File::from(master);
    let mut seen = String::new();
    let mut until = |what: &str, outside: &mut fs::File| {
        let mut bytes = [0; 1024];
        while !seen.contains(what) {
            let count = outside.read(&mut bytes).unwrap_or_else(|error| panic!("{error} waiting for {what}: {seen}"));
            seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    };
    until("33 77", &mut outside);
    outside.write_all(b"hello\r").expect("typed");
    until("got hello", &mut outside);
    let larger = Winsize { ws_row: 44, ..SIZE };
    rustix::termios::tcsetwinsize(&slave, larger).expect("sized");
    // The caller is not in this terminal's foreground group here, so it is told by hand.
    rustix::process::kill_process(pid, Signal::WINCH).expect("sent");
    until("44 77", &mut outside);
    let status =
        rustix::process::waitid(rustix::process::WaitId::PidFd(pidfd.as_fd()), rustix::process::WaitIdOptions::EXITED);
    assert_eq!(status.expect("our child").expect("ended").exit_status(), Some(9));
    let after = rustix::termios::tcgetattr(&slave).expect("a terminal");
    assert_eq!(format!("{before:?}"), format!("{after:?}"), "the terminal is as it was");
}

fn dies_with_caller(bench: &Bench) {
    let alone = slipway_sys::clone::SingleThread::check().expect("one thread");
    let (mut read, write) = std::io::pipe().expect("a pipe");
    let slipway_sys::clone::Cloned::Parent { pidfd, .. } =
        slipway_sys::clone::clone(alone, nix::sched::CloneFlags::empty()).expect("clone")
    else {
        let stdio = Stdio::Descriptors([bench.null.as_fd(), write.as_fd(), bench.null.as_fd()]);
        let program = words(&["sh", "-c", "echo started; exec sleep 1000"]);
        let _child = bench.launcher.spawn(&bench.node.entry, &program, stdio, None).expect("starts");
        loop {
            std::thread::park();
        }
    };
    drop(write);
    let mut line = [0; 8];
    read.read_exact(&mut line).expect("it runs");
    rustix::process::pidfd_send_signal(&pidfd, Signal::KILL).expect("sent");
    // The last writer's end closes the pipe.
    let mut rest = String::new();
    read.read_to_string(&mut rest).expect("closed by the program's end");
    slipway_sys::process::reap(&pidfd).expect("our child");
}

fn gone(bench: &Bench) {
    let mut entry = Entry {
        node: "n2".to_owned(),
        init: bench.node.entry.init,
        group: None,
        env: [].into(),
        capabilities: Vec::new(),
        supervised: None,
    };
    entry.init.start += 1;
    let stdio = Stdio::Descriptors([bench.null.as_fd(), bench.null.as_fd(), bench.null.as_fd()]);
    let frozen = bench.node.group();
    frozen.freeze().expect("freezes");
    let error = bench.start(&words(&["true"]), None).expect_err("it would wait for ever");
    assert!(matches!(error, ExecError::Frozen(_)), "{error}");
    frozen.thaw().expect("thaws");
    let error = bench.launcher.spawn(&entry, &words(&["true"]), stdio, None).expect_err("another process has the pid");
    assert!(matches!(error, ExecError::Gone(_)), "{error}");
    // Sanity: the machine's own programs still run in the machine.
    let error = Command::new("/no/such").exec();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
