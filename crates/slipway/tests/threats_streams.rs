//! A hostile program (`threats/streams.py`) in a node, against the streams of whoever runs it there. Needs root.

mod common;

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Lab, Place, terminal, told};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

fn lab<'a>(place: &'a Place, more: &str) -> Lab<'a> {
    let folder = place.path().join("hostile");
    fs::create_dir(&folder).expect("made");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/threats/streams.py");
    fs::copy(source, folder.join("streams.py")).expect("copied");
    place.up("streams", &format!("nodes:\n  n: {{mounts: [\"./hostile:/opt/hostile:ro\"]{more}}}\n  m:\n"))
}

fn hostile(lab: &Lab<'_>, deed: &str) -> Command {
    lab.program("n", ["python3", "/opt/hostile/streams.py", deed])
}

/// Its standard error.
#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", told(output));
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Both descriptors of the null device of this machine and the program's are told by their file.
fn machine_null() -> (u64, u64) {
    let null = fs::metadata("/dev/null").expect("there is one");
    (null.dev(), null.ino())
}

#[track_caller]
fn streams(text: &str) -> Vec<(String, u64, u64)> {
    serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error} in {text}"))
}

#[test]
fn an_input_cannot_be_written() {
    let place = Place::new();
    let lab = lab(&place, "");
    let path = place.path().join("input");
    fs::write(&path, "as it was").expect("written");
    let output = hostile(&lab, "write_input").stdin(File::open(&path).expect("opened")).output().expect("runs");
    said(&output);
    assert_eq!(fs::read_to_string(&path).expect("read"), "as it was");
}

