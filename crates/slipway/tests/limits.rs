//! Nodes that take all of something that the kernel has: each is held to its part. Needs root and the packages of
//! `scripts/setup.sh test`.

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Lab, Place, told};

/// Two nodes, of which `text` is the rest of the first, and a program that takes what it can.
fn lab<'a>(place: &'a Place, text: &str) -> Lab<'a> {
    let folder = place.path().join("bin");
    std::fs::create_dir(&folder).expect("made");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/limits/greedy.c");
    let mut command = Command::new("gcc");
    command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    let output = command.arg(folder.join("greedy")).arg(source).output().expect("gcc: install build-essential");
    assert!(output.status.success(), "{}", told(&output));
    let mounts = "mounts: [\"./bin:/opt/greedy:ro\"]";
    place.up("limits", &format!("nodes:\n  greedy: {{{mounts}{text}}}\n  other: {{{mounts}}}\n"))
}

fn take(lab: &Lab<'_>, node: &str, things: &[&str]) -> (u64, String) {
    let words = ["/opt/greedy/greedy"].into_iter().chain(things.iter().copied());
    let said = lab.exec(node, words);
    let (count, why) = said.trim().split_once(' ').unwrap_or((said.trim(), ""));
    (count.parse().expect("a number"), why.to_owned())
}

#[test]
fn buffers_of_sockets_count_as_memory() {
    const LIMIT: u64 = 64 << 20;
    let place = Place::new();
    let lab = lab(&place, ", memory: 64MiB");
    for kind in ["tcp", "udp"] {
        let (taken, _) = take(&lab, "greedy", &[kind, "400"]);
        // A socket that gets nothing more keeps what the kernel grants every one, 4 KiB and a packet.
        assert!(taken < LIMIT + 400 * (64 << 10), "{kind}: {taken} bytes");
        // Without a limit there is none: the program does take more where it can.
        let (taken, _) = take(&lab, "other", &[kind, "400"]);
        assert!(taken > 2 * LIMIT, "{kind}: {taken} bytes");
    }
    // It changes with the limit, and goes with it.
    lab.place.run(["set", &lab.name, "greedy", "memory=128MiB"]);
    assert!(take(&lab, "greedy", &["udp", "400"]).0 < 2 * LIMIT + 400 * (64 << 10));
    lab.place.run(["set", &lab.name, "greedy", "memory=none"]);
    assert!(take(&lab, "greedy", &["udp", "400"]).0 > 4 * LIMIT);
    lab.down();
}

#[test]
fn a_node_has_its_own_terminals() {
    let place = Place::new();
    let lab = lab(&place, "");
    assert_eq!(take(&lab, "greedy", &["terminals"]), (256, "ENOSPC".to_owned()));
    lab.down();
}

/// The kernel counts these by user, and root is one user in all nodes: each node's user namespace belongs to another.
#[test]
fn one_node_takes_nothing_from_another() {
    let place = Place::new();
    let lab = lab(&place, "");
    for (thing, end) in [("instances", "EMFILE"), ("queues", "EMFILE"), ("signals", "EAGAIN")] {
        let mut holder = lab.program("greedy", ["/opt/greedy/greedy", thing, "hold"]);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("slipway can be started");
        let mut said = String::new();
        BufReader::new(holder.stdout.take().expect("piped")).read_line(&mut said).expect("it says something");
        let (count, why) = take(&lab, "other", &[thing]);
        assert_eq!((said, why.as_str()), (format!("{count} {end}\n"), end), "{thing}");
        // Nor from the machine's own root.
        let program = place.path().join("bin/greedy");
        let own = Command::new(program).arg(thing).output().expect("it can be started");
        assert!(!told(&own).starts_with("0 "), "{thing}: {}", told(&own));
        drop(holder.stdin.take());
        assert!(holder.wait().expect("it ends").success());
    }
    // A node that was stopped and started again, and so kept its network, is counted by itself as before.
    lab.place.run(["stop", &lab.name, "other"]);
    lab.place.run(["start", &lab.name, "other"]);
    let of = |node: &str| lab.exec(node, ["readlink", "/proc/self/ns/user"]);
    let machine = std::fs::read_link("/proc/self/ns/user").expect("it is there").display().to_string();
    let namespaces = std::collections::BTreeSet::from([of("greedy"), of("other"), format!("{machine}\n")]);
    assert_eq!(namespaces.len(), 3, "{namespaces:?}");
    let doctor = lab.place.json(["doctor"]).to_string();
    assert!(doctor.contains("inotify instances, message queues of its own"), "{doctor}");
    lab.down();
}

