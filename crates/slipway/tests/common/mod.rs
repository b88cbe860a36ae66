//! What tests at the command's front door share: a place of their own, labs that go down whatever happens, and a look
//! at what is left.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test file uses its own part")]

pub mod campaigns;
mod fails;
pub mod http;
mod inventory;
pub mod machines;
pub mod rdma;
pub mod ring;
pub mod slurm;
pub mod storm;
pub mod verbs;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub use fails::Fault;
pub use inventory::{Inventory, entries};

/// How long a machine under load may take for what another process, or the kernel behind one, brings about.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Pings of a witness of silence.
const WITNESSES: u64 = 10;

/// Waits for `condition`, which something else brings about by itself.
#[track_caller]
pub fn await_that(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "in vain for {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// Finds what was there before, and nothing else: whatever ends a lab has waited for the kernel to clear up behind it.
#[track_caller]
pub fn as_before(place: &Place, before: &Inventory, context: &str) {
    assert_eq!(Inventory::of(place), *before, "{context}");
}

/// State, images, scratch and lab names that no other test has. Dropped, it takes its labs down.
pub struct Place {
    folder: tempfile::TempDir,
    prefix: String,
}

impl Place {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        assert!(rustix::process::geteuid().is_root(), "these tests make namespaces, which takes root: use sudo");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Self { folder, prefix: format!("t{}-{number}", std::process::id()) }
    }

    /// A folder of the test's own.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A lab name that no other test has.
    pub fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Writes a lab file for the lab `name`; `text` is the rest of it.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(format!("{name}.yaml"));
        std::fs::write(&path, format!("lab: {}\n{text}", self.name(name))).expect("the lab file can be written");
        path
    }

    /// `slipway ARGS`, to be run here.
    pub fn slipway<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipway"));
        self.furnish(&mut command);
        command.args(arguments);
        command
    }

    /// Gives any command the environment of this place.
    pub fn furnish(&self, command: &mut Command) {
        for (variable, folder) in
            [("SLIPWAY_STATE", "state"), ("SLIPWAY_IMAGES", "images"), ("SLIPWAY_SCRATCH", "scratch")]
        {
            command.env(variable, self.path().join(folder));
        }
        command.env_remove("SLIPWAY_LOG").current_dir(self.path()).stdin(Stdio::null());
    }

    /// Runs slipway, which must succeed, and gives its standard output.
    #[track_caller]
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let mut command = self.slipway(arguments);
        let output = command.output().expect("slipway can be started");
        assert!(output.status.success(), "{command:?}: {}", told(&output));
        String::from_utf8(output.stdout).expect("slipway writes UTF-8")
    }

    /// As [`run`](Self::run) with `--json`.
    #[track_caller]
    pub fn json<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> serde_json::Value {
        let arguments = arguments.into_iter().map(|word| word.as_ref().to_owned());
        let text = self.run(std::iter::once("--json".into()).chain(arguments));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    /// Runs slipway, which must fail with `code`, and gives its standard error.
    #[track_caller]
    pub fn fails<S: AsRef<std::ffi::OsStr>>(&self, code: i32, arguments: impl IntoIterator<Item = S>) -> String {
        let mut command = self.slipway(arguments);
        let output = command.output().expect("slipway can be started");
        assert_eq!(output.status.code(), Some(code), "{command:?}: {}", told(&output));
        String::from_utf8(output.stderr).expect("slipway writes UTF-8")
    }

    /// Brings a lab up.
    #[track_caller]
    pub fn up(&self, name: &str, text: &str) -> Lab<'_> {
        let file = self.file(name, text);
        self.run(["up".as_ref(), file.as_os_str()]);
        Lab { place: self, name: self.name(name) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let state = self.path().join("state");
        let labs = std::fs::read_dir(state).into_iter().flatten().flatten();
        for name in labs.map(|entry| entry.file_name()).filter(|name| name != ".locks") {
            // Best effort: the test has its verdict already.
            let _ = self.slipway(["down".as_ref(), name.as_os_str()]).output();
        }
    }
}

/// A lab that is up, until it is dropped.
pub struct Lab<'a> {
    pub place: &'a Place,
    pub name: String,
}

