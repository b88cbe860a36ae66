//! Measuring programs on this machine, outside of any node.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use slipway_engine::probe::{Bounds, Heard, collect, listens};
use slipway_measure::probe::{Output, Probe, Sample, Server, Step};
use slipway_sys::process::wait_for_end;
use slipway_sys::signals::Taken;

use crate::rounds::Stop;

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program, ended with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // It leads a group of its own. One that has ended meanwhile is gone anyway.
            let _ = killpg(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }
}

/// Runs the steps of a probe, and reads their samples. A step's server runs on this machine too.
pub(super) fn measure(
    probe: &Probe,
    address: IpAddr,
    (timeout, interrupt): (Duration, &Taken),
    look: &mut dyn FnMut(),
) -> Result<Vec<Sample>, Stop> {
    let mut outputs = Vec::new();
    for Step { server, client } in probe.steps(address) {
        let server = server.map(|server| serve(&server)).transpose()?;
        outputs.push(run(&client, (timeout, interrupt), look)?);
        look();
        drop(server);
    }
    probe.read(&outputs).map_err(Stop::failed)
}

/// Runs a program to its end.
pub(super) fn run(
    argv: &[String],
    (timeout, interrupt): (Duration, &Taken),
    look: &mut dyn FnMut(),
) -> Result<Output, Stop> {
    let begun = Instant::now();
    let (mut stdout, out) = io::pipe().map_err(Stop::failed)?;
    let (mut stderr, err) = io::pipe().map_err(Stop::failed)?;
    let mut child = start(argv, (Stdio::from(out), Stdio::from(err)))?;
    let bounds = Bounds { deadline: begun + timeout, interrupt };
    match collect(&mut stdout, &mut stderr, bounds, Some(look)).map_err(Stop::failed)? {
        Heard::All([stdout, stderr]) => {
            let status = child.0.wait().map_err(Stop::failed)?;
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            Ok(Output { stdout, stderr, code, wall: begun.elapsed() })
        }
        Heard::Interrupted => Err(Stop::came(interrupt)),
        Heard::Late => Err(Stop::Failed(format!("run {}: not done after {} s, ended", argv[0], timeout.as_secs()))),
    }
}

fn start(argv: &[String], (out, err): (Stdio, Stdio)) -> Result<Running, Stop> {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).process_group(0).stdin(Stdio::null()).stdout(out).stderr(err);
    command.spawn().map(Running).map_err(|error| {
        let hint = if error.kind() == io::ErrorKind::NotFound {
            ". Hint: install its Debian package of this name"
        } else {
            ""
        };
        Stop::Failed(format!("start {}: {error}{hint}", argv[0]))
    })
}

fn serve(server: &Server) -> Result<Running, Stop> {
    let running = start(&server.argv, (Stdio::null(), Stdio::null()))?;
    let number = running.0.id().cast_signed();
    let pid = rustix::process::Pid::from_raw(number).ok_or_else(|| Stop::failed("start the server"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(Stop::failed)?;
    let deadline = Instant::now() + PATIENCE;
    // The kernel announces no new listener, so its table is looked at, each millisecond or when the server ends.
    while !listens(number, server.port).map_err(Stop::failed)? {
        let ended = wait_for_end(pidfd.as_fd(), Duration::from_millis(1)).map_err(Stop::failed)?;
        if ended || Instant::now() > deadline {
            let why = if ended { "it ended" } else { "it does not" };
            return Err(Stop::Failed(format!("wait for {} to listen on port {}: {why}", server.argv[0], server.port)));
        }
    }
    Ok(running)
}

/// Whether a program of this name is in `PATH`.
pub(super) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| fs::metadata(folder.join(program)).is_ok_and(|file| file.is_file()))
}
