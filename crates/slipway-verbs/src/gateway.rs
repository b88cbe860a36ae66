//! The gateway: a program that joins queue pairs of nodes with RDMA peers outside of the lab, by a device of the machine.
//!
//! The peers are ordinary: they know nothing of labs, and speak the device's own transport. For each queue pair of a node that
//! reaches one, the gateway has a queue pair on the device. The plug-in names its requests and receives ([`Ask`]), and hears of
//! their completions ([`Told`]). The node's memory is registered with the device, so the gateway copies no byte of it. Routers
//! have connections made ([`Order::Call`]), as programs ask for them by librdmacm.
//! `docs/adr/0082-peers-outside-of-the-lab.md` says why.

mod asks;
mod call;
mod device;
mod flow;
mod library;
mod memory;
mod pair;
mod region;
mod serve;
mod session;
mod table;
mod worker;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use serve::run;

/// Most files of a region's memory.
pub const FILES: usize = crate::wire::DESCRIPTORS;
/// Most bytes of an inline request.
pub const INLINE: usize = 512;

/// An order of the anchor or of a router. Descriptors come beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Serves programs of a node, which connect to the listening socket beside it.
    Node {
        /// Its number.
        node: u32,
        /// Most bytes of its memory that are registered at once: the node's own limit, or the machine's memory.
        memory: u64,
    },
    /// Connects a queue pair of a node's with a peer. The router's end of the connection comes beside it, a stream of
    /// [`Message`](crate::management::Message)s, as from the router of another host. Its end is the end of the connection.
    Call {
        /// The node.
        node: u32,
        /// The peer.
        to: SocketAddr,
    },
    /// These nodes reach nobody from now on, and others do: a cut or a condition of their links. Connections that they have end.
    Barred {
        /// Their numbers: at most [`BARRED`] in one order, the rest in further ones.
        nodes: Vec<u32>,
        /// Whether this order begins the list anew.
        is_first: bool,
    },
    /// Tells of queue pairs with peers by the socket beside it: a [`Counted`] for each, and then its end.
    Status,
}

/// Most nodes of one [`Order::Barred`].
pub const BARRED: usize = 128;

/// A queue pair with a peer outside of the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The node.
    pub node: u32,
    /// Its queue pair.
    pub number: u32,
    /// The peer.
    pub peer: SocketAddr,
    /// Requests that have completed.
    pub requests: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Messages that have been received.
    pub received: u64,
    /// Bytes of these.
    pub received_bytes: u64,
}

/// A part of a file that a region's memory lies on. Parts follow one another in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its first byte in the file: whole pages.
    pub offset: u64,
    /// Its length in bytes: whole pages.
    pub length: u64,
}

/// Bytes of registered memory, by their address in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first byte's address.
    pub at: u64,
    /// The length in bytes.
    pub length: u32,
}

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Sends a message.
    Send,
    /// Writes into the peer's memory.
    Write,
    /// Reads the peer's memory.
    Read,
    /// Adds to a word of the peer's.
    Add(u64),
    /// Puts a word in the place of the peer's, where that is the one to compare with.
    Swap {
        /// The word to compare with.
        compare: u64,
        /// The word to put there.
        with: u64,
    },
}

/// A request of a send queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The operation.
    pub operation: Operation,
    /// The program's memory. None where the bytes are inline.
    pub spans: Vec<Span>,
    /// The bytes of an inline request: at most [`INLINE`].
    pub inline: Vec<u8>,
    /// Address in the peer's memory.
    pub address: u64,
    /// The peer's key.
    pub key: u32,
    /// Immediate data, in the order of bytes that the program wrote it in.
    pub immediate: Option<u32>,
    /// Whether the peer's completion is solicited.
    pub is_solicited: bool,
    /// Whether it waits for reads and atomic operations before it.
    pub is_fenced: bool,
}

