//! The launch agent: Slipway in the part of `ssh`, inside a node. An MPI launcher calls it as `agent [OPTIONS] HOST COMMAND`;
//! it hands the command and its standard input and output to the launch service of its job and exits as the command does.

mod arguments;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::Signal as Number;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use slipway_sys::signals::Taken;

use super::protocol::{Received, Reply, Request, receive, send};
use super::service::VARIABLE;
use arguments::Call;

/// As `ssh(1)`: what failed is the connection, not the command.
const NO_CONNECTION: u8 = 255;

/// Runs the agent with a command line like ssh's, program name first, and returns the exit code.
#[must_use]
pub fn agent_main(argv: &[String]) -> u8 {
    match call(argv) {
        Ok(code) => code,
        Err(account) => {
            eprintln!("slipway agent: {account}");
            NO_CONNECTION
        }
    }
}

fn call(argv: &[String]) -> Result<u8, String> {
    let Call { host, command, no_input } = arguments::parse(argv)?;
    let path = std::env::var(VARIABLE).map_err(|_| {
        format!("{VARIABLE} is not set\nHint: only programs that `slipway run --mpi` starts can launch others")
    })?;
    let says = |doing: &'static str| move |error: io::Error| format!("{doing}: {error}");
    // Taken before the command can run, so that none is lost.
    let passed_on =
        [Number::SIGINT, Number::SIGTERM, Number::SIGHUP, Number::SIGQUIT, Number::SIGUSR1, Number::SIGUSR2];
    let signals = Taken::new(&passed_on).map_err(says("take signals"))?;
    let socket = open(&path).map_err(|error| {
        format!("reach the job's launch service at {path}: {error}\nHint: its `slipway run` has ended")
    })?;
    let null = std::fs::File::open("/dev/null").map_err(says("open /dev/null"))?;
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    let input = if no_input { null.as_fd() } else { input.as_fd() };
    send(socket.as_fd(), &Request::Launch { host, command }, &[input, output.as_fd(), error.as_fd()])
        .map_err(says("send the command"))?;
    match attend(&socket, &signals).map_err(says("wait for the command"))? {
        Some(Reply::Exited(code)) => Ok(code),
        Some(Reply::Refused { code, reason }) => {
            eprintln!("slipway agent: {reason}");
            Ok(code)
        }
        None => Err("the launch service ended before the command".to_owned()),
    }
}

fn open(path: &str) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn attend(socket: &OwnedFd, signals: &Taken) -> io::Result<Option<Reply>> {
    loop {
        let mut on = [PollFd::new(socket, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        match poll(&mut on, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let answered = !on[0].revents().is_empty();
        while let Some(signal) = signals.take()? {
            send(socket.as_fd(), &Request::Signal(signal as i32), &[])?;
        }
        if answered {
            match receive(socket)? {
                Received::Message(reply, _) => return Ok(Some(reply)),
                Received::Nothing => {}
                Received::Closed | Received::Nonsense => return Ok(None),
            }
        }
    }
}
