//! Hostile programs against the PID 1 of their node: they learn nothing from it, and cannot change it. Needs root and the packages of
//! `scripts/setup.sh test`.

mod common;

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Lab, Place, await_that, told};

/// In the environment of every command of this test, and nowhere in a node.
const MARKER: &str = "the-operators-secret-5f1c";

fn compile(folder: &Path) {
    std::fs::create_dir(folder).expect("made");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/init/hostile.c");
    let mut command = Command::new("gcc");
    command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    let output = command.arg(folder.join("hostile")).arg(source).output().expect("gcc: install build-essential");
    assert!(output.status.success(), "{}", told(&output));
}

/// A node of every kind: on a fast network, on a bridge, on its host's own network.
const NODES: [&str; 3] = ["quick", "plain", "bare"];

fn lab(place: &Place) -> Lab<'_> {
    compile(&place.path().join("bin"));
    let mounts = "mounts: [\"./bin:/opt/hostile:ro\"]";
    let file = place.file(
        "init",
        &format!(
            "hosts: 2\nnetworks: {{net: fast, br: vxlan, open: host}}\nnodes:\n  quick: {{host: host1, networks: [net], {mounts}}}\n  plain: {{host: host1, networks: [br], {mounts}}}\n  bare: {{host: host1, networks: [open], {mounts}}}\n  far: {{host: host2, networks: [net, br]}}\n"
        ),
    );
    let mut up = place.slipway(["up".as_ref(), file.as_os_str()]);
    let output = up.env("OPERATOR", MARKER).output().expect("slipway can be started");
    assert!(output.status.success(), "{}", told(&output));
    Lab { place, name: place.name("init") }
}

/// Leaves a root of its own by its working directory, as a process with `CAP_SYS_CHROOT` can, and climbs as far as it gets.
const CLIMB: &str = r#"mkdir "/tmp/cell" or die; chroot "/tmp/cell" or die; chdir ".." for 1..50; chroot "." or die;
open my $name, "<", "/etc/hostname" or die; print <$name>; opendir my $root, "/proc" or die; print scalar(grep { /^[0-9]+$/ } readdir $root)"#;

#[test]
fn a_program_that_leaves_its_own_root_is_still_in_its_node() {
    let place = Place::new();
    let lab = lab(&place);
    for node in NODES {
        // Of processes there are the init and the program itself.
        assert_eq!(lab.exec(node, ["perl", "-e", CLIMB]), format!("{node}\n2"));
        let mounts = lab.exec(node, ["cat", "/proc/self/mountinfo"]);
        let at_root: Vec<&str> = mounts.lines().filter(|line| line.split(' ').nth(4) == Some("/")).collect();
        assert!(matches!(at_root[..], [one] if one.contains(" - overlay ")), "{mounts}");
    }
}

#[test]
fn a_program_in_a_node_sees_nothing_of_its_init() {
    let place = Place::new();
    let lab = lab(&place);
    for node in NODES {
        let found = lab.exec(node, ["/opt/hostile/hostile", "look"]);
        let done: Vec<&str> = found.lines().filter(|line| line.ends_with(": done")).collect();
        assert_eq!(done, ["it lives: done"], "{node}: {found}");
        let said = |program: &[&str]| lab.exec(node, program.iter().copied());
        assert_eq!(said(&["cat", "/proc/1/comm"]), "slipway-init\n", "{node}");
        assert_eq!(said(&["cat", "/proc/1/cmdline"]), "slipway-init\0", "{node}");
        let status = said(&["cat", "/proc/1/status"]);
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(set), Some("0000000000000000"), "{node}, {set}: {status}");
        }
        // Strict; a filter that the whole test runs under would stay.
        let own = std::fs::read_to_string("/proc/self/status").expect("it is there");
        let mode = if own.contains("Seccomp:\t0") { "1" } else { "2" };
        assert_eq!(field("Seccomp"), Some(mode), "{node}: {status}");
        let everywhere =
            format!("cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ 2>/dev/null | grep -ac {MARKER} || true");
        assert_eq!(said(&["sh", "-c", &everywhere]), "0\n", "{node}");
    }
    lab.down();
}

