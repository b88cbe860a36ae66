//! The asking side. It waits for an answer as long as the server lives: starting a thousand nodes takes its time.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::DeserializeOwned;

use super::error::{Code, Error};
use super::frame::{Frames, Outgoing, framed};
use super::hello::{self, Hello};
use super::operation::{Descriptor, Operation};
use super::{LARGEST_REPLY, LARGEST_REQUEST, Reply, now, parse};

/// A request that was not answered with success.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The server refused or failed.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The server cannot be reached, or ended before it answered.
    #[error(transparent)]
    Unreachable(#[from] io::Error),
}

/// A request that was sent. Its descriptor is readable once the answer arrives.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    socket: OwnedFd,
    /// When it was sent, as [`now`] says.
    pub(crate) since: u64,
    reply: PhantomData<fn() -> T>,
}

/// Sends a request and waits for the answer.
pub(crate) fn ask<O: Operation>(path: &Path, operation: O) -> Result<O::Reply, CallError> {
    Ok(begin(path, operation)?.wait()?.outcome?)
}

/// Sends a request whose answer comes with a descriptor, and waits for both.
pub(crate) fn ask_for_descriptor<O: Operation<Reply = Descriptor>>(
    path: &Path,
    operation: O,
) -> Result<OwnedFd, CallError> {
    let (reply, descriptor) = begin(path, operation)?.receive()?;
    reply.outcome?;
    Ok(descriptor.ok_or_else(|| Error::new(Code::Malformed, "read an answer: its descriptor is missing"))?)
}

/// Sends a request with a copy of a descriptor, and waits for the answer.
pub(crate) fn give_descriptor<O: Operation>(
    path: &Path,
    operation: O,
    descriptor: OwnedFd,
) -> Result<O::Reply, CallError> {
    Ok(send(path, operation, Some(descriptor))?.wait()?.outcome?)
}

/// Sends a request.
pub(crate) fn begin<O: Operation>(path: &Path, operation: O) -> Result<Pending<O::Reply>, CallError> {
    send(path, operation, None)
}

fn send<O: Operation>(path: &Path, operation: O, descriptor: Option<OwnedFd>) -> Result<Pending<O::Reply>, CallError> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(io::Error::from)?;
    connect(&socket, &SocketAddrUnix::new(path).map_err(io::Error::from)?).map_err(|error| match error {
        // Before there were versions, the socket was of another type.
        Errno::PROTOTYPE => CallError::Refused(Hello::own().refuse("an older slipway")),
        other => CallError::Unreachable(other.into()),
    })?;
    let hello = serde_json::to_vec(&Hello::own()).map_err(io::Error::from)?;
    let request: O::Service = operation.into();
    let request = serde_json::to_vec(&request).map_err(io::Error::from)?;
    let mut outgoing = Outgoing::new(framed(&[(&hello, hello::LARGEST), (&request, LARGEST_REQUEST)])?, descriptor);
    match outgoing.advance(socket.as_fd()) {
        // A server that refuses does not read to the end, and says why.
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Pending { socket, since: now(), reply: PhantomData })
}

impl<T: DeserializeOwned> Pending<T> {
    /// Waits for the answer.
    pub(crate) fn wait(self) -> Result<Reply<T>, CallError> {
        Ok(self.receive()?.0)
    }

    fn receive(self) -> Result<(Reply<T>, Option<OwnedFd>), CallError> {
        let (mut frames, mut descriptors) = (Frames::default(), Vec::new());
        let mut next = |limit: usize| loop {
            if let Some(message) = frames.take(limit)? {
                return Ok::<_, CallError>(message);
            }
            if !frames.receive(&self.socket, &mut descriptors)? {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before it answered").into());
            }
        };
        parse::<Hello>(&next(hello::LARGEST)?)?.check()?;
        let reply = parse(&next(LARGEST_REPLY)?)?;
        Ok((reply, descriptors.pop()))
    }
}

impl<T> AsFd for Pending<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
