//! Nodes' own programs (`command` in the lab file): how they ended, what they printed, and one that never stops printing.
//! Needs root.

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use common::{Place, await_that};

const LAB: &str = r#"nodes:
  bad: {command: [sh, -c, "echo oops >&2; exit 3"]}
  killed: {command: [sh, -c, "kill -9 $$"]}
  good: {command: [sh, -c, "printf 'one\\n\\033[2Jtwo\\n'; exec sleep 1000"]}
  plain:
"#;

#[test]
fn how_a_program_ended_is_told_everywhere() {
    let place = Place::new();
    let file = place.file("own", LAB);
    let output = place.slipway(["up".as_ref(), file.as_os_str()]).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("bad ended at once with code 3") && said.contains("killed ended at once by signal 9"),
        "{said}"
    );
    let name = place.name("own");
    let lab = common::Lab { place: &place, name: name.clone() };
    assert_eq!(lab.row("bad")["program"]["code"], 3);
    assert_eq!(lab.row("killed")["program"]["signal"], 9);
    assert_eq!(lab.row("good")["program"]["status"], "running");
    assert!(lab.row("plain")["program"].is_null());
    let inspected = place.json(["inspect", &name, "bad"]);
    assert_eq!(inspected["now"]["program"]["code"], 3);
    assert!(place.run(["inspect", &name, "bad"]).contains("ended with code 3"));
    assert!(place.run(["ps", &name]).contains("ended by signal 9"));

    assert_eq!(place.run(["logs", &name, "bad"]), "oops\n");
    assert_eq!(place.run(["logs", &name, "good"]), "one\n\u{1b}[2Jtwo\n");
    assert_eq!(place.run(["logs", &name, "good", "--tail", "1"]), "\u{1b}[2Jtwo\n");
    assert!(place.fails(1, ["logs", &name, "plain"]).contains("no program of its own"));

    place.run(["stop", &name, "bad"]);
    place.run(["start", &name, "bad"]);
    await_that("it ends again", || lab.row("bad")["program"]["code"] == 3);
    assert_eq!(place.run(["logs", &name, "bad"]), "oops\noops\n");
}

#[test]
fn a_log_is_followed_until_its_program_ends() {
    let place = Place::new();
    let script = "mkfifo /tmp/go; echo first; read x </tmp/go; echo second";
    let lab = place.up("own", &format!("nodes:\n  n: {{command: [sh, -c, \"{script}\"]}}\n"));
    let mut follow = place.slipway(["logs", "-f", &lab.name, "n"]).stdout(Stdio::piped()).spawn().expect("runs");
    let mut lines = BufReader::new(follow.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "first");
    lab.exec("n", ["sh", "-c", "echo >/tmp/go"]);
    assert_eq!(lines.next().expect("a line").expect("text"), "second");
    assert!(lines.next().is_none(), "the program has ended");
    assert!(follow.wait().expect("ends").success());
}

#[test]
fn a_program_that_prints_without_end_is_bounded() {
    let place = Place::new();
    let lab = place.up(
        "own",
        "nodes:\n  n: {command: [\"yes\"]}\n  m: {command: [sh, -c, \"ls -l /proc/self/fd; exec sleep 1000\"]}\n",
    );
    let folder = place.path().join("state").join(&lab.name).join("log");
    let length = |name: &str| std::fs::metadata(folder.join(name)).map_or(0, |file| file.len());
    await_that("the first file is full", || length("n.log.1") > 0);
    let first = std::fs::metadata(folder.join("n.log.1")).expect("there").modified().expect("known");
    await_that("it is replaced", || {
        std::fs::metadata(folder.join("n.log.1")).is_ok_and(|file| file.modified().is_ok_and(|now| now > first))
    });
    assert!(length("n.log") <= 1 << 20 && length("n.log.1") <= 1 << 20);
    // The anchor answers meanwhile, and the program has nothing but pipes.
    place.run(["stop", &lab.name, "m"]);
    let said = place.run(["logs", &lab.name, "m"]);
    assert!(said.contains("1 -> pipe:") && said.contains("2 -> pipe:") && said.contains("0 -> /dev/null"), "{said}");
}
