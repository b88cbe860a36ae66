//! What a child says to its parent before it executes: one packet of JSON each over a socket pair that the exec closes.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};
use slipway_sys::notify::Listener;

use super::error::ExecError;
use crate::packet;

/// Longest packet, bytes: room for a path and a reason, however many of their characters JSON has to escape.
const LONGEST: usize = 64 * 1024;
/// Longest text of a failure, characters: a program's name may have 128 KiB.
const LONGEST_TEXT: usize = 4096;

/// What the parent hears.
pub(super) enum Message {
    /// The outside of the program's terminal.
    Terminal(OwnedFd),
    /// Calls of the program and of all that it starts are heard here. The child waits until it may go on.
    Listener(OwnedFd),
    /// The program will not run.
    Failed(Failure),
}

/// The same on its way, beside its descriptor.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Packet {
    Terminal,
    Listener,
    Failed(Failure),
}

/// Why the program will not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

    /// The same, its texts short enough for a packet.
    fn short(&self) -> Self {
        let short = |text: &String| text.chars().take(LONGEST_TEXT).collect();
        match self {
            Self::NotFound(detail) => Self::NotFound(short(detail)),
            Self::NotExecutable(detail) => Self::NotExecutable(short(detail)),
            Self::Start(doing, detail) => Self::Start(short(doing), short(detail)),
        }
    }
}

/// What a child that sent its listener waits for.
const GO_ON: &[u8] = b"g";

fn send(link: &OwnedFd, packet: &Packet, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    packet::send(link, &serde_json::to_vec(packet)?, descriptor).map(drop)
}

pub(super) fn send_terminal(link: &OwnedFd, terminal: BorrowedFd<'_>) -> io::Result<()> {
    send(link, &Packet::Terminal, Some(terminal))
}

/// Sends the listener and waits until somebody listens: before that, nothing that the filter traps may be called.
pub(super) fn send_listener(link: &OwnedFd, listener: &Listener) -> io::Result<()> {
    send(link, &Packet::Listener, Some(listener.as_fd()))?;
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
    let _ = send(link, &Packet::Failed(failure.short()), None);
}

/// The next message; `None` when the other end is closed.
pub(super) fn receive(link: &OwnedFd) -> io::Result<Option<Message>> {
    let (packet, descriptor) = packet::receive(link, LONGEST)?;
    if packet.is_empty() {
        return Ok(None);
    }
    Ok(Some(match (serde_json::from_slice(&packet)?, descriptor) {
        (Packet::Terminal, Some(terminal)) => Message::Terminal(terminal),
        (Packet::Listener, Some(listener)) => Message::Listener(listener),
        (Packet::Failed(failure), _) => Message::Failed(failure),
        (Packet::Terminal | Packet::Listener, None) => return Err(io::ErrorKind::InvalidData.into()),
    }))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn failures_survive_the_way() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair");
        let hear = || receive(&ours).expect("heard");
        for failure in [
            Failure::NotFound("x".to_owned()),
            Failure::NotExecutable(String::new()),
            Failure::Start("a".to_owned(), "b: \u{1}c".to_owned()),
        ] {
            send_failure(&theirs, &failure);
            assert!(matches!(hear(), Some(Message::Failed(heard)) if heard == failure));
        }
        send_failure(&theirs, &Failure::Start("\u{1}".repeat(1 << 17), "\u{1}".repeat(1 << 17)));
        assert!(matches!(hear(), Some(Message::Failed(Failure::Start(doing, _))) if doing.len() == LONGEST_TEXT));
        packet::send(&theirs, b"?", None).expect("sent");
        assert!(receive(&ours).is_err());
        drop(theirs);
        assert!(hear().is_none());
    }
}
