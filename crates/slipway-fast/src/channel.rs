//! The messages between routers of a lab, and the connections between hosts that routers keep ready.
//!
//! A connection of the fast path across hosts is a TCP connection of the hosts' own network. It is made before it is
//! needed. The caller's [`Pool`] begins a [`Session`] with the other router's [`Acceptor`], on a connection that carries nothing
//! else: both prove that they are of the same lab. Each further connection is said to be of that session by one message,
//! which nobody answers; then it waits. A program's `connect` takes one that waits, says [`Open`] on it, and hears a
//! [`OpenReply`]; from there on the connection belongs to the programs.
//!
//! | | on | from | bytes |
//! | --- | --- | --- | --- |
//! | greeting | the session's connection | caller | name and version of this protocol, a nonce |
//! | answer | | answerer | a nonce, proof that it has the lab's key, made of both nonces |
//! | [`Hello`] | | caller | who it is; the message's MAC is the caller's proof |
//! | [`Hello`] | | answerer | who it is |
//! | [`Join`] | each further one | caller | which session it is of |
//! | [`Open`] | | caller | which server is meant, for which client |
//! | [`OpenReply`] | | answerer | accepted, or the reason why not |
//!
//! Round trips: once for two hosts, one of TCP and two of the handshake; for each connection beforehand, in the background, one
//! of TCP; when a program connects, **one**, the last two lines above. An ordinary `connect` also takes one, so the fast path
//! costs no more, provided that a connection is ready. A server that speaks first is heard half a round trip after the verdict,
//! as over TCP.
//!
//! A session lasts as long as the connection that it was begun on, which ends with either router, or when the caller's kernel
//! cannot reach the other host for half a minute. Then both close what waits of it, and the caller begins another. An answerer has
//! one session with a host, the last that was begun, whatever it heard of the one before. What was asked for goes on.
//!
//! # What is kept from whom
//!
//! The lab's key is made by the anchor and known to its routers only. Both sides of a handshake choose a fresh nonce; the keys
//! of the session's two directions come of the lab's key and both nonces (HKDF-Expand, RFC 5869), and no others are made for
//! its connections. Every message after the answer is
//! `length (2) | connection (8) | counter (8) | body | HMAC-SHA-256 (32)`, with numbers big-endian, and the MAC over all before
//! it. The caller numbers a session's connections, from 0, which is the one with the handshake, and never uses a number
//! again; the counter begins at 0 in each direction of each connection. So a message that was changed, dropped, doubled,
//! swapped with another, cut, sent back to its sender, or kept from another connection or session is refused ([`ProtocolError`]), and
//! the connection closed. A [`Join`] that was heard before is refused too: the answerer knows which numbers came, and takes those
//! far behind the highest for used (RFC 4303, section 3.4.3). A handshake that somebody passes back to where it came from, or on
//! to another host, is refused because `Hello` names its host; a connection, because another host has other keys.
//!
//! Every kind of message has one length, known before it is read: nothing is allocated for one, and nothing is read
//! beyond it, because the bytes after a verdict are the programs'. A connection's first message, greeting or [`Join`], has the
//! same.
//!
//! Nothing is kept secret but the key, and what programs say to each other afterwards is protected by neither: the hosts'
//! network carries it as it would carry theirs.

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
pub use body::{Body, Hello, Join, Name, Open, OpenAnswer, OpenReply, Refusal, VERSION};
pub use handshake::{Handshake, Next};
pub use key::{Key, KeyFile, Nonce};
pub use pool::{OpenProgress, PendingOpen, Pool};
pub use request::{Limits, OpenRequest};
pub use session::{LONGEST, Message, RecordLayer, Session};

/// A breach of the protocol: no router of the lab would send this at this point. The receiver closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// It does not begin as this protocol does.
    #[error("it does not speak this protocol, or another version of it")]
    UnknownProtocol,
    /// Its length is not that of the message that is due.
    #[error("a message of another length than the one that is due")]
    Length,
    /// Its MAC is another: changed on its way, of another session, or by somebody who does not have the lab's key.
    #[error("a message that was not made with this session's key")]
    BadMac,
    /// An old message, or one before it is missing, or a connection that was there before.
    #[error("a message out of turn")]
    OutOfOrder,
    /// It names a session that there is not. Of a router whose session has just ended it is no breach, and of no more use.
    #[error("a connection of a session that is over")]
    SessionEnded,
    /// Made with the right key, and not what this router understands.
    #[error("a message that means nothing to this version")]
    Malformed,
    /// Hello names another version, lab or host than was expected, or this router itself.
    #[error("it is not the router that was to be there")]
    WrongPeer,
}

/// Why a connection to another router came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The kernel says so.
    #[error("talk to another host's router: {0}")]
    Io(#[from] io::Error),
    /// Somebody else is there.
    #[error("talk to another host's router: {0}")]
    Protocol(#[from] ProtocolError),
    /// It ended the connection in the middle.
    #[error("talk to another host's router: it closed the connection")]
    Gone,
    /// It said nothing in time.
    #[error("talk to another host's router: it does not answer")]
    TimedOut,
    /// No connection waits, and this is why.
    #[error("reach host {host}'s router: no connection is ready ({trouble})")]
    NotReady {
        /// Index of the host.
        host: u32,
        /// What went wrong when the last one was made.
        trouble: String,
    },
    /// The other router answered, and this is why not.
    #[error("connect to a server on another host: {0}")]
    Refused(Refusal),
}
