//! Commands of librdmacm.

use std::net::SocketAddr;

use super::{u16_at, u32_at, u64_at};
use crate::address::Address;
use slipway_verbs::management::{OFFER, Offer};

/// Bytes of `struct rdma_ucm_cmd_hdr`.
pub(crate) const COMMAND: usize = 8;
/// Longest command of connection management, in bytes with its header: `struct rdma_ucm_join_mcast` or an accept.
pub(crate) const LONGEST_COMMAND: usize = 512;
/// A command of librdmacm to its device. `id` is a connection identifier by the number that it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Makes an identifier, which the program knows as `uid`. Its number goes to `answer_at`.
    CreateId { uid: u64, answer_at: u64, port_space: u16 },
    /// Ends an identifier. The number of events that it has reported goes to `answer_at`.
    DestroyId { id: u32, answer_at: u64 },
    /// Gives it an address.
    Bind { id: u32, address: Option<SocketAddr> },
    /// Looks for the way to an address, from one of its own or any.
    ResolveAddress { id: u32, from: Option<SocketAddr>, to: Option<SocketAddr> },
    /// Looks for the route to it.
    ResolveRoute { id: u32 },
    /// Tells of both addresses and the route.
    QueryRoute { id: u32, answer_at: u64 },
    /// Asks for a connection.
    Connect { id: u32, offer: Offer },
    /// Waits for connections.
    Listen { id: u32, backlog: u32 },
    /// Accepts a connection, or acknowledges its acceptance.
    Accept { id: u32, uid: u64, offer: Offer },
    /// Rejects a connection.
    Reject { id: u32, private: Vec<u8> },
    /// Ends a connection.
    Disconnect { id: u32 },
    /// Asks for the attributes of its queue pair in a state.
    InitAttributes { id: u32, state: u32, answer_at: u64 },
    /// Takes the next event, which goes to `answer_at`.
    GetEvent { answer_at: u64, room: usize },
    /// Moves an identifier here from another channel, and tells as [`DestroyId`](Self::DestroyId).
    Migrate { id: u32, from: i32, answer_at: u64 },
    /// Joins a group of datagrams, which the program knows as `uid`. The number of its membership goes to `answer_at`.
    JoinGroup { id: u32, uid: u64, group: Option<SocketAddr>, answer_at: u64 },
    /// Leaves a group, by the number of the membership, and tells as [`DestroyId`](Self::DestroyId).
    LeaveGroup { id: u32, answer_at: u64 },
    /// Settings and news that change nothing here.
    Nothing,
    /// Commands that are not offered.
    Unknown,
}

impl Command {
    /// The address that the answer goes to.
    pub(crate) fn answer_at(&self) -> Option<u64> {
        match self {
            Self::CreateId { answer_at, .. }
            | Self::DestroyId { answer_at, .. }
            | Self::QueryRoute { answer_at, .. }
            | Self::InitAttributes { answer_at, .. }
            | Self::Migrate { answer_at, .. }
            | Self::JoinGroup { answer_at, .. }
            | Self::LeaveGroup { answer_at, .. } => Some(*answer_at),
            _ => None,
        }
    }

    /// Parses a command with its header. `None` for what is none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (number, length, room) = (u32_at(bytes, 0)?, u16_at(bytes, 4)?, u16_at(bytes, 6)?);
        let body = bytes.get(COMMAND..COMMAND + usize::from(length))?;
        let at = |at| u32_at(body, at);
        Some(match number {
            0 => Self::CreateId { uid: u64_at(body, 0)?, answer_at: u64_at(body, 8)?, port_space: u16_at(body, 16)? },
            1 => Self::DestroyId { answer_at: u64_at(body, 0)?, id: at(8)? },
            // Its first member is unused.
            2 => Self::Bind { address: ip(body.get(8..36)?), id: at(36)? },
            3 => Self::ResolveAddress { from: ip(body.get(..28)?), to: ip(body.get(28..56)?), id: at(56)? },
            4 => Self::ResolveRoute { id: at(0)? },
            5 => Self::QueryRoute { answer_at: u64_at(body, 0)?, id: at(8)? },
            6 => Self::Connect { offer: Offer::read(body.get(..OFFER)?)?, id: at(OFFER)? },
            7 => Self::Listen { id: at(0)?, backlog: at(4)? },
            8 => Self::Accept { uid: u64_at(body, 0)?, offer: Offer::read(body.get(8..280)?)?, id: at(280)? },
            9 => {
                let length = usize::from(*body.get(4)?);
                Self::Reject { id: at(0)?, private: body.get(8..8 + length)?.to_vec() }
            }
            10 => Self::Disconnect { id: at(0)? },
            11 => Self::InitAttributes { answer_at: u64_at(body, 0)?, id: at(8)?, state: at(12)? },
            12 => Self::GetEvent { answer_at: u64_at(body, 0)?, room: usize::from(room) },
            // Options, and news of a first message.
            14 | 15 => Self::Nothing,
            16 => {
                let (answer_at, uid) = (u64_at(body, 0)?, u64_at(body, 8)?);
                Self::JoinGroup { id: at(44)?, uid, group: ip(body.get(16..44)?), answer_at }
            }
            17 => Self::LeaveGroup { answer_at: u64_at(body, 0)?, id: at(8)? },
            18 => Self::Migrate { answer_at: u64_at(body, 0)?, id: at(8)?, from: at(12)?.cast_signed() },
            22 => {
                let (answer_at, uid) = (u64_at(body, 0)?, u64_at(body, 8)?);
                // `struct __kernel_sockaddr_storage`; an address of IP is in its first bytes.
                Self::JoinGroup { id: at(16)?, uid, group: ip(body.get(24..152)?.get(..28)?), answer_at }
            }
            // QUERY, BIND and RESOLVE_ADDR are for addresses of InfiniBand too: librdmacm takes the commands for IP where it gets no
            // identifier in InfiniBand's port space (`ucma_set_af_ib_support`).
            _ => Self::Unknown,
        })
    }
}

fn ip(bytes: &[u8]) -> Option<SocketAddr> {
    match Address::read(bytes) {
        Address::Ip(address) => Some(address),
        Address::Unspecified | Address::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::written;
    use super::*;

    fn command(number: u32, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).expect("short");
        [&number.to_ne_bytes()[..], &length.to_ne_bytes(), &[0; 2], body].concat()
    }

    #[test]
    fn commands_of_ip_are_known_and_those_of_infiniband_are_not() {
        let mut body = vec![0; 40];
        body[8..36].copy_from_slice(&written("10.64.0.1:7".parse().expect("an address")));
        body[36] = 9;
        let address = Some("10.64.0.1:7".parse().expect("an address"));
        assert_eq!(Command::read(&command(2, &body)), Some(Command::Bind { id: 9, address }));
        assert_eq!(Command::read(&command(20, &[0; 136])), Some(Command::Unknown));
        assert_eq!(Command::read(&command(2, &body[..39])), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_bad(bytes: Vec<u8>, number in 0..30_u32) {
            let _ = Command::read(&bytes);
            let _ = Command::read(&command(number, &bytes));
        }
    }
}
