//! What programs see of their sockets is the same whatever carries their connections. Needs root and the packages of
//! `scripts/setup.sh test`.
//!
//! The observer (`sockets/*.c`) runs on two nodes, built in three ways, and prints what it sees. Every lab of [`LABS`] must
//! make it print the same lines, which are those of `sockets/snapshots`. On the fast path every line in which it differs is
//! written down too (`sockets/snapshots/fast-*`, `exact-*`), with what was expected: no other may, and `docs/guide/fast.md` explains them.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use common::{Lab, Place, told};

/// The drivers, and on how many hosts. The first one is what the others are held to.
const LABS: [(&str, u32); 2] = [("bridge", 1), ("vxlan", 2)];

/// The fast path: pairs of unix sockets within a host, connections of TCP between two; and of TCP within a host.
const FAST: [(&str, u32); 3] = [("fast", 1), ("fast", 2), (EXACT, 1)];

/// Driver fast, asked to be exact.
const EXACT: &str = "exact";

/// The observer's builds: name, compiler, options, package.
const BUILDS: [(&str, &str, &[&str], &str); 3] = [
    ("dynamic", "gcc", &[], "build-essential"),
    // The linker warns that getaddrinfo would load libraries; for /etc/hosts it loads none.
    ("static", "gcc", &["-static", "-Wl,--no-warnings"], "build-essential"),
    ("musl", "musl-gcc", &["-static"], "musl-tools"),
];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sockets")
}

