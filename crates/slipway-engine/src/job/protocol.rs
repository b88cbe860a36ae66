//! What the launch agent and the launch service say to each other, a packet each (`unix(7)`, `SOCK_SEQPACKET`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::protocol::Hello;

/// Longest packet, bytes. A shell's command line is at most 128 KiB (`execve(2)`, `MAX_ARG_STRLEN`).
const LONGEST: usize = 160 * 1024;

/// The version of all messages but [`Request::Hello`] and [`Reply::Refused`], which keep their form so that versions can
/// refuse each other. A change of the others' form takes the next number.
pub(super) const VERSION: u32 = 1;

/// From the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// The first message: the agent's version.
    Hello(Hello),
    /// Execute a command line of `sh(1)`. It comes with standard input, output and error.
    Launch {
        /// A node's name, or one of its addresses.
        host: String,
        /// For `sh -c`.
        command: String,
    },
    /// Pass a signal on, by number.
    Signal(i32),
}

/// From the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Reply {
    /// The command has ended.
    Exited(u8),
    /// It was not executed.
    Refused {
        /// As a shell would exit.
        code: u8,
        /// Why.
        reason: String,
    },
}

/// Sends one packet with its descriptors.
pub(super) fn send(socket: BorrowedFd<'_>, message: &impl Serialize, with: &[BorrowedFd<'_>]) -> io::Result<()> {
    let packet = serde_json::to_vec(message)?;
    if packet.len() > LONGEST {
        return Err(io::Error::other(format!("the command is longer than {LONGEST} bytes")));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(with));
    }
    sendmsg(socket, &[IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What one receive brought.
#[derive(Debug)]
pub(super) enum Received<T> {
    Message(T, Vec<OwnedFd>),
    /// The other side is gone.
    Closed,
    /// Nothing yet, on a socket that does not block.
    Nothing,
    /// Not a packet of this protocol. Descriptors that came with it are closed.
    Nonsense,
}

/// Receives one packet: first copied whole, then looked at.
pub(super) fn receive<T: for<'a> Deserialize<'a>>(socket: impl AsFd) -> io::Result<Received<T>> {
    let mut packet = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = {
        let mut parts = [IoSliceMut::new(&mut packet)];
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
            Err(rustix::io::Errno::CONNRESET) => return Ok(Received::Closed),
            Err(error) => return Err(error.into()),
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Ok(Received::Closed);
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Ok(Received::Nonsense);
    }
    match serde_json::from_slice(&packet[..received.bytes]) {
        Ok(message) => Ok(Received::Message(message, descriptors)),
        Err(_) => Ok(Received::Nonsense),
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair")
    }

    #[test]
    fn a_request_and_its_descriptors_arrive() {
        let (ours, theirs) = pair();
        let request = Request::Launch { host: "n2".to_owned(), command: "x".repeat(128 * 1024) };
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        send(ours.as_fd(), &request, &[null.as_fd(); 3]).expect("sent");
        match receive(&theirs).expect("received") {
            Received::Message(got, descriptors) => {
                let got: Request = got;
                assert_eq!(got, request);
                assert_eq!(descriptors.len(), 3);
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(receive::<Request>(&theirs).expect("looked"), Received::Nothing));
        drop(ours);
        assert!(matches!(receive::<Request>(&theirs).expect("looked"), Received::Closed));
    }

    #[test]
    fn whatever_else_comes_is_nonsense() {
        for bytes in [&b"{}"[..], b"{\"launch\":{\"host\":1}}", b"\xff\0", b"[[[[", &vec![b'['; LONGEST + 1]] {
            let (ours, theirs) = pair();
            if rustix::net::send(&ours, bytes, SendFlags::NOSIGNAL).is_ok() {
                assert!(matches!(receive::<Request>(&theirs).expect("looked"), Received::Nonsense));
            }
        }
    }
}
