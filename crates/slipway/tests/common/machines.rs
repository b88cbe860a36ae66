//! Machines of a test: namespaces with a network card, a real OpenSSH server, and folders of their own, on one switch.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use super::told;

/// Machines that reach each other over ssh. Dropped, they end, and everything on them.
pub struct Machines {
    folder: tempfile::TempDir,
    all: Vec<Machine>,
    switch: Child,
}

/// A machine.
pub struct Machine {
    pub name: String,
    /// Its first process, whose namespaces are the machine's.
    keeper: Child,
    sshd: Child,
}

/// The address of a machine, counted from 0.
pub fn address(number: usize) -> String {
    format!("192.0.2.{}", number + 1)
}

/// The name of a machine, counted from 0: `a`, `b`, …
pub fn name(number: usize) -> String {
    char::from(b'a' + u8::try_from(number).expect("few machines")).to_string()
}

/// Gives a machine a network card at the switch.
pub fn plug_in(number: usize, keeper: &Child, switch: &Child) {
    let pid = keeper.id().to_string();
    let enter = |child: &Child| {
        let mut command = Command::new("nsenter");
        command.args(["--target", &child.id().to_string(), "--net", "--"]);
        command
    };
    let port = format!("port{number}");
    must(enter(switch).args(["ip", "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid]));
    must(enter(switch).args(["ip", "link", "set", &port, "master", "br0", "up"]));
    // A machine that comes back has the address that its neighbours remember.
    let hardware = format!("02:00:00:00:00:{:02x}", number + 1);
    must(enter(keeper).args(["ip", "link", "set", "eth0", "address", &hardware]));
    must(enter(keeper).args(["ip", "address", "add", &format!("{}/24", address(number)), "dev", "eth0"]));
    must(enter(keeper).args(["ip", "link", "set", "eth0", "up"]));
}

/// Starts a process in new namespaces that says when it is there, and stays until it is killed.
pub fn keeper(namespaces: &[&str], script: &str) -> Child {
    let script = format!("{script}; echo ready; exec sleep infinity");
    let mut child = Command::new("unshare")
        .args(namespaces)
        .args(["sh", "-ec", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare can be started");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("it is piped")).read_line(&mut line).expect("it says something");
    assert_eq!(line, "ready\n", "make a machine");
    child
}

/// Runs a program that must succeed.
#[track_caller]
pub fn must(command: &mut Command) -> Output {
    let output = command.output().expect("the program can be started");
    assert!(output.status.success(), "{command:?}: {}", told(&output));
    output
}

impl Machines {
    /// Machines `a`, `b`, …, with the addresses 192.0.2.1, 192.0.2.2, …
    pub fn new(count: usize) -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests make namespaces, which takes root: use sudo");
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().to_owned();
        let key = |name: &str| {
            must(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path.join(name)));
        };
        key("host");
        key("id");
        let bin = path.join("bin");
        fs::create_dir(&bin).expect("a folder can be made");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_slipway"), bin.join("slipway")).expect("a link can be made");
        let switch = keeper(&["--net"], "ip link add br0 type bridge; ip link set br0 up");
        let all = (0..count).map(|number| Machine::new(&path, number, &switch)).collect();
        let machines = Self { folder, all, switch };
        let mut hosts = String::new();
        for (number, machine) in machines.all.iter().enumerate() {
            let _ = writeln!(hosts, "Host {}\n    HostName {}", machine.name, address(number));
        }
        let host_key = fs::read_to_string(path.join("host.pub")).expect("the key is there");
        fs::write(path.join("known_hosts"), format!("* {host_key}")).expect("a file can be written");
        let client = format!(
            "{hosts}Host *\n    IdentityFile {0}/id\n    IdentitiesOnly yes\n    UserKnownHostsFile {0}/known_hosts\n    BatchMode yes\n    LogLevel ERROR\n    ConnectTimeout 5\n    ServerAliveInterval 1\n    ServerAliveCountMax 5\n",
            path.display()
        );
        fs::write(path.join("ssh_config"), client).expect("a file can be written");
        machines
    }

    /// A folder that all machines see.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `machines: …` of a lab file.
    pub fn words(&self) -> String {
        let all: Vec<String> =
            self.all.iter().enumerate().map(|(number, one)| format!("{}: {}", one.name, address(number))).collect();
        format!("machines: {{{}}}\n", all.join(", "))
    }

    /// Writes a lab file that all machines see.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(format!("{name}.yaml"));
        fs::write(&path, format!("lab: {name}\n{}{text}", self.words())).expect("the lab file can be written");
        path
    }

    /// A program on a machine, to be run.
    pub fn program(&self, machine: usize, program: &str) -> Command {
        let Machine { name, keeper, .. } = &self.all[machine];
        let mut command = Command::new("nsenter");
        command.args(["--target", &keeper.id().to_string(), "--net", "--mount", "--uts", "--", program]);
        for (variable, value) in environment(self.path(), name) {
            command.env(variable, value);
        }
        command.env_remove("SLIPWAY_LOG").current_dir(self.path()).stdin(Stdio::null());
        command
    }

    /// `slipway ARGS` on a machine, to be run.
    pub fn slipway<S: AsRef<std::ffi::OsStr>>(&self, machine: usize, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.program(machine, env!("CARGO_BIN_EXE_slipway"));
        command.args(words);
        command
    }

    /// Runs slipway on a machine, which must succeed, and gives its standard output.
    #[track_caller]
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, machine: usize, words: impl IntoIterator<Item = S>) -> String {
        String::from_utf8(must(&mut self.slipway(machine, words)).stdout).expect("slipway writes UTF-8")
    }

    /// Runs slipway on a machine, which must fail with `code`, and gives its standard error.
    #[track_caller]
    pub fn fails<S: AsRef<std::ffi::OsStr>>(
        &self,
        machine: usize,
        code: i32,
        words: impl IntoIterator<Item = S>,
    ) -> String {
        let mut command = self.slipway(machine, words);
        let output = command.output().expect("slipway can be started");
        assert_eq!(output.status.code(), Some(code), "{command:?}: {}", told(&output));
        String::from_utf8(output.stderr).expect("slipway writes UTF-8")
    }

    /// Gives a machine an empty folder of its own in the place of one that all machines see, which is made.
    pub fn hide(&self, machine: usize, folder: &Path) {
        fs::create_dir_all(folder).expect("a folder can be made");
        must(self.program(machine, "mount").args(["-t", "tmpfs", "tmpfs"]).arg(folder));
    }

    /// Sets a machine's network card down or up.
    pub fn plug(&self, machine: usize, up: bool) {
        let word = if up { "up" } else { "down" };
        must(self.program(machine, "ip").args(["link", "set", "eth0", word]));
    }

    /// Ends a machine as a power cut does: all of its processes, and with them its namespaces. Its files stay.
    pub fn kill(&mut self, number: usize) {
        self.all[number].end();
    }

    /// Has a machine that was killed come back.
    pub fn revive(&mut self, number: usize) {
        let path = self.path().to_owned();
        self.all[number] = Machine::new(&path, number, &self.switch);
    }

    /// Labs of which a machine still has anything, control groups and locks included.
    pub fn leftovers(&self, machine: usize) -> Vec<String> {
        let text = self.run(machine, ["--json", "down", "--all", "--part", "--dry-run"]);
        let planned: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let names = planned["would_remove"].as_array().expect("a list").iter();
        names.map(|name| name.as_str().expect("a name").to_owned()).collect()
    }

    /// Processes of Slipway on a machine, outside of nodes.
    pub fn processes(&self, machine: usize) -> Vec<String> {
        let words =
            |pid: &String| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
        let all = self.all[machine].pids();
        all.iter().map(words).filter(|words| words.contains("slipway ")).collect()
    }

    /// Numbers of a machine's processes outside of nodes with these words in their command.
    pub fn pids(&self, machine: usize, words: &str) -> Vec<i32> {
        let command =
            |pid: &String| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
        let all = self.all[machine].pids().into_iter().filter(|pid| command(pid).contains(words));
        all.map(|pid| pid.parse().expect("a number")).collect()
    }

    /// Remains of labs on all machines: state folders, tunnels, and processes of anchors.
    pub fn remains(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (number, machine) in self.all.iter().enumerate() {
            let state = self.path().join(&machine.name).join("state");
            let labs = fs::read_dir(state).into_iter().flatten().flatten();
            let names = labs.map(|entry| entry.file_name().to_string_lossy().into_owned());
            found.extend(names.filter(|name| name != ".locks").map(|name| format!("{}: {name}", machine.name)));
            let links = must(self.program(number, "ip").args(["-brief", "link"])).stdout;
            let links = String::from_utf8(links).expect("ip writes UTF-8");
            let others = links.lines().filter(|line| !line.starts_with("lo ") && !line.starts_with("eth0"));
            found.extend(others.map(|line| format!("{}: {line}", machine.name)));
        }
        found
    }
}

/// The environment of every program on a machine.
fn environment(folder: &Path, name: &str) -> Vec<(&'static str, String)> {
    let own = |part: &str| folder.join(name).join(part).display().to_string();
    vec![
        (
            "PATH",
            format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", folder.join("bin").display()),
        ),
        ("SLIPWAY_STATE", own("state")),
        ("SLIPWAY_IMAGES", own("images")),
        ("SLIPWAY_SCRATCH", own("scratch")),
        ("SLIPWAY_RESULTS", own("results")),
        ("SLIPWAY_RSH", format!("ssh -F {}", folder.join("ssh_config").display())),
    ]
}

impl Machine {
    fn new(folder: &Path, number: usize, switch: &Child) -> Self {
        let name = name(number);
        fs::create_dir_all(folder.join(&name)).expect("a folder can be made");
        let script = format!(
            "mount --make-rprivate /; mount -t tmpfs tmpfs /run; mkdir /run/sshd; hostname {name}; ip link set lo up"
        );
        let keeper = keeper(&["--net", "--mount", "--uts"], &script);
        let pid = keeper.id().to_string();
        plug_in(number, &keeper, switch);
        let set: Vec<String> =
            environment(folder, &name).into_iter().map(|(variable, value)| format!("\"{variable}={value}\"")).collect();
        let config = folder.join(format!("sshd_{name}"));
        let text = format!(
            "ListenAddress {}\nHostKey {1}/host\nAuthorizedKeysFile {1}/id.pub\nStrictModes no\nPidFile none\nUsePAM no\nLogLevel ERROR\nMaxStartups 100\nSetEnv {2}\n",
            address(number),
            folder.display(),
            set.join(" ")
        );
        fs::write(&config, text).expect("a file can be written");
        let mut sshd = Command::new("nsenter");
        sshd.args(["--target", &pid, "--net", "--mount", "--uts", "--", "/usr/sbin/sshd", "-D", "-e", "-f"])
            .arg(&config);
        let sshd = sshd.stdin(Stdio::null()).spawn().expect("sshd can be started (openssh-server)");
        let machine = Self { name, keeper, sshd };
        super::await_that("the machine's ssh server listens", || {
            let listening = Command::new("nsenter")
                .args(["--target", &pid, "--net", "--", "ss", "-Hltn", "sport", "=", "22"])
                .output()
                .expect("ss can be started");
            !listening.stdout.is_empty()
        });
        machine
    }
}

impl Machine {
    /// All of its processes but those in nodes, which have names of their own.
    fn pids(&self) -> Vec<String> {
        let names = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/uts")).ok();
        let own = names(&self.keeper.id().to_string());
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
        pids.filter(|pid| own.is_some() && names(pid) == own).collect()
    }

    fn end(&mut self) {
        // A process that is starting others may be done with it.
        loop {
            let keeper = self.keeper.id().to_string();
            let others: Vec<String> = self.pids().into_iter().filter(|pid| *pid != keeper).collect();
            if others.is_empty() {
                break;
            }
            let _ = Command::new("kill").arg("-9").args(&others).stderr(Stdio::null()).status();
            let _ = self.sshd.wait();
        }
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }

    /// Ends what its ssh server left behind: a session whose client is out of reach waits for it long after the server ended.
    fn end_sessions(&self) {
        let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = network(&self.keeper.id().to_string());
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
        // No others: a shell that is killed leaves locks behind, which other shells of this user then wait for.
        let is_session =
            |pid: &String| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sshd");
        for pid in names.filter(|name| network(name) == own).filter(is_session) {
            let _ = Command::new("kill").args(["-9", &pid]).stderr(Stdio::null()).status();
        }
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for number in 0..self.all.len() {
            // Best effort: the test has its verdict already.
            let _ = self.slipway(number, ["down", "--all", "--part"]).output();
        }
        for machine in &mut self.all {
            machine.end_sessions();
            for child in [&mut machine.sshd, &mut machine.keeper] {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}
