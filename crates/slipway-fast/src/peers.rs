//! Connections to programs on other hosts: a TCP connection between two routers, which becomes the programs' own.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use slipway_lab::id::HostId;

use crate::channel::{ChannelError, MANAGEMENT, Open, Pool, Refusal};
use crate::reason::Reason;
use crate::status::Peer;

/// Connections kept ready for each other host.
pub const WARM: usize = 16;

/// Longest wait for another router. It answers at once; a longer delay is the network's. Then the overlay, which
/// retransmits, is the better place to wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// The routers of other hosts.
#[derive(Debug)]
pub struct Peers(Option<Pool>);

/// The result of a request about RDMA.
#[derive(Debug)]
pub(crate) enum Managed {
    /// The stream to the other router, for messages about one connection.
    Accepted(OwnedFd),
    /// A rule forbids it, or conditions of links.
    Refused,
    /// No router answers there, or it has no room.
    Unreachable,
}

/// The result of a program's request.
#[derive(Debug)]
pub enum Outcome {
    /// The client's end of the connection.
    Accepted(OwnedFd),
    /// The router refuses with the overlay's error.
    Refused,
    /// The container network carries it.
    Native(Reason),
}

impl Peers {
    /// The routers to which the pool keeps connections; none in a lab of one host.
    #[must_use]
    pub fn new(pool: Option<Pool>) -> Self {
        Self(pool)
    }

    /// Requests one of its servers from the router of a host.
    #[must_use]
    pub fn open(&self, host: HostId, flow: u64, client: SocketAddr, server: SocketAddr) -> Outcome {
        let (Some(pool), Ok(host)) = (&self.0, u32::try_from(host.index())) else {
            return Outcome::Native(Reason::NoRouter);
        };
        match pool.open(host, &Open { flow, server, client }, PATIENCE) {
            Ok(stream) => Outcome::Accepted(stream.into()),
            Err(ChannelError::Refused(Refusal::NobodyListens | Refusal::Limit)) => Outcome::Refused,
            Err(ChannelError::Refused(Refusal::Policy)) => Outcome::Native(Reason::Policy),
            Err(ChannelError::Refused(Refusal::Backlog)) => Outcome::Native(Reason::Backlog),
            Err(ChannelError::Refused(Refusal::Options)) => Outcome::Native(Reason::Options),
            Err(ChannelError::Refused(Refusal::NotServed)) => Outcome::Native(Reason::Conditions),
            Err(ChannelError::Refused(Refusal::Crowded)) => Outcome::Native(Reason::Crowded),
            Err(ChannelError::Refused(_)) => Outcome::Native(Reason::Exhausted),
            Err(_) => Outcome::Native(Reason::NoRouter),
        }
    }

    /// Requests, from the router of a host, a stream for messages about one connection of RDMA. There is no other way, so this waits
    /// while that router is being replaced.
    pub(crate) fn manage(&self, host: HostId, client: SocketAddr, server: SocketAddr) -> Managed {
        let (Some(pool), Ok(host)) = (&self.0, u32::try_from(host.index())) else { return Managed::Unreachable };
        match pool.open_patiently(host, &Open { flow: MANAGEMENT, server, client }, PATIENCE) {
            Ok(stream) => Managed::Accepted(stream.into()),
            Err(ChannelError::Refused(Refusal::Policy | Refusal::NotServed)) => Managed::Refused,
            Err(_) => Managed::Unreachable,
        }
    }

    /// The state of the connections to each.
    #[must_use]
    pub fn status(&self) -> Vec<Peer> {
        self.0.as_ref().map(Pool::status).unwrap_or_default()
    }
}
