//! Settings change and come back through the command itself, in network namespaces of the tests' own.

mod common;

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{Place, await_that, told};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use slipway_sys::netlink::{Netlink, NewLink, Peer, Request, Veth};
use slipway_sys::ns::{create_net, with_net};

/// Settings of a network namespace with the interface `v0`, and other values than the kernel's own.
const WISHES: [&str; 7] = [
    "sysctl net.ipv4.tcp_rmem=4096 65536 7340032",
    "sysctl net.ipv4.tcp_slow_start_after_idle=0",
    "nic v0 mtu=9000",
    "nic v0 txqueuelen=5000",
    "nic v0 rps 0=1",
    "nic v0 qdisc=pfifo",
    "nic v0 feature tx-tcp-segmentation=off",
];

/// A network namespace with the pair of interfaces `v0` and `v1`, and a folder for the journal.
struct Net {
    place: Place,
    namespace: OwnedFd,
    /// The boot's ID that commands see, in a file; the machine's own where there is none.
    boot: Option<PathBuf>,
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
    fn new() -> Self {
        Self { place: Place::new(), namespace: fresh(), boot: None }
    }

    /// Reboots: the network's settings are as the kernel makes them, the boot has another ID, and folders stay.
    fn reboot(&mut self) {
        let boot = self.place.path().join("boot_id");
        fs::write(&boot, "00000000-0000-4000-8000-000000000002\n").expect("written");
        (self.namespace, self.boot) = (fresh(), Some(boot));
    }

