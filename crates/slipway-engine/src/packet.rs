//! Bytes over a local socket, with at most one descriptor beside them (`unix(7)`, `SCM_RIGHTS`). Messages stay whole where the
//! socket keeps them apart (`SOCK_SEQPACKET`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Sends a message, and a copy of a descriptor beside it. Gives how many bytes the socket took: all, where it keeps messages apart.
///
/// # Errors
/// As `sendmsg(2)`.
pub(crate) fn send(socket: impl AsFd, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::MSGSIZE.into());
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(count) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives at most `longest` bytes, and what is left of a longer message is lost. Nothing at all is the end: the other side
/// is closed.
///
/// # Errors
/// As `recvmsg(2)`.
pub(crate) fn receive(socket: impl AsFd, longest: usize) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut message = vec![0; longest];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        let mut parts = [IoSliceMut::new(&mut message)];
        match recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?.bytes,
        }
    };
    message.truncate(length);
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((message, descriptor))
}
