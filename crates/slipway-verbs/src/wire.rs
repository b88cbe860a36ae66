//! Messages between a plug-in and its broker, each in one packet of a `SOCK_SEQPACKET` socket.
//!
//! A packet holds one [`Request`] or [`Answer`] in postcard's encoding. Descriptors travel beside it. A node is known by the
//! listener that its program connected to, so no message names its sender.

mod objects;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::untrusted::{self, Received, Untrusted};

pub use objects::{Object, Proof, Region, Shared};

/// Longest packet, in bytes. A longer one is refused.
pub const LONGEST: usize = 1024;

/// Most descriptors of a packet.
pub const DESCRIPTORS: usize = 8;

/// A global identifier of a port: the node's address, an IPv4 one mapped into IPv6 (RFC 4291, 2.5.5.2).
pub type Gid = [u8; 16];

/// Most members of a group that datagrams go to. The next is refused (`ENOMEM`).
pub const MEMBERS: usize = 64;

/// Whether an identifier is that of a group: an IPv6 multicast address, or an IPv4 one that is mapped into IPv6.
#[must_use]
pub fn is_group(gid: &Gid) -> bool {
    let address = std::net::Ipv6Addr::from(*gid);
    address.to_ipv4_mapped().map_or(address.is_multicast(), |address| address.is_multicast())
}

/// Transport of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// Reliable connection.
    Reliable,
    /// Unreliable connection.
    Unreliable,
    /// Unreliable datagram.
    Datagram,
}

/// Orders of a plug-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Asks for the node's addresses: [`Reply::Node`], with the file that the program counts its traffic in.
    Hello,
    /// Makes a queue pair: [`Reply::QueuePair`].
    CreateQueuePair {
        /// Its transport.
        transport: Transport,
        /// The protection domain, by a number of the program's.
        domain: u32,
    },
    /// Ends a queue pair: [`Reply::Done`].
    DestroyQueuePair {
        /// Its number.
        number: u32,
    },
    /// Joins a queue pair of the program's with one of a peer's. The reply is [`Reply::Connected`], with the memory that only
    /// both ends have, and a socket that wakes the other end.
    Connect {
        /// The program's queue pair.
        number: u32,
        /// Address of the peer's port.
        gid: Gid,
        /// The peer's queue pair.
        peer: u32,
    },
    /// Registers memory: [`Reply::Key`]. The file of [`Region::shared`] comes beside it.
    Register {
        /// The protection domain.
        domain: u32,
        /// The memory.
        region: Region,
        /// The key to have: that of the gateway's registration. `EEXIST` where another region has it. Without one, the
        /// broker chooses it.
        key: Option<u32>,
    },
    /// Ends a registration: [`Reply::Done`].
    Deregister {
        /// Its key.
        key: u32,
    },
    /// Asks for a region of the peer that this queue pair is joined with: [`Reply::Region`], with the file of its shared part.
    Resolve {
        /// The program's queue pair.
        number: u32,
        /// The region's key.
        key: u32,
    },
    /// Makes a datagram queue pair a member of a group: [`Reply::Done`].
    Attach {
        /// The program's queue pair.
        number: u32,
        /// The group.
        group: Gid,
    },
    /// Ends that: [`Reply::Done`].
    Detach {
        /// The program's queue pair.
        number: u32,
        /// The group.
        group: Gid,
    },
    /// Asks for the next member of a group that the program may reach: [`Reply::Member`], or [`Reply::Done`] after the last.
    /// From then on [`Answer::Regrouped`] tells of a change, once.
    Member {
        /// The group.
        group: Gid,
        /// The number of the last member that the program knows; 0 at the beginning.
        after: u32,
    },
    /// Names an object to a broker that took the place of another: [`Reply::Done`].
    Resume {
        /// The object.
        object: Object,
        /// The proof that came with its number.
        proof: Proof,
    },
    /// Names a connection to such a broker: [`Reply::Connected`], without descriptors. A copy of a stream to another host comes
    /// beside the request.
    Rejoin {
        /// The program's queue pair.
        number: u32,
        /// Address of the peer's port.
        gid: Gid,
        /// The peer's queue pair.
        peer: u32,
        /// The end that the program has.
        end: End,
    },
    /// Leaves the connection of a datagram queue pair with a peer, if there is one: [`Reply::Done`]. Either end may ask for another
    /// from then on.
    Leave {
        /// The program's queue pair.
        number: u32,
        /// The peer's queue pair.
        peer: u32,
    },
}

/// Replies to requests, one each, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Nothing to tell.
    Done,
    /// The node's addresses.
    Node {
        /// At most four of them.
        gids: Vec<Gid>,
    },
    /// A queue pair was made.
    QueuePair {
        /// Its number, of 24 bits.
        number: u32,
        /// The proof for [`Request::Resume`].
        proof: Proof,
    },
    /// Two queue pairs are joined.
    Connected {
        /// Which end of the memory is the program's.
        end: End,
        /// The slot for this end's counts.
        counts: u32,
    },
    /// Memory was registered.
    Key {
        /// Its key.
        key: u32,
        /// The proof for [`Request::Resume`].
        proof: Proof,
    },
    /// A region of the peer's.
    Region(Region),
    /// A member of a group.
    Member {
        /// Address of its port.
        gid: Gid,
        /// Its queue pair.
        number: u32,
    },
    /// The request was refused.
    Refused {
        /// The number of the error (`errno(3)`).
        errno: i32,
    },
}

