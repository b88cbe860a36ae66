//! The machine's sockets, seen and cut from outside (`sock_diag(7)`): those of the calling thread's network namespace.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NlasIterator};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::netlink::{NLMSG_ERROR, RECEIVE_BYTES, receive};

pub use tcp::{TcpSocket, destroy_tcp, stored_tcp_sockets, tcp_sockets};
pub use tcp_info::TcpInfo;
pub use unix::{UnixSocket, unix_sockets};

mod tcp;
mod tcp_info;
mod unix;

// `include/uapi/linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
const DESTROY: u16 = 21;

const NLMSG_DONE: u16 = 3;

/// Of the header of every message (`struct nlmsghdr`).
const HEADER: usize = 16;

/// A request, and whether all that fits it is wanted or one socket.
fn ask(kind: u16, all: bool, request: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    // With an acknowledgement, one socket's answer has an end as a list's has.
    let flags = NLM_F_REQUEST | if all { NLM_F_DUMP } else { NLM_F_ACK };
    let length = u32::try_from(HEADER + request.len()).map_err(io::Error::other)?;
    let mut message = Vec::with_capacity(HEADER + request.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number and port: there is one question, and the kernel knows who asks.
    message.extend([0; 8]);
    message.extend(request);
    socket.send(&message, 0)?;

    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut result = Ok(());
    receive(&socket, &mut buffer, |message| {
        match message.message_type() {
            // Both begin with an error number, negative or zero; where nothing is left to say, the end may be without.
            NLMSG_ERROR | NLMSG_DONE => {
                let code = message.payload().first_chunk().copied().map_or(0, i32::from_ne_bytes);
                if code < 0 {
                    result = Err(io::Error::from_raw_os_error(-code));
                }
                return Ok(true);
            }
            BY_FAMILY => each(message.payload()),
            _ => {}
        }
        Ok(false)
    })
    .map_err(io::Error::other)?;
    result
}

/// An attribute, as requests have them (`struct nlattr`).
fn write_attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    // No value here is near so long.
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of the first attribute of this kind.
fn attribute(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let mut attributes = NlasIterator::new(attributes).filter_map(Result::ok);
    attributes.find(|attribute| attribute.kind() == kind).map(|attribute| attribute.value().to_vec())
}

/// The number at this place of a message.
fn number(message: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*message.get(at..)?.first_chunk()?))
}

/// A cookie, of which messages have the low half first.
fn cookie(message: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(number(message, at)?) | u64::from(number(message, at + 4)?) << 32)
}
