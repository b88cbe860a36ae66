//! What a child says to its parent before it executes: one packet each over a socket pair that the exec closes.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};
use slipway_sys::notify::Listener;

use super::ExecError;
use crate::packet;

/// Longest packet, bytes: room for a path and a reason.
const LONGEST: usize = 8192;

/// What the parent hears.
pub(super) enum Message {
    /// The outside of the program's terminal.
    Terminal(OwnedFd),
    /// Calls of the program and of all that it starts are heard here. The child waits until it may go on.
    Listener(OwnedFd),
    /// The program will not run.
    Failed(Failure),
}

/// Why the program will not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    NotFound(String),
    NotExecutable(String),
    /// What was being done, and why it failed.
    Start(String, String),
}

impl Failure {
    pub(super) fn explain(self, node: &str, program: &str) -> ExecError {
        let (node, program) = (node.to_owned(), program.to_owned());
        match self {
            Self::NotFound(detail) => ExecError::NotFound { program, node, detail },
            Self::NotExecutable(detail) => ExecError::NotExecutable { program, node, detail },
            Self::Start(doing, detail) => ExecError::Start { doing, node, detail },
        }
    }

    fn encode(&self) -> Vec<u8> {
        let (kind, first, second) = match self {
            Self::NotFound(detail) => (b'n', detail.as_str(), ""),
            Self::NotExecutable(detail) => (b'x', detail.as_str(), ""),
            Self::Start(doing, detail) => (b's', doing.as_str(), detail.as_str()),
        };
        let mut packet = [&[kind], first.as_bytes(), b"\0", second.as_bytes()].concat();
        packet.truncate(LONGEST);
        packet
    }

    fn decode(packet: &[u8]) -> Option<Self> {
        let (kind, text) = packet.split_first()?;
        let text = String::from_utf8_lossy(text);
        let (first, second) = text.split_once('\0').unwrap_or((&text, ""));
        match kind {
            b'n' => Some(Self::NotFound(first.to_owned())),
            b'x' => Some(Self::NotExecutable(first.to_owned())),
            b's' => Some(Self::Start(first.to_owned(), second.to_owned())),
            _ => None,
        }
    }
}

/// What comes with a descriptor.
const TERMINAL: &[u8] = b"t";
const LISTENER: &[u8] = b"l";
/// What a child that sent its listener waits for.
const GO_ON: &[u8] = b"g";

pub(super) fn send_terminal(link: &OwnedFd, terminal: BorrowedFd<'_>) -> io::Result<()> {
    packet::send(link, TERMINAL, Some(terminal)).map(drop)
}

/// Sends the listener and waits until somebody listens: before that, nothing that the filter traps may be called.
pub(super) fn send_listener(link: &OwnedFd, listener: &Listener) -> io::Result<()> {
    packet::send(link, LISTENER, Some(listener.as_fd()))?;
    let mut answer = [0; 1];
    loop {
        match rustix::net::recv(link, &mut answer, RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            Ok((_, length)) if answer[..length] == *GO_ON => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::BrokenPipe.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Somebody listens.
pub(super) fn let_go_on(link: &OwnedFd) -> io::Result<()> {
    packet::send(link, GO_ON, None).map(drop)
}

pub(super) fn send_failure(link: &OwnedFd, failure: &Failure) {
    // A parent that is gone needs no reason.
    let _ = rustix::net::send(link, &failure.encode(), SendFlags::NOSIGNAL);
}

/// The next message; `None` when the other end is closed.
pub(super) fn receive(link: &OwnedFd) -> io::Result<Option<Message>> {
    let (packet, descriptor) = packet::receive(link, LONGEST)?;
    Ok(match (&packet[..], descriptor) {
        ([], _) => None,
        (TERMINAL, Some(terminal)) => Some(Message::Terminal(terminal)),
        (LISTENER, Some(listener)) => Some(Message::Listener(listener)),
        (failure, _) => Some(Message::Failed(Failure::decode(failure).ok_or(io::ErrorKind::InvalidData)?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_survive_the_way() {
        for failure in [
            Failure::NotFound("x".to_owned()),
            Failure::NotExecutable(String::new()),
            Failure::Start("a".to_owned(), "b: c".to_owned()),
        ] {
            assert_eq!(Failure::decode(&failure.encode()), Some(failure));
        }
        assert_eq!(Failure::decode(b""), None);
        assert_eq!(Failure::decode(b"?"), None);
    }
}
