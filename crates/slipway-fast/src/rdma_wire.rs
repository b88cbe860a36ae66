//! Commands and answers of RDMA's control interfaces, as programs write and read them: parsed from a copy, each length checked.
//!
//! Layouts are those of `include/uapi/rdma/rdma_user_cm.h`, `ib_user_verbs.h` and `rdma_user_ioctl_cmds.h`. All numbers are in the
//! processor's order, but for addresses and ports.

use std::net::SocketAddr;

use crate::address;

mod answers;
mod command;
mod control;

pub use answers::guid;
pub(crate) use answers::{Attributes, Event, Kind, Route, USUAL_KEY};
pub(crate) use command::{COMMAND, Command, LONGEST_COMMAND};
pub(crate) use control::{Control, HEADER, LONGEST_CONTROL};
pub(crate) use slipway_verbs::management::{
    IN_LOOKED_UP, IN_LOOKUP, IN_REJECTION, IN_REPLY, IN_REQUEST, Line, Message, Offer, Step,
};

/// Whether bytes are a command of libibverbs or librdmacm, which any program in a node may write.
#[must_use]
pub fn is_command(bytes: &[u8]) -> bool {
    Control::read(bytes).is_some() || Command::read(bytes).is_some()
}

/// Whether bytes are a message about a connection, which another router writes.
#[must_use]
pub fn is_message(bytes: &[u8]) -> bool {
    Message::read(bytes).is_some()
}

/// `struct sockaddr_in6`, with room for either family.
fn written(address: SocketAddr) -> [u8; 28] {
    let mut bytes = [0; 28];
    let own = address::write(address);
    let length = own.len().min(bytes.len());
    bytes[..length].copy_from_slice(&own[..length]);
    bytes
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}
