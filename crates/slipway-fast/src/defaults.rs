//! The options of sockets on which no program has set any.
//!
//! Reading all options takes a score of system calls, and nearly every socket has the same values. The router knows the
//! sockets whose options a program changed: it traps those calls, and they mark the socket ([`Stored::Changed`]). All other
//! values depend on the node's settings alone (`net.ipv4.tcp_keepalive_time`, …). The router reads them anew from time to
//! time.
//!
//! [`Stored::Changed`]: crate::metadata::Stored::Changed

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use slipway_lab::id::NodeId;

use crate::emulation::Options;
use crate::sync::lock;

/// Time that a read value is used.
const AGE: Duration = Duration::from_secs(1);

/// A kind of sockets, alike while no program sets an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A program's new socket.
    New {
        /// Index of the node.
        node: NodeId,
        /// Whether the socket's family is IPv6.
        ipv6: bool,
    },
    /// A program's accepted socket.
    Accepted {
        /// Index of the node.
        node: NodeId,
        /// Whether the socket's family is IPv6.
        ipv6: bool,
        /// Whether its addresses are of IPv4, so that it is no socket of IPv6 alone.
        mapped: bool,
    },
    /// A connection between the routers of two hosts.
    Between,
}

/// The options of each kind.
#[derive(Debug, Default)]
pub(crate) struct Defaults(Mutex<HashMap<Kind, (Instant, Options)>>);

impl Defaults {
    /// The options of a kind of sockets, if a thread has read them within a second.
    pub(crate) fn known(&self, kind: Kind) -> Option<Options> {
        lock(&self.0).get(&kind).filter(|(since, _)| since.elapsed() < AGE).map(|(_, options)| *options)
    }

    /// The options of sockets of a kind; `read` asks one of them.
    pub(crate) fn of(&self, kind: Kind, read: impl FnOnce() -> Options) -> Options {
        if let Some(options) = self.known(kind) {
            return options;
        }
        let options = read();
        lock(&self.0).insert(kind, (Instant::now(), options));
        options
    }
}
