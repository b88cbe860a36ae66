//! The reasons why a connection is not on the fast path.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why the router left a call to the container network. The router counts each, and `slipway fast status` shows
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The socket is one of UDP, as for looking names up.
    Udp,
    /// The socket is not one of TCP or UDP (MPTCP, raw).
    NotTcp,
    /// The address is none of a node on a fast network: loopback, the node's own, or outside.
    NotANode,
    /// The other node is on another host, and the router has no connection to its router.
    NoRouter,
    /// The pair is under conditions, which the fast path does not keep.
    Conditions,
    /// A node of the two has `capabilities`: its own packet filters and routes hold for its connections.
    Capabilities,
    /// The policy denies it, on the container network too.
    Policy,
    /// The listener's queue is full, or it did not answer in time.
    Backlog,
    /// The socket is asynchronous (`O_ASYNC`): signals of the old file would be lost.
    Asynchronous,
    /// The socket has a packet filter of its own, which would see no packets, or the host's.
    Filtered,
    /// The two nodes have their share of the connections that may wait to be accepted.
    Crowded,
    /// The socket, or the listener, has an option that a fast connection cannot keep (`IP_MINTTL`, `IP_OPTIONS`, `TCP_MD5SIG`, …).
    Options,
    /// A router lacked something that only the fast path needs: descriptors, memory, wake-up sockets.
    Exhausted,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 13] = [
        Self::Udp,
        Self::NotTcp,
        Self::NotANode,
        Self::NoRouter,
        Self::Conditions,
        Self::Capabilities,
        Self::Policy,
        Self::Backlog,
        Self::Asynchronous,
        Self::Filtered,
        Self::Crowded,
        Self::Options,
        Self::Exhausted,
    ];

    /// The word in records and metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::NotTcp => "not-tcp",
            Self::NotANode => "not-a-node",
            Self::NoRouter => "no-router",
            Self::Conditions => "conditions",
            Self::Capabilities => "capabilities",
            Self::Policy => "policy",
            Self::Backlog => "backlog",
            Self::Asynchronous => "asynchronous",
            Self::Filtered => "filtered",
            Self::Crowded => "crowded",
            Self::Options => "options",
            Self::Exhausted => "exhausted",
        }
    }

    /// The text for people.
    #[must_use]
    pub fn account(self) -> &'static str {
        match self {
            Self::Udp => "the socket is one of UDP, as for looking names up",
            Self::NotTcp => "the socket is not one of TCP",
            Self::NotANode => "the address is no other node's on a fast network",
            Self::NoRouter => "the router of the other host cannot be reached",
            Self::Conditions => "the pair is under conditions",
            Self::Capabilities => "one of the two nodes has `capabilities`, and may filter and route by itself",
            Self::Policy => "policy forbids it",
            Self::Backlog => "the listener's queue is full",
            Self::Asynchronous => "the socket sends signals (O_ASYNC)",
            Self::Filtered => "the socket has a filter (SO_ATTACH_FILTER)",
            Self::Crowded => "too many connections of the two nodes wait to be accepted",
            Self::Options => {
                "the socket or its listener has an option that cannot be kept (IP_MINTTL, TCP_MD5SIG, ...)"
            }
            Self::Exhausted => "the router lacked descriptors or memory",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.account())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_records() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).expect("plain"), reason.word());
        }
    }
}