/// Root and others in a node's user namespace have the rights of a default container, over the node's files and its network.
#[test]
fn ids_and_rights_are_those_of_a_default_container() {
    let place = Place::new();
    let lab = lab(&place, "");
    let script = r"
        set -eu
        cp /usr/bin/id /usr/local/bin/suid && chown 0:0 /usr/local/bin/suid && chmod 4755 /usr/local/bin/suid
        touch /var/tmp/owned && chown 1234:4321 /var/tmp/owned && stat -c %u:%g /var/tmp/owned
        stat -c %u:%g /usr/bin/env /proc/self /dev/null
        cp $(readlink -f $(which python3)) /usr/local/bin/bind && setcap cap_net_bind_service+ep /usr/local/bin/bind
        getcap /usr/local/bin/bind
        ping -q -c1 other > /dev/null && echo pings
    ";
    let said = lab.exec("greedy", ["sh", "-c", script]);
    let bind = "/usr/local/bin/bind cap_net_bind_service=ep";
    assert_eq!(said, format!("1234:4321\n0:0\n0:0\n0:0\n{bind}\npings\n"));
    let nobody = |words: &[&str]| {
        let mut line = vec!["exec", "--user", "nobody", &lab.name, "greedy", "--"];
        line.extend(words);
        lab.place.run(line)
    };
    assert!(nobody(&["suid"]).contains("euid=0(root)"));
    nobody(&["bind", "-c", "import socket; socket.socket().bind(('', 80))"]);
    nobody(&["ping", "-q", "-c1", "other"]);
    lab.down();
}

/// The kernel keeps some settings from networks that belong to a user namespace. A node that names one has it all the same.
#[test]
fn a_node_has_the_settings_that_it_asks_for() {
    let place = Place::new();
    let setting = "net.ipv6.route.mtu_expires";
    let lab = place.up("settings", &format!("nodes:\n  n: {{sysctls: {{{setting}: 300}}}}\n  other:\n"));
    assert_eq!(lab.exec("n", ["cat", "/proc/sys/net/ipv6/route/mtu_expires"]), "300\n");
    assert!(lab.pings("n", "other"));
    lab.down();
}

#[test]
fn a_lab_beyond_the_limit_of_open_files_is_refused_with_the_figure() {
    let place = Place::new();
    let file = place.file("many", "nodes: {n: {count: 200}}\n");
    let up = |limit: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-sys_resource", "prlimit", limit]).arg(env!("CARGO_BIN_EXE_slipway"));
        place.furnish(&mut command);
        command.arg("up").arg(&file).output().expect("setpriv and prlimit (util-linux) are installed")
    };
    let refused = up("--nofile=300:300");
    assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
    let said = told(&refused);
    assert!(said.contains("make 200 nodes: that takes 472 open files, and this process may open 300"), "{said}");
    assert!(said.contains("ulimit -Hn 472"), "{said}");
    assert!(place.run(["down", "--all"]).contains("nothing to remove"));
    // A limit that may be raised is.
    let made = up("--nofile=64:600");
    assert!(made.status.success(), "{}", told(&made));
    let lab = Lab { place: &place, name: place.name("many") };
    assert_eq!(lab.exec("n1", ["sh", "-c", "ulimit -Sn; ulimit -Hn"]).lines().count(), 2);
    lab.down();
}

#[test]
fn a_node_without_a_limit_takes_half_of_all_processes_at_most() {
    let place = Place::new();
    let lab = lab(&place, "");
    let machine = |name: &str| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).expect("it is there");
        text.trim().parse().expect("a number")
    };
    let (before, release) = (machine("pid_max"), rustix::system::uname());
    let release = release.release().to_string_lossy().into_owned();
    let version: Vec<u32> = release.split(['.', '-']).map_while(|part| part.parse().ok()).collect();
    let inside: u64 = lab.exec("greedy", ["cat", "/proc/sys/kernel/pid_max"]).trim().parse().expect("a number");
    let most = before.min(machine("threads-max")) / 2;
    let doctor = lab.place.json(["doctor"]);
    if version < vec![6, 14] {
        // The bound is the machine's there, and stays what it was; `doctor` says so.
        assert_eq!(inside, before);
        assert!(doctor.to_string().contains("processes without bound"), "{doctor}");
    } else {
        assert_eq!(inside, most.max(1024));
        assert!(doctor.to_string().contains(&format!("at most {inside} processes")), "{doctor}");
    }
    assert_eq!(machine("pid_max"), before, "the machine's own");
    lab.down();
}
