//! The options of sockets on which nobody has set any.
//!
//! To read them all takes a score of system calls, and nearly every socket has the same. Which a program has changed is known: it
//! sets them by calls that the router hears of, and that leave a mark on the socket ([`Stored::Changed`]). What the others have
//! depends on the node's settings alone (`net.ipv4.tcp_keepalive_time`, …), and is read anew from time to time.
//!
//! [`Stored::Changed`]: crate::metadata::Stored::Changed

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::emulation::Options;
use crate::sync::lock;

/// How long what was read is believed.
const AGE: Duration = Duration::from_secs(1);

/// Sockets that are alike while nobody sets anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A program's, new.
    New {
        /// Of which node.
        node: usize,
        /// Of IPv6.
        ipv6: bool,
    },
    /// A program's, accepted.
    Accepted {
        /// Of which node.
        node: usize,
        /// Of IPv6.
        ipv6: bool,
        /// With addresses of IPv4, so that it is no socket of IPv6 alone.
        mapped: bool,
    },
    /// Between the routers of two hosts.
    Between,
}

/// What each kind has.
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
