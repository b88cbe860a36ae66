//! What a child says to its parent before it executes: one packet each over a socket pair that the exec closes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::ExecError;

/// Longest packet, bytes: room for a path and a reason.
const LONGEST: usize = 8192;

/// What the parent hears.
pub(super) enum Message {
    /// The outside of the program's terminal.
    Terminal(OwnedFd),
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

pub(super) fn send_terminal(link: &OwnedFd, terminal: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let descriptors = [terminal];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(link, &[IoSlice::new(b"t")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

pub(super) fn send_failure(link: &OwnedFd, failure: &Failure) {
    // A parent that is gone needs no reason.
    let _ = rustix::net::send(link, &failure.encode(), SendFlags::NOSIGNAL);
}

/// The next message; `None` when the other end is closed.
pub(super) fn receive(link: &OwnedFd) -> io::Result<Option<Message>> {
    let mut packet = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        let mut parts = [IoSliceMut::new(&mut packet)];
        match recvmsg(link.as_fd(), &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?.bytes,
        }
    };
    if length == 0 {
        return Ok(None);
    }
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if let Some(terminal) = descriptor {
        return Ok(Some(Message::Terminal(terminal)));
    }
    let failure = Failure::decode(&packet[..length]);
    failure.map(|failure| Some(Message::Failed(failure))).ok_or_else(|| io::ErrorKind::InvalidData.into())
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