/// Compiles the observer into `folder`, in all ways.
fn compile(folder: &Path) {
    let mut files: Vec<PathBuf> = common::entries(&sources()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    for (name, compiler, options, package) in BUILDS {
        let mut command = Command::new(compiler);
        command.args(["-O1", "-Wall", "-Wextra", "-Wno-unused-result", "-Werror", "-pthread", "-o"]);
        command.arg(folder.join(name)).args(&files).args(options);
        let output = command.output().unwrap_or_else(|error| panic!("{compiler}: {error}: install {package}"));
        assert!(output.status.success(), "{}", told(&output));
    }
}

/// What a group of scenarios prints on both sides, scenario by scenario.
fn observe(place: &Place, (driver, hosts): (&str, u32), build: &str, group: &str) -> String {
    let name = format!("{driver}{hosts}-{build}");
    std::fs::create_dir(place.path().join(&name)).expect("made");
    let mounts = format!("{{mounts: [\"./{name}:/meet\", \"./bin:/opt/observer:ro\"]}}");
    let network = if driver == EXACT { "{driver: fast, exact: true}" } else { driver };
    let text = format!("hosts: {hosts}\nnetworks: {{net: {network}}}\nnodes: {{server: {mounts}, client: {mounts}}}\n");
    let lab = place.up(&name, &text);
    let program = format!("/opt/observer/{build}");
    let sides = ["server", "client"].map(|side| {
        let mut command = lab.program(side, [&program, "/meet", side, group]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slipway can be started")
    });
    // Both at once: a side whose output nobody reads waits, and the other side for it.
    let outputs = thread::scope(|scope| {
        let reading = sides.map(|side| scope.spawn(|| side.wait_with_output().expect("it ends")));
        reading.map(|reading| reading.join().expect("it was read"))
    });
    let printed = outputs.map(|output| {
        assert!(output.status.success(), "{driver}, {build}: {}", told(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    were_not_left_alone(&lab);
    by_scenario(&printed)
}

/// No connection was left to the container network because its router was busy or lacked something. A scenario would observe
/// another kind of connection then.
#[track_caller]
fn were_not_left_alone(lab: &Lab<'_>) {
    for router in lab.routers() {
        let native = &router["status"]["connections"]["native"];
        for reason in ["crowded", "exhausted", "no-router"] {
            assert!(native.get(reason).is_none(), "{native}");
        }
    }
}

/// Lines begin with their scenario; those of a scenario come together, in the order of each side.
fn by_scenario(printed: &[String]) -> String {
    let mut scenarios: Vec<(&str, Vec<&str>)> = Vec::new();
    for (scenario, line) in printed.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once(' ')) {
        match scenarios.iter_mut().find(|(name, _)| *name == scenario) {
            Some((_, lines)) => lines.push(line),
            None => scenarios.push((scenario, vec![line])),
        }
    }
    // When one side gives up, what the other still says is chance.
    let gave_up = |lines: &[&str]| lines.iter().any(|line| line.contains(" FAILED: "));
    for (_, lines) in scenarios.iter_mut().filter(|(_, lines)| gave_up(lines)) {
        *lines = vec!["it does not come to its end"];
    }
    scenarios.iter().fold(String::new(), |mut text, (name, lines)| {
        let _ = writeln!(text, "{name}\n    {}", lines.join("\n    "));
        text
    })
}

/// The lines in which one differs from what was seen first, each with its scenario.
fn differences(expected: &str, found: &str) -> String {
    fn lines(text: &str) -> Vec<String> {
        let mut scenario = "";
        let mut lines = Vec::new();
        for line in text.lines() {
            match line.strip_prefix("    ") {
                Some(line) => lines.push(format!("{scenario}: {line}")),
                None => scenario = line,
            }
        }
        lines
    }
    let (expected, found) = (lines(expected), lines(found));
    let (before, after) = (BTreeSet::from_iter(&expected), BTreeSet::from_iter(&found));
    let gone = expected.iter().filter(|line| !after.contains(line)).map(|line| format!("- {line}\n"));
    let new = found.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}\n"));
    let said: String = gone.chain(new).collect();
    if said.is_empty() { "the order of lines".to_owned() } else { said }
}

/// Every lab and every build sees the same, and it is what is written down.
#[track_caller]
fn all_see_the_same(group: &str) {
    let place = Place::new();
    std::fs::create_dir(place.path().join("bin")).expect("made");
    compile(&place.path().join("bin"));
    let observed = |labs: &[(&'static str, u32)]| -> Vec<(String, String)> {
        thread::scope(|scope| {
            let runs: Vec<_> = labs
                .iter()
                .flat_map(|lab| BUILDS.iter().map(move |build| (*lab, build.0)))
                .map(|(lab, build)| {
                    let place = &place;
                    let run = scope.spawn(move || observe(place, lab, build, group));
                    (format!("{} on {} hosts, {build}", lab.0, lab.1), run)
                })
                .collect();
            runs.into_iter().map(|(name, run)| (name, run.join().expect("it was observed"))).collect()
        })
    };
    let same = |seen: &[(String, String)]| {
        let (first, rest) = seen.split_first().expect("there are labs");
        for (name, lines) in rest {
            assert!(*lines == first.1, "{name} differs from {}:\n{}", first.0, differences(&first.1, lines));
        }
        first.1.clone()
    };
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(sources().join("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let expected = same(&observed(&LABS));
    settings.bind(|| insta::assert_snapshot!(group, expected));
    for lab in FAST {
        let found = same(&observed(&[lab]));
        let difference = if found == expected { "none\n".to_owned() } else { differences(&expected, &found) };
        settings.bind(|| insta::assert_snapshot!(format!("{}-{}-{group}", lab.0, lab.1), difference));
    }
}

#[test]
fn addresses() {
    all_see_the_same("addresses");
}

#[test]
fn connecting() {
    all_see_the_same("connecting");
}

#[test]
fn accepting() {
    all_see_the_same("accepting");
}

#[test]
fn options() {
    all_see_the_same("options");
}

#[test]
fn flags() {
    all_see_the_same("flags");
}

#[test]
fn data() {
    all_see_the_same("data");
}

#[test]
fn endings() {
    all_see_the_same("endings");
}

#[test]
fn failing() {
    all_see_the_same("failing");
}

#[test]
fn refusals() {
    all_see_the_same("refusals");
}

#[test]
fn families() {
    all_see_the_same("families");
}

#[test]
fn processes() {
    all_see_the_same("processes");
}

#[test]
fn sweeps() {
    all_see_the_same("sweeps");
}
