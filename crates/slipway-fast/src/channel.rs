//! What routers of a lab say to each other, and the connections between hosts that they keep warm.
//!
//! A connection of the fast path across hosts is a TCP connection of the hosts' own network. It is made before it is
//! needed: the caller's [`Pool`] connects to the other router's [`Acceptor`] and both prove that they are of the same lab;
//! then it waits. A program's `connect` takes one that waits, says [`Open`] on it, and hears a [`Verdict`]; from there on
//! the connection belongs to the programs.
//!
//! | | from | bytes |
//! | --- | --- | --- |
//! | greeting | caller | name and version of this protocol, a nonce |
//! | answer | answerer | a nonce, proof that it has the lab's key, made of both nonces |
//! | [`Hello`] | caller | who it is; the message's MAC is the caller's proof |
//! | [`Hello`] | answerer | who it is |
//! | [`Open`] | caller | which server is meant, for which client |
//! | [`Verdict`] | answerer | accepted, or the reason why not |
//!
//! Round trips: beforehand, in the background, one of TCP and two of the handshake; when a program connects, **one**, the
//! last two lines above. An ordinary `connect` also takes one, so the fast path costs no more, provided that a connection
//! is ready. A server that speaks first is heard half a round trip after the verdict, as over TCP.
//!
//! # What is kept from whom
//!
//! The lab's key is made by the anchor and known to its routers only. Both sides choose a fresh nonce; the keys of the two
//! directions come of the lab's key and both nonces (HKDF-Expand, RFC 5869). Every message after the answer is
//! `length (2) | counter (8) | body | HMAC-SHA-256 (32)`, with numbers big-endian, the MAC over all before it and the
//! counter beginning at 0 in each direction. So a message that was changed, dropped, doubled, swapped with another, cut,
//! sent back to its sender, or kept from another connection is refused ([`Breach`]), and the connection closed. A
//! handshake that somebody passes back to where it came from, or on to another host, is refused because `Hello` names
//! its host.
//! Every kind of message has one length, known before it is read: nothing is allocated for one, and nothing is read
//! beyond it, because the bytes after a verdict are the programs'.
//!
//! Nothing is kept secret but the key, and what programs say to each other afterwards is protected by neither: the hosts'
//! network carries it as it would carry theirs.

mod acceptor;
mod body;
mod handshake;
mod key;
mod line;
mod pool;
mod refill;
mod session;

use std::io;

pub use acceptor::{Acceptor, Asked, Limits};
pub use body::{Answer, Body, Hello, Open, Refusal, VERSION, Verdict};
pub use handshake::{Handshake, Next};
pub use key::{Key, Nonce};
pub use pool::{Asking, Heard, Pool};
pub use session::{LONGEST, Message, Session};

/// What no router of the lab would send to this one at this point. The connection that it came over is of no more use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// It does not begin as this protocol does.
    #[error("it does not speak this protocol, or another version of it")]
    Stranger,
    /// Its length is not that of the message that is due.
    #[error("a message of another length than the one that is due")]
    Length,
    /// Its MAC is another: changed on its way, of another session, or by somebody who does not have the lab's key.
    #[error("a message that was not made with this session's key")]
    Forged,
    /// An old message, or one before it is missing.
    #[error("a message out of turn")]
    Turn,
    /// Made with the right key, and not what this router understands.
    #[error("a message that means nothing to this version")]
    Meaning,
    /// Hello names another version, lab or host than was expected, or this router itself.
    #[error("it is not the router that was to be there")]
    Identity,
}

/// Why a connection to another router came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The kernel says so.
    #[error("talk to another host's router: {0}")]
    Io(#[from] io::Error),
    /// Somebody else is there.
    #[error("talk to another host's router: {0}")]
    Breach(#[from] Breach),
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