impl Lab<'_> {
    /// `slipway exec` in a node, which must succeed; gives its standard output.
    #[track_caller]
    pub fn exec<'a>(&'a self, node: &'a str, program: impl IntoIterator<Item = &'a str>) -> String {
        self.place.run(["exec", &self.name, node, "--"].into_iter().chain(program))
    }

    /// The same, to be run.
    pub fn program<'a>(&'a self, node: &'a str, program: impl IntoIterator<Item = &'a str>) -> Command {
        self.place.slipway(["exec", &self.name, node, "--"].into_iter().chain(program))
    }

    /// Whether a ping from one node gets to an address: one packet, however late a busy machine has it come.
    pub fn pings(&self, from: &str, to: &str) -> bool {
        let status = self.program(from, ["ping", "-q", "-c1", "-W60", to]).stdout(Stdio::null()).status();
        status.expect("slipway can be started").success()
    }

    /// Whether no answer of `to` comes to `from`. By when the `witness` has answered, which is asked afterwards, one would
    /// have come.
    #[track_caller]
    pub fn is_silent(&self, from: &str, to: &str, witness: &str) -> bool {
        let before = self.count(from, to, ["InEchoReps", "Icmp6InEchoReplies"]);
        let is_answered = self.asks_once(from, to);
        self.asks_often(from, witness);
        Self::is_of_witness(before, self.count(from, to, ["InEchoReps", "Icmp6InEchoReplies"])) && !is_answered
    }

    /// Whether nothing that `from` sends comes to `to`. By when the `witness` has been answered, which asks afterwards, it
    /// would have come.
    #[track_caller]
    pub fn is_unheard(&self, from: &str, to: &str, witness: &str) -> bool {
        let before = self.count(to, to, ["InEchos", "Icmp6InEchos"]);
        let is_answered = self.asks_once(from, to);
        self.asks_often(witness, to);
        Self::is_of_witness(before, self.count(to, to, ["InEchos", "Icmp6InEchos"])) && !is_answered
    }

    /// Sends one ping, and does not wait for the answer, but may see it. Links of the lab carry what is sent on one processor
    /// in order, and so does this and [`asks_often`](Self::asks_often).
    #[track_caller]
    fn asks_once(&self, from: &str, to: &str) -> bool {
        let words = ["taskset", "-c", "0", "ping", "-q", "-c1", "-W0.05", to];
        let output = self.program(from, words).output().expect("slipway can be started");
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", told(&output));
        output.status.success()
    }

    /// Pings one after the other. So many that a longer path, of which the address had to be asked for first, is passed before.
    #[track_caller]
    fn asks_often(&self, from: &str, to: &str) {
        let script = format!("for i in $(seq {WITNESSES}); do ping -q -c1 -W60 {to} || exit; done");
        self.exec(from, ["taskset", "-c", "0", "sh", "-c", &script]);
    }

    #[track_caller]
    fn is_of_witness(before: u64, after: u64) -> bool {
        assert!(after >= before + WITNESSES, "each answer to {WITNESSES} pings is counted: {before} to {after}");
        after == before + WITNESSES
    }

    /// A node's count of ICMP messages that came in, by its names for IPv4 and IPv6, which it is of depends on the address.
    #[track_caller]
    fn count(&self, node: &str, to: &str, names: [&str; 2]) -> u64 {
        if to.starts_with("ip6-") {
            let text = self.exec(node, ["cat", "/proc/net/snmp6"]);
            let counts = text.lines().filter_map(|line| line.split_once(' '));
            let found = counts.filter(|(name, _)| *name == names[1]).map(|(_, count)| count.trim().parse()).next();
            return found.expect("it is counted").expect("a number");
        }
        self.kernel_count(node, "Icmp", names[0])
    }

    /// One of the kernel's counts of a node's packets of IPv4, by protocol and name (`/proc/net/snmp`).
    #[track_caller]
    pub fn kernel_count(&self, node: &str, protocol: &str, name: &str) -> u64 {
        let text = self.exec(node, ["cat", "/proc/net/snmp"]);
        let beginning = format!("{protocol}: ");
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(&beginning));
        let (names, counts) = (lines.next().expect("names"), lines.next().expect("counts"));
        let found = names.split(' ').zip(counts.split(' ')).find(|&(known, _)| known == name);
        found.expect("it is counted").1.parse().expect("a number")
    }

    /// A node's interface on a network, as the lab has it.
    #[track_caller]
    pub fn interface(&self, node: &str, network: usize) -> serde_json::Value {
        let answer = self.place.json(["inspect", &self.name]);
        let nodes = answer["lab"]["nodes"].as_array().expect("nodes are listed");
        let node = nodes.iter().find(|one| one["name"] == node).expect("it is there");
        let interfaces = node["interfaces"].as_array().expect("interfaces are listed");
        interfaces.iter().find(|one| one["network"] == network).expect("it is on it").clone()
    }

    /// Waits until a program in a node listens at a port of TCP, which the kernel announces to nobody.
    #[track_caller]
    pub fn listens(&self, node: &str, port: u16) {
        let pid = self.row(node)["pid"].as_i64().expect("it runs");
        // A socket's local address, the remote one, and the state: 0A is LISTEN (`proc_pid_net(5)`).
        let is_it = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(&format!(":{port:04X}"))) && words.nth(1) == Some("0A")
        };
        await_that(&format!("{node} listens at {port}"), || {
            ["tcp", "tcp6"].iter().any(|table| {
                let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).expect("its init lives");
                table.lines().any(is_it)
            })
        });
    }

    /// A node's row of `slipway ps`.
    #[track_caller]
    pub fn row(&self, node: &str) -> serde_json::Value {
        let answer = self.place.json(["ps", &self.name]);
        let rows = answer["nodes"].as_array().expect("ps lists nodes");
        rows.iter().find(|row| row["name"] == node).expect("the node is listed").clone()
    }

    /// Whether any of its networks is fast.
    #[track_caller]
    pub fn is_fast(&self) -> bool {
        let lab = self.place.json(["inspect", &self.name]);
        lab["lab"]["networks"].as_array().expect("networks are listed").iter().any(|net| net["driver"] == "fast")
    }

    /// The routers of its hosts, as `slipway fast status` shows them; none where no network is fast.
    #[track_caller]
    pub fn routers(&self) -> Vec<serde_json::Value> {
        if !self.is_fast() {
            return Vec::new();
        }
        self.place.json(["fast", "status", &self.name])["routers"].as_array().expect("routers are listed").clone()
    }

    /// The process of each host's router.
    #[track_caller]
    pub fn router_processes(&self) -> Vec<Pid> {
        let number = |router: &serde_json::Value| Pid::from_raw(i32::try_from(router["pid"].as_i64()?).ok()?);
        self.routers().iter().filter_map(number).collect()
    }

    /// Kills the routers of two hosts, and waits until others run.
    #[track_caller]
    pub fn kill_routers(&self) {
        let old = self.router_processes();
        for &pid in &old {
            kill_process(pid, Signal::KILL).expect("it runs");
        }
        await_that("the routers are replaced", || {
            let now = self.router_processes();
            now.len() == 2 && now.iter().all(|pid| !old.contains(pid))
        });
    }

    /// Connections on the fast path since its routers started.
    #[track_caller]
    pub fn connections(&self) -> u64 {
        let count = |tally: &serde_json::Value| ["pair", "tcp"].map(|path| tally[path].as_u64().unwrap_or(0));
        self.routers().iter().flat_map(|router| count(&router["status"]["connections"])).sum()
    }

    /// Takes it down.
    #[track_caller]
    pub fn down(self) {
        self.place.run(["down", &self.name]);
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        // Down twice is fine.
        let _ = self.place.slipway(["down", &self.name]).output();
    }
}

/// Copies a program, to be executed. By another process: while this one writes a file, what other tests start inherits the
/// descriptor for a moment, and a file that somebody may write to is not executed (`ETXTBSY`, execve(2)).
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    let output = Command::new("cp").arg(from.as_ref()).arg(to).output().expect("cp (coreutils) is installed");
    assert!(output.status.success(), "{}", told(&output));
}

/// A terminal of the test's own: its outside, and the side that programs have.
pub fn terminal() -> (File, OwnedFd) {
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    unlockpt(&master).expect("ours");
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = ioctl_tiocgptpeer(&master, flags).expect("its other side");
    (File::from(master), terminal)
}

/// What a program said, for a failure's message.
pub fn told(output: &Output) -> String {
    format!(
        "{}\n--- standard output\n{}--- standard error\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