    /// `slipway tune WORDS`, with the journal in this place.
    fn tune(&self, words: &[&str]) -> Command {
        let mut command = self.place.slipway(["tune"]);
        command.args(words).arg("--state").arg(self.place.path().join("tune"));
        if let Some(boot) = &self.boot {
            command = seeing(boot, &command);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        let mut command = self.tune(words);
        with_net(self.namespace.as_fd(), || command.output().expect("slipway can be started")).expect("entering works")
    }

    #[track_caller]
    fn json(&self, words: &[&str]) -> Value {
        let output = self.output(&[&["--json"], words].concat());
        assert!(output.status.success(), "{words:?}: {}", told(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    #[track_caller]
    fn fails(&self, code: i32, words: &[&str]) -> String {
        let output = self.output(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", told(&output));
        String::from_utf8(output.stderr).expect("UTF-8")
    }

    /// The values of all wishes' settings now, as a plan shows them.
    fn values(&self) -> Vec<Value> {
        let plan = self.json(&[&["apply", "--dry-run"], &ANYTHING[..]].concat());
        let changes = plan["plan"]["changes"].as_array().expect("changes").clone();
        assert_eq!(changes.len(), WISHES.len(), "{plan}");
        changes.into_iter().map(|change| change["is"].clone()).collect()
    }

    /// Writes kernel parameters of a file as systemd-sysctl(8) does at boot.
    fn boot_with(&self, file: &Path) {
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

    fn journal(&self) -> String {
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
const ANYTHING: [&str; 7] = [
    "sysctl net.ipv4.tcp_rmem=1 2 3",
    "sysctl net.ipv4.tcp_slow_start_after_idle=7",
    "nic v0 mtu=1281",
    "nic v0 txqueuelen=1",
    "nic v0 rps 0=f0",
    "nic v0 qdisc=none",
    "nic v0 feature tx-tcp-segmentation=neither",
];

#[test]
fn settings_change_and_come_back() {
    let net = Net::new();
    let before = net.values();
    let answer = net.json(&[&["apply", "--yes"], &WISHES[..]].concat());
    let applied = answer["applied"].as_array().expect("applied");
    assert_eq!(applied.len(), WISHES.len());
    for (applied, wish) in applied.iter().zip(WISHES) {
        assert_eq!(applied["now"].as_str(), wish.split_once('=').map(|(_, value)| value), "{wish}");
    }
    let status = net.json(&["status", "--strict"]);
    let standings = status["settings"].as_array().expect("settings").iter().map(|one| one["standing"].clone());
    assert!(standings.eq(WISHES.map(|_| Value::from("kept"))), "{status}");
    let again = net.json(&[&["apply", "--yes"], &WISHES[..]].concat());
    assert_eq!(again["plan"]["same"].as_array().map(Vec::len), Some(WISHES.len()), "nothing is left to do: {again}");

    // A second change of one, then a change by somebody else of another.
    net.json(&["apply", "--yes", "nic v0 mtu=4000"]);
    with_net(net.namespace.as_fd(), || fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 5000 6000"))
        .expect("entering works")
        .expect("written");
    assert_eq!(net.output(&["status", "--strict"]).status.code(), Some(5));
    assert!(net.fails(1, &["rollback"]).contains("net.ipv4.tcp_rmem"));
    net.json(&["rollback", "--force"]);
    assert_eq!(net.values(), before);
    assert_eq!(net.journal(), "", "no journal is left");
}

#[test]
fn nothing_changes_without_a_yes_or_beyond_the_namespace() {
    let net = Net::new();
    let before = net.values();
    assert!(net.fails(2, &["apply", "nic v0 mtu=9000"]).contains("--yes"));
    for of_the_machine in
        ["sysctl net.core.rmem_max=1000000", "sysctl vm.swappiness=1", "thp=never", "irq 1=0", "cpu governor=x"]
    {
        let told = net.fails(3, &["apply", "--yes", "nic v0 mtu=9000", of_the_machine]);
        assert!(told.contains("the whole machine"), "{told}");
    }
    for wrong in ["mtu=1", "nic v0 nothing=1", "sysctl ../x.y=1", "sysctl kernel.core_pattern=|/x", "nic v0 mtu"] {
        assert!(
            net.fails(2, &["apply", "--yes", wrong]).contains("Hint")
                || wrong.contains("pattern")
                || wrong.contains("..")
        );
    }
    assert!(net.fails(3, &["apply", "--yes", "nic v9 mtu=9000"]).contains("find nic v9 mtu"));
    assert!(net.fails(3, &["apply", "--yes", "nic v0 mtu=9000", "nic v0 mtu=8000"]).contains("wants"));
    assert_eq!(net.values(), before);
}

#[test]
fn where_one_is_refused_those_before_it_come_back() {
    let net = Net::new();
    let before = net.values();
    for refused in ["sysctl net.ipv4.tcp_congestion_control=nonesuch", "nic v1 mtu=1000", "nic v1 qdisc=nonesuch"] {
        net.fails(1, &[&["apply", "--yes"], &WISHES[..], &[refused]].concat());
        assert_eq!(net.values(), before, "{refused}");
        assert_eq!(net.journal(), "", "{refused}");
    }
}

#[test]
fn advice_of_a_rule_is_followed_and_undone() {
    let net = Net::new();
    let aim = ["--rule", "tcp-idle-restart", "--rule", "governor"];
    let before = net.values();
    let answer = net.json(&[&["apply", "--yes"], &aim[..]].concat());
    let applied = answer["applied"].as_array().expect("applied");
    assert!(applied.iter().all(|one| one["rule"] == "tcp-idle-restart"), "the governor is the machine's: {answer}");
    assert_eq!(net.values()[1], "0", "{answer}");
    net.json(&["rollback"]);
    assert_eq!(net.values(), before);
    assert!(net.fails(2, &["apply", "--rule", "nonesuch", "--yes"]).contains("Hint"));
    assert!(net.fails(2, &["apply", "--yes"]).contains("SETTING=VALUE"));
}

/// Runs `words`, and kills the process once the journal holds `entries` more or fewer than before, or the process has ended.
fn kill_at(net: &Net, words: &[&str], is_due: impl Fn(&str) -> bool) {
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

#[test]
fn a_command_that_is_killed_anywhere_is_undone_exactly() {
    let net = Net::new();
    let before = net.values();
    let count = |journal: &str| journal.matches("\"former\"").count();
    for round in 0..14 {
        let entries = 1 + round % WISHES.len();
        kill_at(&net, &[&["apply", "--yes"], &WISHES[..]].concat(), |journal| count(journal) >= entries);
        if round % 2 == 1 {
            let there = count(&net.journal());
            kill_at(&net, &["rollback"], |journal| count(journal) < there.max(1));
        }
        let answer = net.json(&["rollback"]);
        assert_eq!(net.values(), before, "round {round}: {answer}");
        assert_eq!(net.journal(), "", "round {round}");
    }
}

#[test]
fn files_outlive_a_reboot_and_name_who_wrote_them() {
    let net = Net::new();
    let root = net.place.path().join("root");
    let at = |path: &str| root.join(path);
    let words = |more: &[&'static str]| [&["apply", "--yes", "--persist", "--root", "root"], more].concat();
    write(&at("etc/sysctl.d/50-other.conf"), "-net/ipv4/tcp_rmem = 1 2 3\n");
    write(&at("etc/tuned/active_profile"), "mine\n");
    write(&at("etc/tuned/mine/tuned.conf"), "[main]\ninclude=theirs\n");
    write(&at("usr/lib/tuned/theirs/tuned.conf"), "[net]\nmtu=1400\n");
    let told = net.fails(2, &words(&[WISHES[0], WISHES[2]]));
    assert!(told.contains("net.ipv4.tcp_rmem (sysctl.d)") && told.contains("(tuned, profile theirs)"), "{told}");
    assert_eq!(net.journal(), "");

    let answer = net.json(&words(&["--override", WISHES[0], WISHES[2], WISHES[5]]));
    assert_eq!(answer["plan"]["changes"][0]["owners"][0]["value"], "1 2 3");
    let sysctl = fs::read_to_string(at("etc/sysctl.d/90-slipway.conf")).expect("written");
    assert!(
        sysctl.starts_with("# Slipway wrote this file at ")
            && sysctl.ends_with("\nnet.ipv4.tcp_rmem = 4096 65536 7340032\n")
    );
    let udev = fs::read_to_string(at("etc/udev/rules.d/90-slipway.rules")).expect("written");
    assert!(udev.contains(r#"ACTION=="add|move", SUBSYSTEM=="net", NAME=="v0", ATTR{mtu}="9000""#), "{udev}");
    let status = net.json(&["status", "--root", "root"]);
    assert_eq!(status["files"].as_array().map(Vec::len), Some(3), "the third is for tuned: {status}");

    net.json(&["rollback", "nic v0 mtu", "--root", "root"]);
    let udev = fs::read_to_string(at("etc/udev/rules.d/90-slipway.rules")).expect("still there");
    assert!(!udev.contains("mtu") && udev.contains("qdisc"), "{udev}");
    net.json(&["rollback", "--root", "root"]);
    assert!(!at("etc/sysctl.d/90-slipway.conf").exists() && !at("etc/udev/rules.d/90-slipway.rules").exists());
    assert!(at("etc/sysctl.d/50-other.conf").exists());
}

#[test]
fn tuned_gets_a_profile_and_others_whose_word_comes_later_are_named() {
    let net = Net::new();
    let root = net.place.path().join("root");
    let at = |path: &str| root.join(path);
    let words =
        |more: &[&'static str]| [&["apply", "--yes", "--persist", "--override", "--root", "root"], more].concat();
    write(&at("etc/tuned/active_profile"), "theirs\n");
    write(&at("etc/tuned/tuned-main.conf"), "reapply_sysctl = 1\n");
    write(&at("usr/lib/tuned/theirs/tuned.conf"), "[sysctl]\nnet.ipv4.tcp_rmem=\"1 2 3\"\n[net]\nmtu=1400\n");
    write(&at("usr/lib/sysctl.d/10-early.conf"), "net.ipv4.tcp_slow_start_after_idle = 1\n");
    write(&at("usr/lib/sysctl.d/99-late.conf"), "net.ipv4.tcp_slow_start_after_idle = 1\n");
    let connection = "[connection]\ninterface-name=v0\n[ethtool]\nfeature-tso=true\n";
    write(&at("etc/NetworkManager/system-connections/v0.nmconnection"), connection);

    let told = net.output(&words(&[WISHES[0], WISHES[1], WISHES[2], WISHES[6]]));
    let told = String::from_utf8(told.stdout).expect("UTF-8");
    let later: Vec<&str> = told.lines().filter(|line| line.starts_with("after a reboot")).collect();
    assert_eq!(later.len(), 3, "{told}");
    assert!(later[0].contains("tcp_slow_start_after_idle to `1`") && later[0].ends_with("99-late.conf"), "{told}");
    assert!(later[1].contains("tuned, profile theirs sets nic v0 mtu to `1400`"), "{told}");
    assert!(later[2].contains("NetworkManager sets nic v0 feature"), "{told}");
    assert!(told.contains("tuned-adm profile slipway"), "{told}");
    let profile = at("etc/tuned/slipway/tuned.conf");
    let text = fs::read_to_string(&profile).expect("written");
    assert!(text.starts_with("# Slipway wrote this file at "), "{text}");
    let body: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = "[main]\nsummary=Settings that slipway tune applied\ninclude=theirs\n\n[sysctl]\n\
        net.ipv4.tcp_rmem=4096 65536 7340032\nnet.ipv4.tcp_slow_start_after_idle=0\n\n\
        [net_v0]\ntype=net\ndevices=v0\nmtu=9000";
    assert_eq!(body.join("\n"), expected);

    // Once tuned uses it, the profile that it includes stays the same, and what that sets is tuned's still.
    write(&at("etc/tuned/active_profile"), "slipway\n");
    let answer = net.json(&words(&[WISHES[3]]));
    assert_eq!(answer["tuned"], "active", "{answer}");
    let text = fs::read_to_string(&profile).expect("written");
    assert!(text.contains("\ninclude=theirs\n") && text.contains("\ntxqueuelen=5000\n"), "{text}");
    let again = net.json(&["apply", "--dry-run", "--root", "root", "nic v0 mtu=1300"]);
    assert_eq!(again["plan"]["changes"][0]["owners"][0]["who"], "tuned, profile theirs", "{again}");
    let answer = net.json(&["rollback", "--root", "root"]);
    assert_eq!(answer["tuned"], "lost", "{answer}");
    assert!(!profile.exists() && !at("etc/tuned/slipway").exists() && at("etc/tuned/tuned-main.conf").exists());
}

#[test]
fn after_a_reboot_settings_in_files_come_back_exactly_and_the_others_are_gone() {
    let mut net = Net::new();
    let before = net.values();
    let root = net.place.path().join("root");
    let at = |path: &str| root.join(path);
    write(&at("etc/sysctl.d/90-slipway.conf"), "net.ipv4.tcp_syn_retries = 5\n");
    net.json(&["apply", "--yes", "--persist", "--override", "--root", "root", WISHES[0], WISHES[1], WISHES[4]]);
    net.json(&["apply", "--yes", WISHES[2]]);
    let kept = fs::read_to_string(at("etc/sysctl.d/90-slipway.conf")).expect("written");

    net.reboot();
    assert_eq!(net.values(), before, "a reboot ends what no file sets");
    net.boot_with(&at("etc/sysctl.d/90-slipway.conf"));
    let status = net.json(&["status", "--root", "root"]);
    assert_eq!(
        (status["rebooted"].clone(), status["files"].as_array().map(Vec::len)),
        (true.into(), Some(2)),
        "{status}"
    );
    let standings: Vec<_> =
        status["settings"].as_array().expect("settings").iter().map(|one| one["standing"].clone()).collect();
    assert_eq!(standings, ["kept", "kept", "former", "former"], "udev has not run here: {status}");
    assert!(net.fails(1, &["apply", "--yes", WISHES[3]]).contains("before the last reboot"));
    assert_eq!(fs::read_to_string(at("etc/sysctl.d/90-slipway.conf")).expect("still there"), kept);

    // Somebody sets one of them to a third value: the boot ended Slipway's word on it.
    with_net(net.namespace.as_fd(), || fs::write("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "2"))
        .expect("entering works")
        .expect("written");
    let answer = net.json(&["rollback", "--root", "root"]);
    let fates: Vec<_> =
        answer["outcomes"].as_array().expect("outcomes").iter().map(|one| one["fate"].clone()).collect();
    assert_eq!(fates, ["already", "already", "rebooted", "restored"], "{answer}");
    let now = net.values();
    assert_eq!((&now[0], &now[2..]), (&before[0], &before[2..]));
    assert_eq!(now[1], "2");
    assert_eq!(fs::read_to_string(at("etc/sysctl.d/90-slipway.conf")).expect("back"), "net.ipv4.tcp_syn_retries = 5\n");
    assert!(!at("etc/udev/rules.d/90-slipway.rules").exists());
    assert_eq!(net.journal(), "");
}

#[test]
fn a_reboot_after_a_crash_in_the_middle_leaves_nothing_to_restore() {
    let mut net = Net::new();
    let before = net.values();
    kill_at(&net, &[&["apply", "--yes"], &WISHES[..]].concat(), |journal| journal.matches("\"former\"").count() > 2);
    net.reboot();
    net.json(&["rollback"]);
    assert_eq!((net.values(), net.journal()), (before, String::new()));
    net.json(&["apply", "--yes", WISHES[0]]);
    net.json(&["rollback"]);
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

#[test]
fn commands_take_turns() {
    let net = Net::new();
    let state = net.place.path().join("tune");
    fs::create_dir(&state).expect("made");
    let lock = fs::File::open(&state).expect("opened");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    assert!(net.fails(1, &["rollback"]).contains("another command"));
    drop(lock);
    await_that("the folder is free", || net.output(&["rollback"]).status.success());
}

#[test]
fn a_host_of_a_lab_has_its_own_settings_and_gives_them_to_its_nodes() {
    let place = Place::new();
    let text = "
hosts:
  plain: {}
  tuned: {tune: {net.ipv4.tcp_congestion_control: reno, net.ipv4.tcp_rmem: 4096 65536 1048576}}
networks: {own: vxlan, shared: host}
nodes:
  a: {host: plain, networks: [own]}
  b: {host: tuned, networks: [own]}
  c: {host: tuned, networks: [own], sysctls: {net.ipv4.tcp_rmem: 4096 70000 2000000}}
  d: {host: tuned, networks: [shared]}
";
    let lab = place.up("tuned", text);
    let value = |node: &str, name: &str| {
        lab.exec(node, ["cat", &format!("/proc/sys/net/ipv4/{name}")]).trim().replace('\t', " ")
    };
    assert_ne!(value("a", "tcp_rmem"), "4096 65536 1048576");
    assert_eq!(
        (value("b", "tcp_congestion_control"), value("b", "tcp_rmem")),
        ("reno".into(), "4096 65536 1048576".into())
    );
    assert_eq!(
        (value("c", "tcp_congestion_control"), value("c", "tcp_rmem")),
        ("reno".into(), "4096 70000 2000000".into())
    );
    assert_eq!(value("d", "tcp_rmem"), "4096 65536 1048576", "the host's own");
    let refused = text.replace("tcp_congestion_control: reno", "tcp_nothing: 1");
    let file = place.file("refused", &refused);
    let told = place.fails(2, ["up", &file.display().to_string()]);
    assert!(told.contains("tcp_nothing"), "{told}");
}

#[test]
fn a_trial_keeps_settings_that_help_and_reverts_those_that_hurt() {
    let place = Place::new();
    let lab =
        place.up("trial", "networks: {net: {driver: bridge, conditions: {delay: 5ms}}}\nnodes: {n: {count: 2}}\n");
    let mut server =
        lab.program("n2", ["iperf3", "--server"]).stdout(Stdio::null()).spawn().expect("it can be started");
    lab.listens("n2", 5201);
    // The network of a node, seen by a command that is not confined to it.
    let net = fs::File::open(format!("/proc/{}/ns/net", lab.row("n1")["pid"])).expect("its init lives");
    let net = Net { place: Place::new(), namespace: net.into(), boot: None };
    let address = lab.interface("n2", 0)["ipv4"].as_str().expect("an address").to_owned();
    let words = ["--peer", &address, "--time", "1s", "--repeat", "5", "--yes"];
    let trial = |setting: &str, name: &str| {
        let out = net.place.path().join(name).display().to_string();
        net.json(&[&["try", setting][..], &words, &["--out", &out]].concat())
    };
    let read = || {
        let text = with_net(net.namespace.as_fd(), || fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem"));
        text.expect("entering works").expect("it is there").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let kept = |tried: &Value| (tried["outcome"].clone(), tried["kept"].clone());
    let before = read();
    // With a page of buffer, a page leaves every ten milliseconds: a hundredth of what leaves without.
    let hurts = trial("sysctl net.ipv4.tcp_wmem=4096 4096 4096", "hurts");
    assert_eq!(kept(&hurts), (Value::from("hurts"), Value::from(false)), "{hurts}");
    assert_eq!((read(), net.journal()), (before.clone(), String::new()), "nothing is left to undo");

    with_net(net.namespace.as_fd(), || fs::write("/proc/sys/net/ipv4/tcp_wmem", "4096 4096 4096"))
        .expect("entering works")
        .expect("written");
    let helps = trial(&format!("sysctl net.ipv4.tcp_wmem={before}"), "helps");
    assert_eq!(kept(&helps), (Value::from("helps"), Value::from(true)), "{helps}");
    assert_eq!(read(), before);
    assert!(net.place.path().join("helps/report.html").exists());
    // A second trial would not know what the former value was.
    assert!(
        net.fails(2, &[&["try", "sysctl net.ipv4.tcp_wmem=4096 8192 8192"][..], &words].concat()).contains("rollback")
    );
    net.json(&["rollback"]);
    assert_eq!(read(), "4096 4096 4096");
    let _ = kill_process(Pid::from_child(&server), Signal::TERM);
    let _ = server.wait();
}
