//! The messages between routers of a lab, and the connections between hosts that routers keep ready.
//!
//! A connection of the fast path across hosts is a TCP connection of the hosts' own network, made before a program needs
//! it. The caller's [`Pool`] begins a [`Session`] with the other router's [`Acceptor`], on a connection that carries
//! nothing else. Both routers prove that they are of the same lab. One message, without an answer, adds each further
//! connection to that session; then the connection waits. When a program calls `connect`, the pool takes a waiting
//! connection, sends [`Open`] on it, and receives an [`OpenReply`]. From there on the connection belongs to the programs.
//!
//! | | on | from | bytes |
//! | --- | --- | --- | --- |
//! | greeting | the session's connection | caller | name and version of this protocol, a nonce |
//! | answer | | answerer | a nonce, proof that it has the lab's key, made of both nonces |
//! | [`Hello`] | | caller | who it is; the message's MAC is the caller's proof |
//! | [`Hello`] | | answerer | who it is |
//! | [`Join`] | each further one | caller | which session it is of |
//! | [`Open`] | | caller | which server, for which client |
//! | [`OpenReply`] | | answerer | accepted, or the reason why not |
//!
//! Two hosts need three round trips once: one of TCP and two of the handshake. Each connection made beforehand, in the
//! background, needs one of TCP. A program's `connect` needs **one**, the last two lines above. An ordinary `connect` also
//! takes one, so the fast path costs no more, provided that a connection is ready. The first data of a server that speaks
//! first arrives half a round trip after the reply, as over TCP.
//!
//! A session lasts as long as its first connection. That ends with either router, or when the caller's kernel cannot reach
//! the other host for half a minute. Then both close the session's waiting connections, and the caller begins another
//! session. An answerer keeps only the latest session with a host, whatever came on the one before. Requests that were sent
//! go on.
//!
//! # What is kept from whom
//!
//! The anchor makes the lab's key, and only the lab's routers know it. Both sides of a handshake choose a fresh nonce. The
//! keys of the session's two directions come from the lab's key and both nonces (HKDF-Expand, RFC 5869); its connections
//! use these keys too. Every message after the answer is
//!
//! `length (2) | connection (8) | counter (8) | body | HMAC-SHA-256 (32)`
//!
//! Numbers are big-endian, and the MAC is over all before it. The caller numbers a session's connections from 0, the one
//! with the handshake, and never uses a number again. The counter begins at 0 in each direction of each connection. So a
//! receiver refuses a message that was changed, dropped, doubled, swapped, cut, reflected, or moved from another connection
//! or session ([`ProtocolError`]). It then closes the connection. An answerer refuses a repeated [`Join`] too: it remembers
//! which numbers came, and takes those far behind the highest for used (RFC 4303, section 3.4.3). A router refuses a
//! handshake that was reflected or relayed to another host, because `Hello` names its host. It refuses such a connection
//! because another host has other keys.
//!
//! Every kind of message has one length, known before it is read. So the reader allocates nothing, and reads nothing beyond
//! the message: the bytes after a reply are the programs'. Both kinds of a connection's first message, greeting and
//! [`Join`], have the same length.
//!
//! Only the key is secret. The protocol does not protect the programs' data afterwards: the hosts' network carries it as it
//! would carry theirs.

mod accept_loop;
mod acceptor;
mod body;
mod connection;
mod connector;
mod handshake;
mod incoming;
mod key;
mod pool;
mod ready;
mod request;
mod session;
mod window;

use std::io;

pub use acceptor::Acceptor;
pub use body::{Body, Hello, Join, MANAGEMENT, Name, Open, OpenAnswer, OpenReply, Refusal, VERSION};
pub use handshake::{Handshake, Next};
pub use key::{Key, KeyFile, Nonce};
pub use pool::{OpenProgress, PendingOpen, Pool};
pub use request::{Limits, OpenRequest};
pub use session::{LONGEST, Message, RecordLayer, Session};

/// A message that no router of the lab would send at this point. The receiver closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The first bytes are not those of this protocol.
    #[error("it does not speak this protocol, or another version of it")]
    UnknownProtocol,
    /// The message has another length than the message that is due.
    #[error("a message of another length than the one that is due")]
    Length,
    /// The MAC does not fit: the message was changed, is of another session, or its sender lacks the lab's key.
    #[error("a message that was not made with this session's key")]
    BadMac,
    /// The message is old, one before it is missing, or its connection was there before.
    #[error("a message out of turn")]
    OutOfOrder,
    /// The message names an unknown session. A router whose session has just ended may send it in good faith; it is of no
    /// more use.
    #[error("a connection of a session that is over")]
    SessionEnded,
    /// The MAC is right, but this router does not understand the body.
    #[error("a message that means nothing to this version")]
    Malformed,
    /// `Hello` names another version, lab or host than was expected, or this router itself.
    #[error("it is not the router that was to be there")]
    WrongPeer,
}

/// The reason why a connection to another router failed.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// A system call failed.
    #[error("talk to another host's router: {0}")]
    Io(#[from] io::Error),
    /// The other side broke the protocol.
    #[error("talk to another host's router: {0}")]
    Protocol(#[from] ProtocolError),
    /// The other router closed the connection early.
    #[error("talk to another host's router: it closed the connection")]
    Gone,
    /// The other router did not answer in time.
    #[error("talk to another host's router: it does not answer")]
    TimedOut,
    /// No connection to the host is ready.
    #[error("reach host {host}'s router: no connection is ready ({trouble})")]
    NotReady {
        /// Index of the host.
        host: u32,
        /// The failure of the last attempt to make one.
        trouble: String,
    },
    /// The other router refused.
    #[error("connect to a server on another host: {0}")]
    Refused(Refusal),
}
