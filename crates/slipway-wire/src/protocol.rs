//! The protocol between the anchor and the wire: one message, one answer, JSON, over a socket pair that keeps messages
//! whole. A tap's descriptor travels beside the message that attaches it (`unix(7)`, `SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::spec::{Peer, Spec};
use crate::stats::PortStats;

/// Longest message either way, bytes. Below what a socket's buffer takes by default (`net.core.wmem_default`).
pub(crate) const LONGEST: usize = 128 * 1024;
/// Peers in a message: few enough that frames do not wait for it to be read.
pub(crate) const PEERS: usize = 64;
/// Ports in an answer, for the same reason.
pub(crate) const PORTS: usize = 32;

/// A request to the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Take over the descriptor that comes along.
    Attach { port: u32 },
    /// The port's conditions, as far as they fit; peers follow where `more`, and only then anything changes.
    Set { port: u32, spec: Box<Spec>, more: bool },
    /// Peers of the conditions begun.
    Peers { port: u32, peers: Vec<Peer>, more: bool },
    /// Close the port.
    Detach { port: u32 },
    /// The counters of [`PORTS`] ports, beginning with this one.
    Stats { from: u32 },
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done,
    /// Counters, and the port to ask for next, if there are more.
    Stats(Vec<PortStats>, Option<u32>),
    Failed(String),
}

/// Sends a message whole.
///
/// # Errors
/// As `sendmsg(2)`; `EMSGSIZE` for one longer than [`LONGEST`].
pub(crate) fn say(socket: impl AsFd, message: &impl Serialize, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > LONGEST {
        return Err(Errno::MSGSIZE.into());
    }
    let with: Vec<BorrowedFd<'_>> = with.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&with)) {
        return Err(Errno::MSGSIZE.into());
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives a message whole, with the descriptor that came along. `None` where the other side is gone.
///
/// # Errors
/// As `recvmsg(2)`, `WouldBlock` among them; `InvalidData` for what is no message.
pub(crate) fn hear<T: for<'de> Deserialize<'de>>(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let descriptor = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .last();
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message longer than any may be"));
    }
    Ok(Some((serde_json::from_slice(&buffer[..received.bytes])?, descriptor)))
}