#[test]
fn an_output_cannot_be_read() {
    let place = Place::new();
    let lab = lab(&place, "");
    let path = place.path().join("log");
    fs::write(&path, "a secret\n").expect("written");
    let log = File::options().append(true).open(&path).expect("opened");
    let said = said(&hostile(&lab, "read_output").stdout(log).output().expect("runs"));
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn an_output_keeps_its_mode_and_owner() {
    let place = Place::new();
    let lab = lab(&place, "");
    let path = place.path().join("result.bin");
    let result = File::create(&path).expect("made");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
    said(&hostile(&lab, "spoil_output").stdout(result).output().expect("runs"));
    let now = fs::metadata(&path).expect("there");
    assert_eq!((now.mode() & 0o7777, now.uid(), now.gid()), (0o640, 0, 0));
}

#[test]
fn a_folder_as_input_cannot_be_entered() {
    let place = Place::new();
    let lab = lab(&place, "");
    fs::write(place.path().join("only-here"), "").expect("written");
    let said =
        said(&hostile(&lab, "enter_input").stdin(File::open(place.path()).expect("opened")).output().expect("runs"));
    assert!(!said.contains("only-here"), "{said}");
}

#[test]
fn the_machines_null_device_stays_outside() {
    let place = Place::new();
    let lab = lab(&place, "");
    let output = hostile(&lab, "identities").output().expect("runs");
    said(&output);
    let [input, ..] = &streams(&String::from_utf8_lossy(&output.stdout))[..] else { panic!("{}", told(&output)) };
    assert_eq!(input.0, "device");
    assert_ne!((input.1, input.2), machine_null());
}

#[test]
fn the_callers_pipes_are_as_they_were() {
    let place = Place::new();
    let lab = lab(&place, "");
    let (input, to_input) = std::io::pipe().expect("a pipe");
    let (mut from_output, output) = std::io::pipe().expect("a pipe");
    let before = [input.as_fd(), output.as_fd()]
        .map(|pipe| (fcntl_getfl(pipe).expect("read"), rustix::pipe::fcntl_getpipe_size(pipe).expect("read")));
    let mut command = hostile(&lab, "spoil_pipes");
    command.stdin(input.try_clone().expect("copied")).stdout(output.try_clone().expect("copied"));
    let result = command.stderr(Stdio::piped()).output().expect("runs");
    assert!(said(&result).contains("changed"));
    let after = [input.as_fd(), output.as_fd()]
        .map(|pipe| (fcntl_getfl(pipe).expect("read"), rustix::pipe::fcntl_getpipe_size(pipe).expect("read")));
    assert_eq!(before, after);
    drop((command, to_input, output));
    let mut rest = Vec::new();
    from_output.read_to_end(&mut rest).expect("closed");
}

#[test]
fn nothing_of_a_node_keeps_the_callers_terminal() {
    let place = Place::new();
    let lab = lab(&place, "");
    let (mut outside, terminal) = terminal();
    let before = format!("{:?}", rustix::termios::tcgetattr(&terminal).expect("a terminal"));
    let side = || Stdio::from(terminal.try_clone().expect("copied"));
    let status = hostile(&lab, "linger").stdin(side()).stdout(side()).stderr(side()).status().expect("runs");
    assert!(status.success(), "{status}");
    assert_eq!(format!("{:?}", rustix::termios::tcgetattr(&terminal).expect("a terminal")), before);

    outside.write_all(b"typed afterwards\n").expect("typed");
    let said = lab.exec("n", ["sh", "-c", "echo >/tmp/go; cat /tmp/said"]);
    assert!(!said.contains("typed"), "{said}");
    // The terminal holds all that was shown by now.
    fcntl_setfl(&outside, fcntl_getfl(&outside).expect("read") | OFlags::NONBLOCK).expect("set");
    let mut shown = Vec::new();
    let _ = outside.read_to_end(&mut shown);
    assert!(!String::from_utf8_lossy(&shown).contains("HOSTILE"), "{}", String::from_utf8_lossy(&shown));
    let mut typed = vec![0; 100];
    let count = rustix::io::read(&terminal, &mut typed).expect("what was typed is here");
    assert_eq!(&typed[..count], b"typed afterwards\n");
}

#[test]
fn whichever_stream_is_a_terminal_it_is_not_the_callers() {
    let place = Place::new();
    let lab = lab(&place, "");
    let (_outside, terminal) = terminal();
    let ours = rustix::fs::fstat(&terminal).expect("a terminal");
    for which in 0..7 {
        let mut command = hostile(&lab, "identities");
        let side = || Stdio::from(terminal.try_clone().expect("copied"));
        let told = place.path().join("told");
        let file = || Stdio::from(File::options().create(true).append(true).open(&told).expect("opened"));
        let _ = fs::remove_file(&told);
        command.stdin(if which & 1 == 0 { side() } else { Stdio::null() });
        command.stdout(if which & 2 == 0 { side() } else { file() });
        command.stderr(if which & 4 == 0 { side() } else { file() });
        assert!(command.status().expect("runs").success());
        if which & 2 != 0 {
            let text = fs::read_to_string(&told).expect("read");
            for (kind, device, inode) in streams(text.lines().next().expect("a line")) {
                assert_ne!((device, inode), (ours.st_dev, ours.st_ino), "{which}: a {kind}");
            }
        }
    }
}

#[test]
fn programs_of_a_job_have_nothing_of_the_machines() {
    let place = Place::new();
    let lab = lab(&place, "");
    let folder = place.path().join("out");
    let folder = folder.to_str().expect("text");
    place.run([
        "run",
        &lab.name,
        "--on",
        "n",
        "--out",
        folder,
        "--",
        "python3",
        "/opt/hostile/streams.py",
        "identities",
    ]);
    let text = fs::read_to_string(Path::new(folder).join("n.stdout")).expect("kept");
    let streams = streams(&text);
    assert_eq!(streams.iter().map(|stream| stream.0.as_str()).collect::<Vec<_>>(), ["device", "pipe", "pipe"]);
    assert_ne!((streams[0].1, streams[0].2), machine_null());
}

#[test]
fn what_a_program_does_not_read_stays_in_the_file() {
    let place = Place::new();
    let lab = lab(&place, "");
    let path = place.path().join("lines");
    fs::write(&path, "one\ntwo\nthree\n").expect("written");
    let mut lines = File::open(&path).expect("opened");
    // As the shell's `while read` does, with a program that reads nothing, and one that reads a line.
    for (words, expected) in [(["true"].as_slice(), 0), (&["sh", "-c", "read line"], 4)] {
        let status = lab.program("m", words.iter().copied()).stdin(lines.try_clone().expect("copied")).status();
        assert!(status.expect("runs").success());
        assert_eq!(lines.stream_position().expect("known"), expected);
    }
}
