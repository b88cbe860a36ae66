//! `slipway exec` at a terminal of the test's own. Hostile programs at one are in `threats_streams.rs`.

mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use common::{Lab, Place, terminal};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

const SIZE: Winsize = Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };

/// `slipway exec`, which leads a session that this terminal is of, as one that a shell starts does.
struct Session {
    outside: File,
    terminal: OwnedFd,
    /// The terminal's settings before.
    settings: String,
    exec: Child,
    shown: String,
}

impl Session {
    fn start(lab: &Lab<'_>, options: &[&str], script: &str) -> Self {
        let (outside, terminal) = terminal();
        tcsetwinsize(&terminal, SIZE).expect("sized");
        let settings = settings(&terminal);
        let mut command = Command::new("setsid");
        lab.place.furnish(&mut command);
        command.args(["--ctty", env!("CARGO_BIN_EXE_slipway"), "exec"]).args(options);
        command.args([lab.name.as_str(), "n", "--", "sh", "-c", script]);
        let side = || Stdio::from(terminal.try_clone().expect("copied"));
        let exec =
            command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("setsid (util-linux) is installed");
        Self { outside, terminal, settings, exec, shown: String::new() }
    }

    fn types(&mut self, text: &str) {
        self.outside.write_all(text.as_bytes()).expect("typed");
    }

    /// Reads what is shown until `text` is, and forgets all up to there.
    #[track_caller]
    fn shows(&mut self, text: &str) -> String {
        let mut bytes = [0; 1024];
        loop {
            if let Some(at) = self.shown.find(text) {
                return self.shown.drain(..at + text.len()).collect();
            }
            let count = self.outside.read(&mut bytes).expect("its other side is open");
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    /// Waits for its end: its code, with the terminal as it was.
    #[track_caller]
    fn ends(&mut self) -> Option<i32> {
        let code = self.exec.wait().expect("waited for").code();
        assert_eq!(settings(&self.terminal), self.settings, "the terminal is as it was");
        code
    }
}

fn settings(terminal: &OwnedFd) -> String {
    format!("{:?}", tcgetattr(terminal).expect("a terminal"))
}

#[test]
fn a_terminal_has_its_size_and_passes_what_is_typed() {
    let place = Place::new();
    let lab = place.up("typed", "nodes: {n: }\n");
    let script = "tty; stty size; trap 'stty size' WINCH; trap 'echo told; exit 9' INT
        read line; echo heard $line; while :; do sleep 0.05; done";
    let mut session = Session::start(&lab, &["-t"], script);
    session.shows("/dev/pts/0\r\n33 77\r\n");
    session.types("hello\r");
    session.shows("hello\r\nheard hello\r\n");
    tcsetwinsize(&session.terminal, Winsize { ws_row: 44, ..SIZE }).expect("sized");
    session.shows("44 77\r\n");
    // Ctrl-C is the program's, not the command's.
    session.types("\x03");
    session.shows("told\r\n");
    assert_eq!(session.ends(), Some(9));
}

#[test]
fn without_its_own_terminal_a_program_is_told_of_ctrl_c_too() {
    let place = Place::new();
    let lab = place.up("plain", "nodes: {n: }\n");
    let script = "trap 'echo told; exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let (mut output, input) = std::io::pipe().expect("a pipe");
    let mut exec = lab.program("n", ["sh", "-c", script]).stdout(input).spawn().expect("started");
    let mut said = [0; 6];
    output.read_exact(&mut said).expect("it says so");
    kill_process(Pid::from_child(&exec), Signal::INT).expect("it runs");
    assert_eq!(exec.wait().expect("waited for").code(), Some(9));
    assert_eq!(lab.program("n", ["tty"]).output().expect("started").stdout, b"not a tty\n");
}

#[test]
fn a_terminal_is_as_it_was_however_exec_ends() {
    let place = Place::new();
    let lab = place.up("ends", "nodes: {n: }\n");
    let script = "stty -echo; echo ready; exec sleep 1000";
    // SIGTERM is passed on; a node that dies takes its programs along.
    for (is_signal, code) in [(true, 143), (false, 137)] {
        let mut session = Session::start(&lab, &["-t"], script);
        session.shows("ready\r\n");
        if is_signal {
            kill_process(Pid::from_child(&session.exec), Signal::TERM).expect("it runs");
        } else {
            place.run(["kill", &lab.name, "n"]);
        }
        assert_eq!(session.ends(), Some(code));
        // The last that is shown is what the caller writes: nothing of the node comes after its end.
        rustix::io::write(&session.terminal, b"the caller's\n").expect("written");
        let after = session.shows("the caller's\r\n");
        assert!(!after.contains("ready"), "{after}");
    }
}