#[test]
fn programs_that_enter_a_node_cannot_be_read_before_they_are_the_nodes() {
    let place = Place::new();
    let lab = lab(&place);
    let mut lurker = lab.program("plain", ["/opt/hostile/hostile", "lurk", MARKER]);
    let mut lurker = lurker.stdout(Stdio::piped()).spawn().expect("slipway can be started");
    let mut said = BufReader::new(lurker.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says something");
    assert_eq!(line, "lurking\n");
    for _ in 0..30 {
        let mut program = lab.program("plain", ["true"]);
        let output = program.env("OPERATOR", MARKER).output().expect("slipway can be started");
        assert!(output.status.success(), "{}", told(&output));
    }
    // It ends with the first program that it reads this of, and looks at each once.
    let mut last = place.slipway(["exec", "--env", "LAST=1", &lab.name, "plain", "--", "sleep", "infinity"]);
    let mut last = last.spawn().expect("slipway can be started");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).expect("text");
    assert_eq!(rest, "over\n");
    assert!(lurker.wait().expect("it ends").success());
    last.kill().expect("it runs");
    last.wait().expect("it ends");
    lab.down();
}

#[test]
fn an_init_collects_what_is_orphaned() {
    let place = Place::new();
    let lab = lab(&place);
    for node in NODES {
        assert_eq!(lab.exec(node, ["/opt/hostile/hostile", "orphans"]), "left: 0\n", "{node}");
    }
    lab.down();
}

/// Processes of the lab by name: its anchor's descendants, which all but inits' children are.
fn processes(lab: &Lab<'_>) -> Vec<(i32, String)> {
    let anchor = lab.place.json(["inspect", &lab.name])["state"]["anchor"]["pid"].as_i64().expect("a number");
    let mut found = vec![i32::try_from(anchor).expect("a process's number")];
    let mut at = 0;
    while let Some(&pid) = found.get(at) {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        at += 1;
    }
    let name = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
    found.into_iter().map(|pid| (pid, name(pid))).collect()
}

/// The lab's key, from the file that its anchor keeps for routers.
fn key(anchor: i32) -> Vec<u8> {
    let folder = format!("/proc/{anchor}/fd");
    let is_it = |fd: &std::path::PathBuf| {
        std::fs::read_link(fd).is_ok_and(|file| file.to_string_lossy().contains("slipway-key"))
    };
    let mut files = std::fs::read_dir(folder).expect("root may").flatten().map(|entry| entry.path());
    let file = files.find(is_it).expect("an anchor with routers has it");
    std::fs::read(file).expect("root may")
}

/// Whether these bytes are anywhere in a process's memory.
fn has(pid: i32, bytes: &[u8]) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("root may");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("root may");
    let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    maps.lines().filter(|line| line.contains(" r") && !line.contains("[vvar")).any(|line| {
        let (begin, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let (mut begin, end) = (number(begin), number(end));
        let mut chunk = vec![0; 1 << 20];
        let mut found = false;
        while begin < end && !found {
            let length = chunk.len().min(usize::try_from(end - begin).expect("it fits"));
            let Ok(read) = memory.read_at(&mut chunk[..length], begin) else { break };
            found = chunk[..read].windows(bytes.len()).any(|window| window == bytes);
            // The next chunk begins early, so that none of the bytes are split.
            begin +=
                if read == length && begin + read as u64 != end { (read - bytes.len()) as u64 } else { read as u64 };
            if read == 0 {
                break;
            }
        }
        found
    })
}

#[test]
fn the_key_of_a_lab_is_in_its_routers_alone() {
    let place = Place::new();
    let lab = lab(&place);
    let look = || {
        let processes = processes(&lab);
        let key = key(processes[0].0);
        assert_eq!(key.len(), 32);
        let count = |name: &str| processes.iter().filter(|(_, is)| is == name).count();
        assert_eq!(
            [count("slipway-anchor"), count("slipway-router"), count("slipway-init")],
            [1, 2, 4],
            "{processes:?}"
        );
        for (pid, name) in &processes {
            assert_eq!(has(*pid, &key), name == "slipway-router", "process {pid}, {name}");
        }
        key
    };
    let before = look();
    // The next router has the same.
    lab.kill_routers();
    assert_eq!(look(), before);
    lab.down();
}

#[test]
fn inits_end_with_their_anchor() {
    let place = Place::new();
    let lab = lab(&place);
    let processes = processes(&lab);
    let inits = || processes.iter().filter(|(_, name)| name == "slipway-init");
    assert_eq!(inits().count(), 4);
    let anchor = rustix::process::Pid::from_raw(processes[0].0).expect("a number");
    rustix::process::kill_process(anchor, rustix::process::Signal::KILL).expect("it runs");
    await_that("inits end", || inits().all(|(pid, _)| !Path::new(&format!("/proc/{pid}/ns/pid")).exists()));
}
