//! Nodes that take all of something that the kernel has: each is held to its part. Needs root and the packages of
//! `scripts/setup.sh test`.

mod common;

use std::path::Path;
use std::process::Command;

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
