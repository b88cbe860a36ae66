//! Frames: the length of a message in four bytes, big-endian, then the message.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::error::{Code, Error};
use crate::packet;

/// Bytes of the length.
const PREFIX: usize = 4;
/// Bytes received at once.
const CHUNK: usize = 64 * 1024;

/// Cuts a stream of bytes into frames. It holds what has arrived, and never more than a frame's limit and one piece.
#[derive(Debug, Default)]
pub struct Frames {
    arrived: Vec<u8>,
}

impl Frames {
    /// Adds bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.arrived.extend_from_slice(bytes);
    }

    /// Takes the next message, once all of it has arrived.
    ///
    /// # Errors
    /// [`Code::TooLarge`] where its length is above `limit`, bytes, as soon as that is known.
    pub fn take(&mut self, limit: usize) -> Result<Option<Vec<u8>>, Error> {
        let Some((prefix, rest)) = self.arrived.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > limit {
            return Err(too_large(length, limit));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let rest = self.arrived.split_off(PREFIX + length);
        let mut message = std::mem::replace(&mut self.arrived, rest);
        message.drain(..PREFIX);
        Ok(Some(message))
    }

    /// True where bytes are left that no frame has taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Receives what there is. `false`: the peer sends no more.
    pub(super) fn receive(&mut self, socket: impl AsFd, descriptors: &mut Vec<OwnedFd>) -> io::Result<bool> {
        let (bytes, descriptor) = packet::receive(socket, CHUNK)?;
        self.push(&bytes);
        descriptors.extend(descriptor);
        Ok(!bytes.is_empty())
    }
}

/// Puts messages into frames.
///
/// # Errors
/// [`Code::TooLarge`] where one is above its limit, bytes.
pub(super) fn framed(messages: &[(&[u8], usize)]) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(messages.iter().map(|(message, _)| PREFIX + message.len()).sum());
    for (message, limit) in messages {
        let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= *limit);
        bytes.extend(length.ok_or_else(|| too_large(message.len(), *limit))?.to_be_bytes());
        bytes.extend_from_slice(message);
    }
    Ok(bytes)
}

fn too_large(length: usize, limit: usize) -> Error {
    Error::new(Code::TooLarge, format!("exchange a message of {length} bytes: the protocol's limit is {limit}"))
}

/// Bytes on their way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// Travels beside the first byte.
    descriptor: Option<OwnedFd>,
}

impl Outgoing {
    pub(super) fn new(bytes: Vec<u8>, descriptor: Option<OwnedFd>) -> Self {
        Self { bytes, sent: 0, descriptor }
    }

    /// Sends as much as the socket takes. `true`: that was all.
    pub(super) fn advance(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        while self.sent < self.bytes.len() {
            match packet::send(socket, &self.bytes[self.sent..], self.descriptor.as_ref().map(AsFd::as_fd)) {
                Ok(count) => {
                    self.sent += count;
                    self.descriptor = None;
                }
                Err(error) if error.kind() == Errno::WOULDBLOCK.kind() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