/// End of the shared memory of two queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The end of the program that asked first.
    First,
    /// The other end.
    Second,
    /// Both: a queue pair that is joined with itself.
    Both,
    /// Neither: the peer is on another virtual host. One descriptor comes, a stream to its program.
    Far,
}

/// Packets of the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The reply to the oldest request without one.
    Reply(Reply),
    /// A queue pair may not be used any more: its work requests are flushed.
    Revoked {
        /// The program's queue pair.
        number: u32,
    },
    /// A peer sends datagrams to a queue pair. The memory and the socket come beside it, or a stream to another host's program.
    Reached {
        /// The program's queue pair.
        number: u32,
        /// Address of the peer's port.
        gid: Gid,
        /// The peer's queue pair.
        peer: u32,
        /// The slot for this end's counts.
        counts: u32,
    },
    /// A connection stands still from now on, because its nodes do not hear one another, or goes on.
    Silenced {
        /// The program's queue pair.
        number: u32,
        /// The peer's queue pair.
        peer: u32,
        /// True where the connection stands still.
        is_silent: bool,
    },
    /// A group has other members than the program was told.
    Regrouped {
        /// The group.
        group: Gid,
    },
}

/// Errors of packets. They fit "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The socket failed.
    #[error("exchange a packet: {0}")]
    Socket(#[from] Errno),
    /// The other side has closed its socket.
    #[error("exchange a packet: the other side has ended")]
    Ended,
    /// The packet is longer than [`LONGEST`], has too many descriptors, or is none of ours.
    #[error("understand a packet")]
    Malformed,
}

impl From<WireError> for io::Error {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Socket(errno) => errno.into(),
            WireError::Ended => Errno::CONNRESET.into(),
            WireError::Malformed => Errno::PROTO.into(),
        }
    }
}

/// Sends one packet.
///
/// # Errors
/// [`WireError::Socket`] with `EAGAIN` where the socket is full and does not wait.
pub fn send<T: Serialize>(socket: BorrowedFd<'_>, packet: &T, fds: &[BorrowedFd<'_>]) -> Result<(), WireError> {
    let mut bytes = [0; LONGEST];
    let bytes = postcard::to_slice(packet, &mut bytes).map_err(|_| WireError::Malformed)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(WireError::Malformed);
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(socket, &[io::IoSlice::new(bytes)], &mut ancillary, flags))?;
    Ok(())
}

/// Receives one packet, and the descriptors beside it.
///
/// # Errors
/// [`WireError::Socket`] with `EAGAIN` where there is none and the socket does not wait.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>, flags: RecvFlags) -> Result<(T, Vec<OwnedFd>), WireError> {
    let (packet, fds) = receive_untrusted(socket, flags)?;
    Ok((packet.ok_or(WireError::Malformed)?, fds.into_iter().map(Untrusted::trusted).collect()))
}

/// As [`receive`], from a program that may be hostile. `None` where the packet is none of ours.
///
/// # Errors
/// As for [`receive`].
pub fn receive_untrusted<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    flags: RecvFlags,
) -> Result<(Option<T>, Vec<Untrusted>), WireError> {
    let mut bytes = [0; LONGEST];
    let received = rustix::io::retry_on_intr(|| untrusted::receive(socket, &mut bytes, flags))?;
    let Received { bytes: length, is_whole, fds } = received;
    if length == 0 && fds.is_empty() {
        return Err(WireError::Ended);
    }
    let is_whole = is_whole && fds.len() <= DESCRIPTORS;
    let packet = bytes.get(..length).filter(|_| is_whole).and_then(parse);
    Ok((packet, fds))
}

/// Parses a packet; none where the bytes are not exactly one.
#[must_use]
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((packet, [])) => Some(packet),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_packet_arrives_with_its_descriptors() {
        let (one, other) = pair();
        let request = Request::Connect { number: 7, gid: [9; 16], peer: 8 };
        send(one.as_fd(), &request, &[one.as_fd(), other.as_fd()]).unwrap();
        let (there, fds) = receive::<Request>(other.as_fd(), RecvFlags::empty()).unwrap();
        assert_eq!((there, fds.len()), (request, 2));
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        let (one, other) = pair();
        for bytes in [vec![250], vec![0; LONGEST + 1], vec![0, 0]] {
            rustix::net::send(&one, &bytes, SendFlags::empty()).unwrap();
            assert!(matches!(receive::<Request>(other.as_fd(), RecvFlags::empty()), Err(WireError::Malformed)));
        }
        drop(one);
        assert!(matches!(receive::<Request>(other.as_fd(), RecvFlags::empty()), Err(WireError::Ended)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..LONGEST)) {
            let _ = parse::<Answer>(&bytes);
            if let Some(request) = parse::<Request>(&bytes) {
                prop_assert_eq!(parse::<Request>(&postcard::to_allocvec(&request).unwrap()), Some(request));
            }
        }
    }
}
