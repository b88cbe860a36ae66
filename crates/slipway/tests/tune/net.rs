//! A network namespace to set up, and the command in it.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use slipway_sys::netlink::{Netlink, NewLink, Peer, Request, Veth};
use slipway_sys::ns::{create_net, with_net};

use crate::common::{Place, told};

/// Settings of a network namespace with the interface `v0`, and other values than the kernel's own.
pub(crate) const WISHES: [&str; 7] = [
    "sysctl net.ipv4.tcp_rmem=4096 65536 7340032",
    "sysctl net.ipv4.tcp_slow_start_after_idle=0",
    "nic v0 mtu=9000",
    "nic v0 txqueuelen=5000",
    "nic v0 rps 0=1",
    "nic v0 qdisc=pfifo",
    "nic v0 feature tx-tcp-segmentation=off",
];

/// A network namespace with the pair of interfaces `v0` and `v1`, and a folder for the journal.
pub(crate) struct Net {
    pub(crate) place: Place,
    pub(crate) namespace: OwnedFd,
    /// The boot's ID that commands see, in a file; the machine's own where there is none.
    pub(crate) boot: Option<PathBuf>,
}

/// A network namespace with the pair of interfaces `v0` and `v1`, as the kernel makes them.
fn fresh() -> OwnedFd {
    let net = create_net().expect("root may make a network namespace");
    with_net(net.as_fd(), || {
        let link = NewLink { name: "v0".to_owned(), up: true, ..NewLink::default() };
        let veth = Veth { link, peer: Peer { name: "v1".to_owned(), ..Peer::default() } };
        Netlink::open().expect("a socket").run(&[Request::AddVeth(veth)]).expect("a veth");
    })
    .expect("entering works");
    net
}

impl Net {
    pub(crate) fn new() -> Self {
        Self { place: Place::new(), namespace: fresh(), boot: None }
    }

    /// Reboots: the network's settings are as the kernel makes them, the boot has another ID, and folders stay.
    pub(crate) fn reboot(&mut self) {
        let boot = self.place.path().join("boot_id");
        fs::write(&boot, "00000000-0000-4000-8000-000000000002\n").expect("written");
        (self.namespace, self.boot) = (fresh(), Some(boot));
    }

    /// `slipway tune WORDS`, with the journal in this place.
    pub(crate) fn tune(&self, words: &[&str]) -> Command {
        let mut command = self.place.slipway(["tune"]);
        command.args(words).arg("--state").arg(self.place.path().join("tune"));
        if let Some(boot) = &self.boot {
            command = seeing(boot, &command);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn output(&self, words: &[&str]) -> Output {
        let mut command = self.tune(words);
        with_net(self.namespace.as_fd(), || command.output().expect("slipway can be started")).expect("entering works")
    }

    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let output = self.output(&[&["--json"], words].concat());
        assert!(output.status.success(), "{words:?}: {}", told(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    #[track_caller]
    pub(crate) fn fails(&self, code: i32, words: &[&str]) -> String {
        let output = self.output(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", told(&output));
        String::from_utf8(output.stderr).expect("UTF-8")
    }

    /// The values of all wishes' settings now, as a plan shows them.
    pub(crate) fn values(&self) -> Vec<Value> {
        let plan = self.json(&[&["apply", "--dry-run"], &ANYTHING[..]].concat());
        let changes = plan["plan"]["changes"].as_array().expect("changes").clone();
        assert_eq!(changes.len(), WISHES.len(), "{plan}");
        changes.into_iter().map(|change| change["is"].clone()).collect()
    }

    /// Writes kernel parameters of a file as systemd-sysctl(8) does at boot.
    pub(crate) fn boot_with(&self, file: &Path) {
        let text = fs::read_to_string(file).expect("it outlived the reboot");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let settings = lines.map(|line| line.split_once(" = ").expect("a setting"));
        with_net(self.namespace.as_fd(), || {
            for (name, value) in settings {
                fs::write(format!("/proc/sys/{}", name.replace('.', "/")), value).expect("written");
            }
        })
        .expect("entering works");
    }

    pub(crate) fn journal(&self) -> String {
        fs::read_to_string(self.place.path().join("tune/journal.json")).unwrap_or_default()
    }
}

/// The command in a mount namespace where `boot` says which boot this is.
fn seeing(boot: &Path, command: &Command) -> Command {
    let script = r#"mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@""#;
    let mut outer = Command::new("unshare");
    outer.args(["--mount", "sh", "-c", script]).arg(boot).arg(command.get_program()).args(command.get_args());
    outer.current_dir(command.get_current_dir().expect("commands run in their place"));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// The same settings, with values that are never theirs.
pub(crate) const ANYTHING: [&str; 7] = [
    "sysctl net.ipv4.tcp_rmem=1 2 3",
    "sysctl net.ipv4.tcp_slow_start_after_idle=7",
    "nic v0 mtu=1281",
    "nic v0 txqueuelen=1",
    "nic v0 rps 0=f0",
    "nic v0 qdisc=none",
    "nic v0 feature tx-tcp-segmentation=neither",
];

/// Runs `words`, and kills the process once the journal holds `entries` more or fewer than before, or the process has ended.
pub(crate) fn kill_at(net: &Net, words: &[&str], is_due: impl Fn(&str) -> bool) {
    let mut command = net.tune(words);
    let mut child =
        with_net(net.namespace.as_fd(), || command.spawn().expect("slipway can be started")).expect("entering works");
    while child.try_wait().expect("a child").is_none() {
        if is_due(&net.journal()) {
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("pids are small")).expect("not zero");
            kill_process(pid, Signal::KILL).expect("not collected yet");
            break;
        }
    }
    child.wait().expect("a child");
}
