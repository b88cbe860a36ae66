//! The launch agent: Slipway in the part of `ssh`, inside a node. An MPI launcher calls it as `agent [OPTIONS] HOST COMMAND`;
//! it hands the command and its standard input and output to the launch service of its job and exits as the command does.

mod arguments;
mod error;
pub(super) mod own;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::Signal as Number;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use slipway_sys::signals::Taken;

use super::protocol::{Received, Reply, Request, VERSION, receive, send};
use super::service::VARIABLE;
use crate::exec::pump::{self, End, Input, Output, Pumps};
use crate::protocol::Hello;
use arguments::Call;
use error::AgentError;

/// Runs the agent with a command line like ssh's, program name first, and returns the exit code.
#[must_use]
pub fn agent_main(argv: &[String]) -> u8 {
    if let [_, option, words @ ..] = argv
        && option == own::OPTION
    {
        return own::execute(words);
    }
    match call(argv) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("slipway agent: {error}");
            error.code()
        }
    }
}

fn call(argv: &[String]) -> Result<u8, AgentError> {
    let Call { host, command, no_input } = arguments::parse(argv)?;
    let path = std::env::var(VARIABLE).map_err(|_| AgentError::NoJob)?;
    // Taken before the command can run, so that none is lost.
    let passed_on =
        [Number::SIGINT, Number::SIGTERM, Number::SIGHUP, Number::SIGQUIT, Number::SIGUSR1, Number::SIGUSR2];
    let signals = Taken::new(&passed_on).map_err(AgentError::system("take signals"))?;
    let socket = open(&path).map_err(|source| AgentError::Unreachable { path, source })?;
    let mut pumps = launch(&socket, host, command, no_input)?;
    match attend(&socket, &signals, &mut pumps).map_err(AgentError::system("wait for the command"))? {
        Some(Reply::Exited(code)) => Ok(code),
        Some(Reply::Refused { code, reason }) => Err(AgentError::Refused { code, reason }),
        None => Err(AgentError::Ended),
    }
}

fn open(path: &str) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Sends the command, with pipes for its input and output: those of this process are the launcher's, which the other node
/// has no business with.
fn launch(socket: &OwnedFd, host: String, command: String, no_input: bool) -> Result<Pumps<'static>, AgentError> {
    let says = AgentError::system;
    let pipes =
        || -> io::Result<_> { Ok((pump::pipe_to_program()?, pump::pipe_from_program()?, pump::pipe_from_program()?)) };
    let ((input, to_input), (output, from_output), (error, from_error)) = pipes().map_err(says("open pipes"))?;
    let greeting = Request::Hello(Hello::of(VERSION));
    send(socket.as_fd(), &greeting, &[]).map_err(says("send its version"))?;
    send(socket.as_fd(), &Request::Launch { host, command }, &[input.as_fd(), output.as_fd(), error.as_fd()])
        .map_err(says("send the command"))?;
    let ours = || -> io::Result<Pumps<'static>> {
        let output = Output::new(End::Pipe(from_output), rustix::stdio::stdout())?;
        let error = Output::new(End::Pipe(from_error), rustix::stdio::stderr())?;
        let input = (!no_input).then(|| Input::new(rustix::stdio::stdin(), End::Pipe(to_input), None)).transpose()?;
        Ok(Pumps { input, outputs: vec![output, error] })
    };
    ours().map_err(says("pass input and output on"))
}

/// Carries bytes and signals until the command has ended, and all that it wrote is written.
fn attend(socket: &OwnedFd, signals: &Taken, pumps: &mut Pumps<'_>) -> io::Result<Option<Reply>> {
    let mut last = None;
    while !(last.is_some() && pumps.is_dry()) {
        let [answered, signalled] =
            pumps.turn([if last.is_some() { signals.as_fd() } else { socket.as_fd() }, signals.as_fd()])?;
        if signalled {
            while let Some(signal) = signals.take()? {
                if last.is_some() {
                    return Ok(last);
                }
                send(socket.as_fd(), &Request::Signal(signal as i32), &[])?;
            }
        }
        if answered && last.is_none() {
            match receive(socket)? {
                Received::Message(reply, _) => last = Some(reply),
                Received::Nothing => continue,
                Received::Closed | Received::Nonsense => return Ok(None),
            }
            pumps.finish();
        }
    }
    Ok(last)
}