/// A packet of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Registers memory: [`Told::Key`]. The file of each part comes beside it, in the same order.
    Register {
        /// The protection domain, by a number of the program's.
        domain: u32,
        /// Address of the first byte, as peers name it.
        start: u64,
        /// Address of the first byte in the program. The first part begins with its page.
        at: u64,
        /// Length in bytes.
        length: u64,
        /// Access flags (`enum ibv_access_flags`): of these, the device gets those for local writes and for peers.
        access: u32,
        /// Where the pages are, at most [`FILES`] parts.
        parts: Vec<Part>,
    },
    /// Ends a registration: [`Told::Done`]. The device reaches none of it then.
    Deregister {
        /// Its key.
        key: u32,
    },
    /// Tells of a reliable queue pair of the program's, which may be connected from now on: [`Told::Done`].
    QueuePair {
        /// Its number.
        number: u32,
        /// The protection domain.
        domain: u32,
    },
    /// Ends that, and its connection: [`Told::Done`]. No completion comes afterwards.
    Forget {
        /// Its number.
        number: u32,
    },
    /// Asks whether a queue pair is connected with a peer by the gateway: [`Told::Window`], or [`Told::Refused`] with
    /// `EHOSTUNREACH`. Requests may follow.
    Join {
        /// Its number.
        number: u32,
    },
    /// A request. It has no reply, and completes in time.
    Send {
        /// The queue pair.
        number: u32,
        /// The request.
        work: Work,
    },
    /// A receive request. It has no reply, and completes in time.
    Receive {
        /// The queue pair.
        number: u32,
        /// The program's memory.
        spans: Vec<Span>,
    },
}

/// A packet of the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// A reply: done.
    Done,
    /// A reply: the key of a region, for its owner and its peers.
    Key {
        /// The key.
        key: u32,
    },
    /// A reply: how many requests and receives may be incomplete at once.
    Window {
        /// Requests.
        requests: u32,
        /// Receives.
        receives: u32,
        /// Spans of each.
        spans: u32,
    },
    /// A reply: refused.
    Refused {
        /// The number of the error (`errno(3)`).
        errno: i32,
    },
    /// Requests of a queue pair have completed: those of each queue in their order.
    Completed {
        /// The queue pair.
        number: u32,
        /// At most [`COMPLETIONS`].
        all: Vec<Completion>,
    },
    /// The connection of a queue pair has ended. All requests have completed.
    Ended {
        /// The queue pair.
        number: u32,
    },
}

/// Most completions in a packet.
pub const COMPLETIONS: usize = 32;

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// Whether it is the oldest receive request's, or the oldest request's of the send queue.
    pub is_receive: bool,
    /// The status (`enum ibv_wc_status`).
    pub status: u32,
    /// Bytes received.
    pub length: u32,
    /// Immediate data that came with it.
    pub immediate: Option<u32>,
    /// Whether a receive is that of a write with immediate data.
    pub is_written: bool,
    /// Whether the peer solicited it, as far as the device tells; a device that does not tell solicits all.
    pub is_solicited: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::LONGEST;

    #[test]
    fn the_longest_packets_fit() {
        let spans = vec![Span { at: u64::MAX, length: u32::MAX }; 16];
        let work = Work {
            operation: Operation::Swap { compare: u64::MAX, with: u64::MAX },
            spans,
            inline: vec![255; INLINE],
            address: u64::MAX,
            key: u32::MAX,
            immediate: Some(u32::MAX),
            is_solicited: true,
            is_fenced: true,
        };
        let completion = Completion {
            is_receive: true,
            status: u32::MAX,
            length: u32::MAX,
            immediate: Some(u32::MAX),
            is_written: true,
            is_solicited: true,
        };
        let parts = vec![Part { offset: u64::MAX, length: u64::MAX }; FILES];
        let (at, start, length) = (u64::MAX, u64::MAX, u64::MAX);
        let register = Ask::Register { domain: u32::MAX, start, at, length, access: u32::MAX, parts };
        let packets = [
            postcard::to_allocvec(&Ask::Send { number: u32::MAX, work }),
            postcard::to_allocvec(&Told::Completed { number: u32::MAX, all: vec![completion; COMPLETIONS] }),
            postcard::to_allocvec(&register),
            postcard::to_allocvec(&Order::Barred { nodes: vec![u32::MAX; BARRED], is_first: true }),
        ];
        for packet in packets {
            assert!(packet.unwrap().len() <= LONGEST);
        }
    }
}
